"""Many numbers for the page in one body: a header in JSON, then arrays that JavaScript reads in place.

Four bytes: length of the header (little-endian). The header, filled up with spaces so that what follows begins at a
multiple of 8: an object whose ``arrays`` has, for each array, its type, its offset from the end of the header, and how
many items it has. Then the arrays. ``static/data.js`` reads it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from autotrace.trajectory.jsonable import jsonable

MISSING = float("nan")
"""Stands for None among numbers."""
_TYPES = {"d": "f64", "f": "f32", "i": "i32", "I": "u32", "H": "u16", "B": "u8"}
"""Type code of ``array`` -> what the header calls it."""
_WIDTHS = {"f64": 8, "f32": 4, "i32": 4, "u32": 4, "u16": 2, "u8": 1}


def pack(header: Mapping[str, Any], arrays: Mapping[str, array[Any] | tuple[str, bytes]]) -> bytes:
    """``header`` and ``arrays`` (or what the header calls one, and its bytes) as one body."""
    described: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    at = 0
    for name, values in arrays.items():
        kind, body = (_TYPES[values.typecode], values.tobytes()) if isinstance(values, array) else values
        described[name] = [kind, at, len(body) // _WIDTHS[kind]]
        padding = -len(body) % 8
        parts += [body, bytes(padding)]
        at += len(body) + padding
    head = msgspec.json.encode(jsonable({**header, "arrays": described}))
    head += b" " * (-(len(head) + 4) % 8)
    return b"".join([struct.pack("<I", len(head)), head, *parts])
