"""Decode for the tokenizers of most of today's models, whose tokens are bytes: a table look-up and a join, in a tenth
of the time that the tokenizer's library takes.

``tokenizers``, decoder ``ByteLevel``: each letter of a token stands for a byte (GPT-2's alphabet); a token with any
other letter, as special tokens may be, is its own text; the bytes of all tokens are read as UTF-8, with U+FFFD for
invalid bytes.

A vocabulary of 150,000 Python objects fits into no cache, and each look-up waits for memory. For decoding much text the
table is therefore an Arrow array as well: a third of the time for the tokens of a whole trajectory.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

from autotrace.tables.light_imports import arrow_without_pandas

REPLACED = "\ufffd"
"""Replaces bytes that are not a character."""

MAX_ID = 1 << 22
"""Maximum token id. Today's vocabularies end far below; a larger table would be mostly empty."""


class ByteLevel:
    """Decode like ``tokenizer``, special tokens kept. ``much``: pyarrow may be imported.

    Raises ``ValueError`` for an id above ``MAX_ID``.
    """

    joins = True
    """The joined texts of parts are the text of the whole, except for ``REPLACED``."""

    def __init__(self, tokenizer: Any, *, much: bool = False) -> None:
        letters = _bytes_of_letters()
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        tokens = dict(zip(vocabulary.values(), vocabulary, strict=True))
        if len(tokens) < len(vocabulary) and hasattr(tokenizer, "id_to_token"):  # two tokens have the same id
            tokens = {number: tokenizer.id_to_token(number) for number in tokens}
        if max(tokens, default=-1) > MAX_ID:
            raise ValueError(f"it has an id above {MAX_ID}")
        self._bytes: list[Any] = [None] * (max(tokens, default=-1) + 1)
        """Token id -> bytes; None: no such token."""
        for number, token in tokens.items():
            try:
                self._bytes[number] = token.translate(letters).encode("latin-1")
            except UnicodeEncodeError:
                self._bytes[number] = token.encode()
        self._table = _array(self._bytes) if much else None

    def __call__(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``; an array of ``int`` is fastest."""
        try:
            # a negative id would count from the end; in an unsigned array a negative id becomes an unknown id
            numbers = array("I", ids.tobytes() if isinstance(ids, array) else ids).tolist()
            # for a single id, an ``itemgetter`` makes no tuple
            pieces = itemgetter(*numbers)(self._bytes) if len(ids) > 1 else [self._bytes[id] for id in numbers]
            return b"".join(pieces).decode("utf-8", "replace")
        except (OverflowError, IndexError, TypeError):  # an unknown id: the library decides
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def each(self, sequences: Sequence[array[int]]) -> list[str] | None:
        """Return the texts of ``sequences``, arrays of ``int``. None: decode each sequence separately."""
        if self._table is None:
            return None
        import pyarrow as pa

        ids = b"".join(sequences)
        ends = [*accumulate(map(len, sequences), initial=0)]
        try:
            tokens = self._table.take(pa.Array.from_buffers(pa.uint32(), ends[-1], [None, pa.py_buffer(ids)]))
        except IndexError:  # an id without a token
            return None
        if not ids or tokens.null_count:
            return None
        borders, text = memoryview(tokens.buffers()[1]).cast("i"), memoryview(tokens.buffers()[2])
        return [str(text[borders[begin] : borders[end]], "utf-8", "replace") for begin, end in pairwise(ends)]


def decoder(tokenizer: Any, samples: Iterable[list[int]], *, much: bool = False) -> ByteLevel | None:
    """Return a decoder equal to ``tokenizer`` (a ``tokenizers.Tokenizer``) with special tokens kept, or None for
    another kind of decoder. ``samples``: sequences for which both decoders are compared."""
    kind = tokenizer.decoder
    if kind is None or not _is_byte_level(json.loads(kind.__getstate__())):  # to_str() writes the vocabulary
        return None
    try:
        decode = ByteLevel(tokenizer, much=much)
    except ValueError:
        return None
    known = [(ids, tokenizer.decode(ids, skip_special_tokens=False)) for ids in samples]
    at_once = decode.each([array("i", ids) for ids, _ in known])
    same = all(decode(ids) == text for ids, text in known) and at_once in (None, [text for _, text in known])
    return decode if same else None


def of_file(written: bytes, longest: int) -> ByteLevel:
    """Return the decoder of a ``tokenizer.json`` where ``tokenizers`` is not installed. Raises ``ValueError`` for
    another kind of tokenizer and for a token of more than ``longest`` characters, and any error of a damaged file."""
    spec = json.loads(written)
    vocabulary = spec["model"]["vocab"] | {one["content"]: one["id"] for one in spec["added_tokens"]}
    if not _is_byte_level(spec["decoder"]) or max(map(len, vocabulary)) > longest:
        raise ValueError("it needs tokenizers, which is not installed")
    return ByteLevel(_Written(vocabulary))


class _Written:
    """Use a vocabulary in the role of its tokenizer; unknown ids have no text."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary

    def get_vocab(self, with_added_tokens: bool) -> Mapping[str, int]:
        return self._vocabulary

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        raise ValueError(f"no such tokens: {ids[:3]}")


def _is_byte_level(spec: Any) -> bool:
    return [part.get("type") for part in parts(spec)] == ["ByteLevel"]


def parts(spec: Any) -> list[dict[str, Any]]:
    """Return the decoders inside a decoder of ``tokenizers``, from the decoder's own description."""
    if not isinstance(spec, dict):
        return []
    if spec.get("type") == "Sequence":
        return [part for each in spec.get("decoders") or [] for part in parts(each)]
    return [spec]


def _bytes_of_letters() -> dict[int, int]:
    """Return GPT-2's alphabet for ``str.translate``: visible characters of Latin-1 stand for themselves, the following
    letters for the other bytes. Any other letter becomes, or stays, a letter that Latin-1 lacks."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    none = dict.fromkeys(others, 0xFFFF)
    return none | {byte: byte for byte in visible} | {256 + place: byte for place, byte in enumerate(others)}


def _array(tokens: Sequence[bytes | None]) -> Any:
    """Return the table as an Arrow array."""
    arrow_without_pandas()
    import pyarrow as pa

    return pa.array(tokens, pa.binary())
