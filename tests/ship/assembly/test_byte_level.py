"""The quick decoder gives the library's text, and is there for no other kind of tokenizer."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from autotrace.ship.assembly.byte_level import REPLACED, ByteLevel, decoder, of_file


def tokenizer() -> Tokenizer:
    """Every byte, a letter outside of the alphabet, and special tokens, one of which has letters of both kinds."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, "Ġthe", "ä½łå¥½", "你", "a b"]
    made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", "<|start_header_id|>", "<｜end｜>"])  # noqa: RUF001 - as DeepSeek writes it
    made.add_tokens([AddedToken(" added ", lstrip=True)])
    return made


MADE = tokenizer()
SIZE = MADE.get_vocab_size(with_added_tokens=True)
ids = st.lists(st.one_of(st.integers(0, SIZE - 1), st.integers(SIZE, SIZE + 3)), max_size=40)


@given(ids=ids)
def test_any_sequence_is_the_text_that_the_library_gives(ids: list[int]) -> None:
    assert ByteLevel(MADE)(ids) == MADE.decode(ids, skip_special_tokens=False)
    assert ByteLevel(MADE)(array("i", ids)) == ByteLevel(MADE)(ids)


@given(ids=ids)
def test_a_file_alone_decodes_alike(ids: list[int]) -> None:
    decode = of_file(MADE.to_str().encode(), longest=20)
    if all(number < SIZE for number in ids):
        assert decode(ids) == MADE.decode(ids, skip_special_tokens=False)
    else:
        with pytest.raises(ValueError, match="no such tokens"):
            decode(ids)


def test_a_file_of_another_kind_or_with_long_tokens_needs_the_library() -> None:
    made = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    for kind in (decoders.Metaspace(), decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])):
        made.decoder = kind
        with pytest.raises(ValueError, match="needs tokenizers"):
            of_file(made.to_str().encode(), longest=20)
    with pytest.raises(ValueError, match="needs tokenizers"):
        of_file(MADE.to_str().encode(), longest=3)


@given(sequences=st.lists(ids, max_size=6))
def test_many_sequences_at_once_are_the_same_or_left_to_be_asked_for_one_by_one(sequences: list[list[int]]) -> None:
    decode = ByteLevel(MADE, much=True)
    texts = decode.each([array("i", ids) for ids in sequences])
    known = any(sequences) and all(id < SIZE for ids in sequences for id in ids)
    assert texts == ([decode(ids) for ids in sequences] if known else None)


@pytest.mark.parametrize("ids", [[-1], [SIZE], [0, -SIZE, 1]])
def test_an_id_that_is_none_is_never_taken_for_what_stands_between_two_sequences(ids: list[int]) -> None:
    assert ByteLevel(MADE, much=True).each([array("i", ids), array("i", [0])]) is None


def test_an_id_within_the_vocabulary_that_it_does_not_list_is_left_to_the_library() -> None:
    made = Tokenizer(models.Unigram([("a", -1.0), ("twice", -1.0), ("b", -1.0), ("twice", -2.0)], 0, False))
    made.decoder = decoders.ByteLevel()
    decode = decoder(made, [[0, 2]], much=True)
    assert decode is not None and decode([0, 1, 2]) == made.decode([0, 1, 2], skip_special_tokens=False) == "atwiceb"
    assert decode.each([array("i", [0, 2]), array("i", [3])]) == ["ab", "twice"]
    assert decode.each([array("i", [0, 1, 2])]) is None


def test_a_vocabulary_that_is_mostly_holes_has_a_table() -> None:
    made = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 9}, []))
    decode = ByteLevel(made, much=True)
    assert decode.each([array("i", [0, 9]), array("i", [1])]) == ["ac", "b"]
    assert decode.each([array("i", [5])]) is None


def test_without_a_table_they_are_asked_for_one_by_one() -> None:
    assert ByteLevel(MADE).each([array("i", [0])]) is None


def test_the_table_is_compared_with_the_library_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decoder(MADE, [[0, 1]], much=True) is not None
    monkeypatch.setattr(ByteLevel, "each", lambda *_: ["another"])
    assert decoder(MADE, [[0, 1]], much=True) is None


@given(first=ids, second=ids)
def test_texts_of_parts_joined_are_the_text_of_the_whole_unless_a_character_was_split(
    first: list[int], second: list[int]
) -> None:
    decode = ByteLevel(MADE)
    joined = decode(first) + decode(second)
    assert REPLACED in joined or joined == decode([*first, *second])


def test_a_negative_id_is_left_to_the_library() -> None:
    for ids in ([-1], [0, -1]):
        for given_as in (ids, array("i", ids)):
            with pytest.raises(OverflowError):
                ByteLevel(MADE)(given_as)


def test_another_decoder_is_not_imitated() -> None:
    assert decoder(MADE, [[0, 1]]) is not None
    for other in (decoders.Metaspace(), decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])):
        made = tokenizer()
        made.decoder = other
        assert decoder(made, [[0, 1]]) is None


def test_ids_far_beyond_today_s_vocabularies_make_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotrace.ship.assembly.byte_level.MAX_ID", SIZE - 2)
    assert decoder(MADE, [[0, 1]]) is None
