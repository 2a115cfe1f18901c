"""The text of each token."""

from __future__ import annotations

from autotrace.view.tokens import Pieces

BYTES = {1: b"Gr", 2: b"\xc3", 3: b"\xbc", 4: b"n ", 5: "🦉".encode()[:2], 6: "🦉".encode()[2:], 7: b"\xff"}


def by_bytes(ids: list[int]) -> str:
    return b"".join(BYTES[id] for id in ids).decode("utf-8", "replace")


def test_a_character_of_several_tokens_is_the_first_ones() -> None:
    assert Pieces(by_bytes).of([1, 2, 3, 4, 5, 6]) == ["Gr", "ü", "", "n ", "🦉", ""]


def test_bytes_that_are_no_character_stay_what_the_decoder_says() -> None:
    assert Pieces(by_bytes).of([1, 7, 4]) == ["Gr", "\ufffd", "n "]


def test_a_decoder_that_drops_the_leading_space_is_asked_in_the_middle() -> None:
    def sentence(ids: list[int]) -> str:
        return "".join({1: " the", 2: " owl"}[id] for id in ids).removeprefix(" ")

    assert Pieces(sentence).of([1, 2, 1]) == [" the", " owl", " the"]


def test_without_a_tokenizer_numbers_stand_for_them() -> None:
    assert Pieces(lambda ids: None).of([17]) == ["⟨17⟩"]
