"""The text of each token."""

from __future__ import annotations

import math

import pytest

from autotrace.trajectory.model import Span, Trajectory
from autotrace.view.tokens import Pieces, packed
from tests.view.conftest import unpacked

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


def of_turn(**trainers: object) -> Trajectory:
    root = Span("1" * 16, None, "run", "trajectory", "", 1, 9, "OK")
    turn = Span(
        "2" * 16,
        root.span_id,
        "generate",
        "llm",
        "",
        2,
        8,
        "OK",
        new_prompt_ids=[7],
        response_ids=[1, 2, 3],
        prompt_tokens=1,
        response_tokens=3,
        logprobs=[-1.0, -2.0, -3.0],
        **trainers,
    )  # type: ignore[arg-type]
    return Trajectory("a" * 32, "run", [root, turn])


def test_what_the_trainer_computed_stands_with_each_token() -> None:
    one = of_turn(old_logprobs=[-1.5, -2.0], entropy=[0.5, 0.25, 0.125], loss_mask=[1, 0, 1])
    _, arrays = unpacked(packed(one, lambda ids, key: None))
    assert [math.isnan(value) for value in arrays["mismatch"]] == [True, False, False, True], "cut by the trainer"
    assert list(arrays["mismatch"][1:3]) == [-0.5, 0.0]
    assert list(arrays["entropy"][1:]) == [0.5, 0.25, 0.125]
    assert list(arrays["mask"]) == [0, 1, 0, 1]
    assert "advantages" not in arrays


def test_the_sampler_s_numbers_are_those_that_the_trainer_was_given() -> None:
    one = of_turn(old_logprobs=[-1.5, -2.0, -3.0], trained_logprobs=[-1.25, -2.0, -3.0])
    _, arrays = unpacked(packed(one, lambda ids, key: None))
    assert list(arrays["mismatch"][1:]) == [-0.25, 0.0, 0.0]


def test_short_numbers_have_three_digits() -> None:
    one = of_turn(old_logprobs=[float("nan"), float("-inf"), -3.14159])
    _, arrays = unpacked(packed(one, lambda ids, key: None, short=True))
    assert list(arrays["logprob"][1:]) == [-1.0, -2.0, -3.0]
    first, second, third = arrays["mismatch"][1:]
    assert math.isnan(first) and second == -math.inf and third == pytest.approx(-0.14159, rel=1e-3)


def test_without_them_nothing_is_made_up() -> None:
    _, arrays = unpacked(packed(of_turn(), lambda ids, key: None))
    assert arrays.keys() == {"id", "mask", "logprob", "units", "text"}
