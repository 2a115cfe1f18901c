"""Rows as Arrow tables. Never in a traced process: it imports pyarrow."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from autotrace.data.columns import Column, Table
from autotrace.data.rollout import Rollout
from autotrace.data.schema import OF_TRAJECTORIES, rows
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Trajectory

_SCALARS: dict[str, pa.DataType] = {
    "string": pa.string(), "json": pa.string(), "bool": pa.bool_(), "int64": pa.int64(), "int32": pa.int32(),
    "int8": pa.int8(), "float64": pa.float64(), "float32": pa.float32(),
}  # fmt: skip
_CODES = {"int32": "i", "int8": "b", "float32": "f"}
"""Of lists that are long: ``struct`` packs them by that code in a sixth of the time of pyarrow's own way."""
_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError, struct.error)


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a column's ``type``."""
    if name.startswith("list<"):
        return pa.list_(_SCALARS[name[5:-1]])
    return _SCALARS[name]


def schema(table: Table, columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of ``table``, or of ``columns`` of it in their order. Raises ``KeyError`` for another name."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in chosen(table, columns)])


def chosen(table: Table, columns: Sequence[str] | None) -> list[Column]:
    """Columns by name, all of them for None. Raises ``KeyError`` for another name."""
    if columns is None:
        return list(table.columns)
    by_name = {column.name: column for column in table.columns}
    return [by_name[name] for name in columns]


def tables(trajectories: Iterable[Trajectory]) -> dict[str, pa.Table]:
    """The tables of ``trajectories``, by name."""
    rollouts = [Rollout(trajectory) for trajectory in trajectories]
    return {name: table_of(table, rollouts) for name, table in OF_TRAJECTORIES.items()}


def table_of(table: Table, rollouts: list[Rollout], columns: Sequence[str] | None = None) -> pa.Table:
    """``table`` (or ``columns`` of it) with the rows of ``rollouts``."""
    asked = rows(table, rollouts)
    return from_rows(chosen(table, columns), asked)


def from_rows(columns: Sequence[Column], asked: Sequence[Any]) -> pa.Table:
    """A table of ``columns``, one row for each of ``asked``."""
    arrays = [_array(column, [column.of(row) for row in asked]) for column in columns]
    fields = [pa.field(column.name, arrow_type(column.type)) for column in columns]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _array(column: Column, values: list[Any]) -> pa.Array:
    kind = arrow_type(column.type)
    code = _CODES.get(column.type.removeprefix("list<").removesuffix(">")) if column.type.startswith("list<") else None
    try:
        return pa.array(values, kind) if code is None else _lists(kind, code, values)
    except _MISFITS:  # a host program's own class, half a character: one odd value must not keep its trajectory out
        return pa.array([_each(column.type, value) for value in values], kind)


def _lists(kind: pa.DataType, code: str, values: list[Any]) -> pa.Array:
    """Lists of numbers, None for a list that is not there."""
    offsets, end, packed = array("i", [0]), 0, []
    for value in values:
        if value:
            end += len(value)
            packed.append(bytes(value) if code == "b" else struct.pack(f"{len(value)}{code}", *value))
        offsets.append(end)
    items = b"".join(packed)
    missing = pa.py_buffer(_bitmap([value is not None for value in values])) if None in values else None
    child = pa.Array.from_buffers(kind.value_type, end, [None, pa.py_buffer(items)])
    return pa.Array.from_buffers(kind, len(values), [missing, pa.py_buffer(offsets)], children=[child])


def _bitmap(present: list[bool]) -> bytes:
    bits = sum(1 << place for place, there in enumerate(present) if there)
    return bits.to_bytes((len(present) + 7) // 8, "little")


def _each(kind: str, value: Any) -> Any:
    """``value`` if it can stand in a column of ``kind``, else as it can, else None."""
    convert: Callable[[Any], Any] = jsonable
    try:
        plain = convert(value)
        return pa.array([plain], arrow_type(kind))[0].as_py()
    except _MISFITS:
        return None
