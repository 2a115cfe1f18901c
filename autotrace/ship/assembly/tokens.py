"""Token lists rebuilt from what was written: each list is the beginning of an earlier one plus what is new.

The counterpart of ``record.tokens``. Sequences are numbered per trace and writing process, so there is one
``TokenSequences`` for each of these pairs, fed in the order of writing.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass

from autotrace.spool.records import Tokens

_WIDTH = 4


def unpacked(data: bytes) -> list[int]:
    """Little-endian int32 as a list; trailing bytes that do not fill one are cut off."""
    return _ints(data).tolist()


def floats(data: bytes) -> list[float]:
    """Little-endian float32 as a list."""
    numbers = array("f")
    numbers.frombytes(data[: len(data) - len(data) % _WIDTH])
    return numbers.tolist()


def digest(data: bytes) -> bytes:
    """The checksum of a token list: the first 8 bytes of blake2b with a digest of 16."""
    return hashlib.blake2b(data, digest_size=16).digest()[:8]


def digest_of(ids: list[int]) -> str:
    """The same of a list of token ids, as 16 hex digits."""
    return digest(array("i", ids).tobytes()).hex()


def withheld(tokens: Tokens) -> bool:
    """True where only the length was recorded: the content is in another span, or was not to be recorded."""
    return tokens.base < 0 and not tokens.new and tokens.total > 0


def _ints(data: bytes) -> array[int]:
    numbers = array("i")
    numbers.frombytes(data[: len(data) - len(data) % _WIDTH])
    return numbers


@dataclass
class _Sequence:
    ids: array[int]
    span: int


@dataclass
class Prompt:
    """A rebuilt prompt: ``ids`` is None when that fails; ``problem`` then says why, unless it was withheld."""

    ids: list[int] | None
    total: int
    base: int | None = None
    """The span whose tokens it begins with."""
    keep: int = 0
    problem: str | None = None


class TokenSequences:
    """The sequences that one process wrote for one trace."""

    def __init__(self) -> None:
        self._sequences: dict[int, _Sequence] = {}

    def prompt(self, span: int, tokens: Tokens) -> Prompt:
        """The prompt of ``span``."""
        full, problem = self._full(span, tokens)
        if full is None:
            return Prompt(None, tokens.total, problem=problem)
        base = self._sequences.get(tokens.base)
        return Prompt(full.tolist(), tokens.total, base.span if base else None, tokens.keep if base else 0)

    def response(self, span: int, tokens: Tokens, prompt_total: int) -> tuple[list[int] | None, str | None]:
        """The response of ``span``, or None and the reason why it cannot be rebuilt."""
        full, problem = self._full(span, tokens)
        return (None if full is None else full[prompt_total:].tolist()), problem

    def _full(self, span: int, tokens: Tokens) -> tuple[array[int] | None, str | None]:
        if withheld(tokens):
            return None, None
        ids = array("i")
        if tokens.base >= 0:
            base = self._sequences.get(tokens.base)
            if base is None or not 0 <= tokens.keep <= len(base.ids):
                return None, "token ids are missing: the turn they continue was not recorded"
            ids.extend(base.ids[: tokens.keep])
        ids.extend(_ints(tokens.new))
        if len(ids) != tokens.total or (tokens.digest and digest(ids.tobytes()) != tokens.digest):
            return None, "token ids are missing: the rebuilt list does not match its checksum"
        if tokens.sequence >= 0:
            self._sequences[tokens.sequence] = _Sequence(ids, span)
        return ids, None
