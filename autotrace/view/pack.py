"""Many numbers for the page in one body: a header in JSON, then arrays that JavaScript reads in place.

Four bytes: length of the header (little-endian). The header, filled up with spaces so that what follows begins at a
multiple of 8: an object whose ``arrays`` has, for each array, its type, its offset from the end of the header, and how
many items it has. Then the arrays. ``static/pack.js`` reads it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from autotrace.trajectory.jsonable import jsonable

MISSING = float("nan")
"""Stands for None among numbers."""
_TYPES = {"d": "f64", "f": "f32", "i": "i32", "I": "u32", "H": "u16", "B": "u8"}
"""Type code of ``array`` -> what the header calls it."""


def pack(header: Mapping[str, Any], arrays: Mapping[str, array[Any]]) -> bytes:
    """``header`` and ``arrays`` as one body."""
    described: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    at = 0
    for name, values in arrays.items():
        body = values.tobytes()
        described[name] = [_TYPES[values.typecode], at, len(values)]
        padding = -len(body) % 8
        parts += [body, bytes(padding)]
        at += len(body) + padding
    head = msgspec.json.encode(jsonable({**header, "arrays": described}))
    head += b" " * (-(len(head) + 4) % 8)
    return b"".join([struct.pack("<I", len(head)), head, *parts])


class Numbers:
    """A column of numbers, and of true and false as 1 and 0."""

    def __init__(self) -> None:
        self.values = array("d")

    def extend(self, column: Sequence[float | None]) -> None:
        """Add values."""
        if None in column:
            column = [MISSING if value is None else value for value in column]
        self.values.extend(column)  # type: ignore[arg-type]  # there is no None in it


class Words:
    """A column of texts: each different one once, and which of them each row has; -1: none."""

    def __init__(self, most: int) -> None:
        self.words: dict[str, int] = {}
        self.values = array("i")
        self._most = most
        self._codes: dict[str | None, int] = {None: -1}

    def extend(self, column: Sequence[str | None]) -> None:
        """Add values; only their first ``most`` characters count."""
        for word in dict.fromkeys(column):
            if word is not None and word not in self._codes:
                self._codes[word] = self.words.setdefault(word[: self._most], len(self.words))
        self.values.extend(map(self._codes.__getitem__, column))
