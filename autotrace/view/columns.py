"""Send the trajectories of a run as columns, which the table, the scatter and the curves of the page read: many numbers
in a single body, a header in JSON followed by arrays that JavaScript reads in place.

Four bytes: length of the header (little-endian). The header, filled up with spaces so that the arrays begin at a
multiple of 8: an object whose ``arrays`` has, for each array, the type, the offset from the end of the header, and the
number of items. Then the arrays. ``static/data.js`` reads the body.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from autotrace.insight.settings import TrainerSettings
from autotrace.tables.columns import ID
from autotrace.tables.conditions import EVERY, Condition
from autotrace.tables.errors import NotFound
from autotrace.tables.hung import open_calls
from autotrace.tables.reader import Reader
from autotrace.tables.words import ANY, FLAG, JSON, NUMBER, WORDS, Word, lookup
from autotrace.trajectory.jsonable import jsonable

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = float("nan")
"""Marks a missing value among numbers."""
_TYPES = {"d": "f64", "f": "f32", "i": "i32", "I": "u32", "H": "u16", "B": "u8"}
"""Type code of ``array`` -> name in the header."""
_WIDTHS = {"f64": 8, "f32": 4, "i32": 4, "u32": 4, "u16": 2, "u8": 1}


def pack(header: Mapping[str, Any], arrays: Mapping[str, array[Any] | tuple[str, bytes]]) -> bytes:
    """Pack ``header`` and ``arrays`` (or the header's name of a type, and bytes) into a single body."""
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


MOST = 60
"""Maximum columns of the user's own names."""
MAX_TEXT = 500
"""Maximum characters of a text."""
MAX_DEPTH = 4
_NAME = re.compile(r"[A-Za-z_][\w-]{0,199}")
GROUP = Word('"group_id"', "text", "", frozenset({"group_id"}))
OPEN_IN = "open_in"
"""Column that names the call in which an open trajectory is."""
_ID = Word('"trace_id"', "text", "", frozenset({"trace_id"}))


def names(reader: Reader) -> dict[str, Any]:
    """Return the names of all columns, ``numbers`` and ``texts``, and the trainer's ``limit`` of tokens of a response,
    tools included; None: not known."""
    found: dict[str, Any] = {"numbers": [], "texts": [], "limit": _limit(reader)}
    known = [(name, word.kind in (NUMBER, FLAG)) for name, word in WORDS.items()]
    own = [each for column in JSON for each in _within(column, reader.structure(column), 0)]
    for name, is_number in [*known, *own[:MOST]]:
        found["numbers" if is_number else "texts"].append(name)
    found["texts"].append(OPEN_IN)
    return found


def _limit(reader: Reader) -> int | None:
    """Return the trainer's limit of tokens from the reports about the run, or from its files: no row is made for it."""
    if binds := reader.run.binds():
        return TrainerSettings.of(binds).response_length
    rows = reader.select(columns=ID, shown=("settings",), limit=1) if reader.run.files("trajectories") else ()
    return next((TrainerSettings.decode(row.settings).response_length for row in rows), None)


def _within(prefix: str, structure: Mapping[str, Any], depth: int) -> Iterator[tuple[str, bool]]:
    """Yield names below ``prefix``, and whether each name holds numbers: mixed kinds count as numbers."""
    for name, kind in structure.items():
        if not _NAME.fullmatch(name) or (prefix == "attributes" and name in WORDS):
            continue
        if isinstance(kind, dict):
            yield from _within(f"{prefix}.{name}", kind, depth + 1) if depth < MAX_DEPTH else ()
        elif isinstance(kind, str) and kind != "NULL":
            yield f"{prefix}.{name}", kind != "VARCHAR"


def packed(reader: Reader, chosen: Sequence[str], condition: Condition = EVERY) -> bytes:
    """Pack the columns ``chosen`` of the trajectories that satisfy ``condition``, by start, with ids of 16 bytes each
    as ``trace_id``. Raises ``NotFound`` for an unknown name."""
    known = names(reader) if any("." in name for name in chosen) else {"numbers": []}
    columns = [name for name in dict.fromkeys(chosen) if name not in ("trace_id", OPEN_IN)]
    words = {name: _word(name, name in known["numbers"]) for name in columns}
    table = reader.computed({"trace_id": _ID, **words}, condition)
    arrays: dict[str, Any] = {"trace_id": ("u8", bytes.fromhex("".join(table["trace_id"].to_pylist())))}
    texts: dict[str, list[str]] = {}
    if OPEN_IN in chosen:
        inside = open_calls(reader)
        places = {trace_id: place for place, trace_id in enumerate(inside)}
        arrays[OPEN_IN] = array("i", [places.get(trace_id, -1) for trace_id in table["trace_id"].to_pylist()])
        texts[OPEN_IN] = [one.name for one in inside.values()]
    for name in words:
        column = table[name].combine_chunks()
        if str(column.type) == "double":
            arrays[name] = ("f64", _data(column.fill_null(MISSING)))
        else:
            arrays[name], texts[name] = _texts(column)
    return pack({"count": table.num_rows, "words": texts}, arrays)


def _word(name: str, is_number: bool) -> Word:
    word = GROUP if name == "group" else lookup(name)
    if word is None:
        raise NotFound(f"there is no column {name}")
    if word.kind != ANY:
        return word
    if not is_number:
        return Word(word.text, "text", "", word.columns)
    both = f"coalesce({word.as_kind(NUMBER)}, CAST({word.as_kind(FLAG)} AS DOUBLE))"
    return Word(both, NUMBER, "", word.columns)


def _data(column: pa.Array) -> bytes:
    """Return the column's numbers as stored in memory; Arrow's own conversion needs numpy."""
    data, width = column.buffers()[1], column.type.bit_width // 8
    begin = column.offset * width
    return b"" if data is None else bytes(memoryview(data)[begin : begin + len(column) * width])


def _texts(column: pa.StringArray) -> tuple[tuple[str, bytes], list[str]]:
    """Return the index of each row's text, -1 for a missing text, and the list of different texts."""
    import pyarrow.compute as pc

    encoded = pc.utf8_slice_codeunits(column, 0, MAX_TEXT).dictionary_encode()
    return ("i32", _data(encoded.indices.fill_null(-1))), encoded.dictionary.to_pylist()
