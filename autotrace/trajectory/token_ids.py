"""Compare and search token ids as bytes, four each, and decide whether a prompt is the previous conversation with
other tokens: retokenised, edited, shortened."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

WIDTH = 4
PROBE = 8
"""Number of tokens by which a piece is recognised."""
TRIMMED = 2
"""Number of tokens at the end of an answer that a chat template may write differently: the end of the turn."""
EDIT = 16
"""Number of tokens of the longest difference that is a detail (a time of day, a counter) and not another prompt."""


def packed_ids(ids: Sequence[int] | None) -> bytes | None:
    """Pack token ids, four bytes each; return None for anything else."""
    try:
        return None if ids is None else array("i", ids).tobytes()
    except (TypeError, OverflowError):
        return None


def unpacked(ids: bytes) -> list[int]:
    """Unpack the bytes of ``packed_ids``."""
    return array("i", ids).tolist()


def find(ids: bytes, part: bytes, start: int = 0) -> int:
    """Return the index of the token at which ``part`` begins in ``ids``, at or after ``start``; -1: nowhere."""
    at = ids.find(part, start * WIDTH)
    while at >= 0 and at % WIDTH:
        at = ids.find(part, at + 1)
    return at // WIDTH if at >= 0 else -1


def tokens(ids: bytes) -> int:
    """Return the number of tokens."""
    return len(ids) // WIDTH


def piece(ids: bytes, begin: int, end: int | None = None) -> bytes:
    """Return tokens ``begin`` to ``end``."""
    return ids[begin * WIDTH : None if end is None else end * WIDTH]


def common(one: bytes, other: bytes) -> int:
    """Return the number of tokens at the beginning that both share."""
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


def kept_of(base: bytes, prompt: bytes, asked: int, first: int) -> int | None:
    """Return how many tokens ``prompt`` keeps of ``base``, the previous prompt of ``asked`` tokens plus its answer, if
    ``prompt`` is the same conversation; None: another conversation. ``first``: tokens of the trajectory's first
    prompt."""
    kept, length = common(base, prompt), tokens(base)
    if kept >= max(asked, length - TRIMMED):
        return kept
    if kept == tokens(prompt) or (kept < asked and not _is_grown(base, prompt, kept, asked, first)):
        return None
    return kept


def _is_grown(base: bytes, prompt: bytes, kept: int, asked: int, first: int) -> bool:
    """Return whether a prompt that differs early is the same conversation: the prompt has grown and goes on with pieces
    of ``base``, or was edited. Otherwise the agent began anew, or another agent speaks."""
    if tokens(prompt) < asked or kept * 2 < min(asked, tokens(base)):
        return _is_edited(base, prompt, kept, asked, first)
    probes = range(max(kept + PROBE, asked - 4 * PROBE), tokens(base) - PROBE, PROBE)
    return any(find(prompt, piece(base, at, at + PROBE), kept) >= 0 for at in probes)


def _is_edited(base: bytes, prompt: bytes, kept: int, asked: int, first: int) -> bool:
    """Return whether a detail was changed and the rest is similar; or the whole first prompt and the last answer are
    present, and the text between was left out or shortened. (After a rewrite, pieces may differ in single tokens.)"""
    end = tokens(base) - TRIMMED
    rest, answered = found(base, prompt, range(kept + EDIT, end - PROBE, PROBE), kept), range(asked, end - PROBE, PROBE)
    is_near = rest and rest[0][0] <= kept + EDIT + PROBE and abs(rest[0][1] - rest[0][0]) <= EDIT
    if is_near and len(rest) * PROBE * 2 >= end - kept - EDIT:
        return True
    same = len(found(base, prompt, answered, kept))
    return kept >= first > 0 and same >= min(2, len(answered)) and same * 3 >= len(answered) > 0


def found(base: bytes, prompt: bytes, places: range, behind: int) -> list[tuple[int, int]]:
    """Return the pieces at ``places`` that the prompt has, in order: position in ``base``, position in ``prompt``."""
    there = []
    for at in places:
        where = find(prompt, piece(base, at, at + PROBE), behind)
        if where >= 0:
            there.append((at, where))
            behind = where
    return there
