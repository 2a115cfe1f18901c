"""Token ids as bytes, four each: what is compared and searched."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from autotrace.trajectory.model import packed_ids

WIDTH = 4
PROBE = 8
"""Tokens by which a piece is recognised."""
TRIMMED = 2
"""Tokens at the end of an answer that a chat template may write otherwise: the end of the turn."""
EDIT = 16
"""Tokens of the longest difference that is a detail (a time of day, a counter) and not another prompt."""


def packed(ids: Sequence[int] | None) -> bytes | None:
    """Token ids, four bytes each; None for other values."""
    return None if ids is None else packed_ids(ids)


def unpacked(ids: bytes) -> list[int]:
    """The inverse of ``packed``."""
    return array("i", ids).tolist()


def find(ids: bytes, part: bytes, start: int = 0) -> int:
    """The index of the token at which ``part`` begins in ``ids``, at ``start`` or behind; -1: nowhere."""
    at = ids.find(part, start * WIDTH)
    while at >= 0 and at % WIDTH:
        at = ids.find(part, at + 1)
    return at // WIDTH if at >= 0 else -1


def tokens(ids: bytes) -> int:
    """How many there are."""
    return len(ids) // WIDTH


def piece(ids: bytes, begin: int, end: int | None = None) -> bytes:
    """Tokens ``begin`` to ``end``."""
    return ids[begin * WIDTH : None if end is None else end * WIDTH]


def common(one: bytes, other: bytes) -> int:
    """How many tokens both begin with."""
    low, high = 0, min(len(one), len(other)) // WIDTH
    if one[: high * WIDTH] == other[: high * WIDTH]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * WIDTH : middle * WIDTH] == other[low * WIDTH : middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low
