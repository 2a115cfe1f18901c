"""Convert rows to Arrow tables and Parquet files: compressed row groups, each column with the settings that suit the
column. Imports pyarrow, so a traced process never imports this module."""

from __future__ import annotations

import functools
import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from autotrace.run import files
from autotrace.tables.columns import Column
from autotrace.tables.schema import TABLES, VERSION
from autotrace.trajectory.jsonable import jsonable

_SCALARS: dict[str, pa.DataType] = {
    "string": pa.string(), "json": pa.string(), "bool": pa.bool_(), "int64": pa.int64(), "int32": pa.int32(),
    "int8": pa.int8(), "float64": pa.float64(), "float32": pa.float32(),
}  # fmt: skip
_CODES = {"int32": "i", "int8": "b", "float32": "f"}
"""Element type of a long list -> the code with which ``struct`` packs the list, six times as fast as pyarrow."""
_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError, struct.error)


ROWS = 512
"""Rows that are converted at once."""


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type for the ``type`` of a column."""
    if name.startswith("list<"):
        return pa.list_(_SCALARS[name[5:-1]])
    return _SCALARS[name]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of a table with ``columns``."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def from_rows(columns: Sequence[Column], asked: Sequence[Any]) -> pa.Table:
    """Build a table of ``columns`` with one row for each item of ``asked``."""
    return pa.Table.from_arrays([_array(column, asked) for column in columns], schema=arrow_schema(columns))


def in_parts(columns: Sequence[Column], asked: Sequence[Any]) -> Iterator[pa.Table]:
    """Yield tables as of ``from_rows``, with few rows each: whole prompts of all turns may take gigabytes at once."""
    return (from_rows(columns, asked[at : at + ROWS]) for at in range(0, len(asked), ROWS))


def _array(column: Column, asked: Sequence[Any]) -> pa.Array:
    kind = arrow_type(column.type)
    code = _CODES.get(column.type.removeprefix("list<").removesuffix(">")) if column.type.startswith("list<") else None
    try:
        return pa.array([*map(column.of, asked)], kind) if code is None else _lists(kind, code, column, asked)
    except _MISFITS:  # a class of the host, a lone surrogate: an odd value must not keep the trajectory out
        return pa.array([_each(column.type, column.of(row)) for row in asked], kind)


def _lists(kind: pa.DataType, code: str, column: Column, asked: Sequence[Any]) -> pa.Array:
    """Build a column of lists of numbers; None where a row has no list."""
    width, offsets, end = struct.calcsize(code), array("i", [0]), 0
    packed: list[bytes] = []
    present: list[bool] = []
    for row in asked:
        numbers = None if column.packed is None else column.packed(row)
        if numbers is None and (value := column.of(row)) is not None:
            numbers = _numbers(code, value)
        if numbers:
            packed.append(numbers)
            end += len(numbers) // width
        present.append(numbers is not None)
        offsets.append(end)
    values = pa.Array.from_buffers(kind.value_type, end, [None, pa.py_buffer(b"".join(packed))])
    valid = pa.array(present, pa.bool_()).buffers()[1]  # a mask of `ListArray.from_arrays` imports pyarrow.compute
    return pa.Array.from_buffers(kind, len(present), [valid, pa.py_buffer(offsets)], children=[values])


def _numbers(code: str, value: Any) -> bytes:
    if not value:
        return b""
    return bytes(value) if code == "b" else struct.pack(f"{len(value)}{code}", *value)


def _each(kind: str, value: Any) -> Any:
    """Convert ``value`` to a column value of ``kind``; None if ``value`` cannot be converted."""
    try:
        return pa.array([jsonable(value)], arrow_type(kind))[0].as_py()
    except _MISFITS:
        return None


GROUP_BYTES = 8 << 20
"""Approximate bytes of a row group before compression."""
UNIQUE = (
    "span_id", "parent_id", "prompt_base", "mask_of", "text_base", "prompt_of", "request_id", "start_ns", "end_ns",
    "duration_s",
)  # fmt: skip
TOKENS = ("new_prompt_ids", "prompt_ids", "response_ids")
FLOATS = ("rollout_log_probs", "old_log_probs", "ref_log_prob", "entropy", "rollout_is_weights")
"""Lists in which every number is different. BYTE_STREAM_SPLIT sorts the bytes by position: the file is a tenth smaller
and quicker to write and to read."""
TEXTS = (
    "prompt_text", "response_text", "whole_prompt_text", "response_parts", "messages", "inputs", "output", "attributes",
    "error_stack", "value", "profile", "notes",
)  # fmt: skip
"""Columns whose values rarely repeat: a dictionary costs time and saves nothing. Long texts get no minimum and maximum
either."""
_COMPRESSED = (pa.types.is_string, pa.types.is_list)
"""Types that are compressed, in addition to the columns in ``UNIQUE``. Other numbers take few bytes, and each
compressed column allocates memory that must be cleared, which costs more than the compression itself."""


def write_file(part: Path, name: str, run_id: str, tables: Iterable[pa.Table]) -> int:
    """Write the rows of ``tables``, perhaps of an older release, to a file of the table ``name``; return the number of
    rows. Raises ``OSError`` and ``pa.ArrowException``."""
    schema, settings = _layout(name)
    schema = schema.with_metadata({"autotrace.schema": str(VERSION), "autotrace.run": run_id})
    descriptor = files.overwrite(part)
    try:
        # not Python's file object: each of many writes would wait for the interpreter's lock. By descriptor: pyarrow
        # takes names in UTF-8 only
        file = pa.OSFile(f"/dev/fd/{descriptor}", "wb")
    finally:
        os.close(descriptor)
    rows, waiting, size = 0, list[pa.Table](), 0
    with file, pq.ParquetWriter(file, schema, **settings) as writer:
        for table in tables:
            waiting.append(_conformed(table, schema))
            rows += table.num_rows
            size += table.nbytes
            if size >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(waiting))
                waiting, size = [], 0
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
    return rows


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert ``table`` to the columns of ``schema``; a missing column becomes null."""
    if table.schema.equals(schema):
        return table.replace_schema_metadata(schema.metadata)
    names = set(table.column_names)
    columns = [
        table[column.name].cast(column.type) if column.name in names else pa.nulls(len(table), column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


@functools.cache
def _layout(name: str) -> tuple[pa.Schema, dict[str, Any]]:
    """Return the schema of a table and the settings with which the columns are written."""
    schema = arrow_schema(TABLES[name].columns)
    plain = {*UNIQUE, *TOKENS, *FLOATS, *TEXTS}
    return schema, {
        "compression": {_leaf(column): "zstd" if _is_compressed(column) else "none" for column in schema},
        "compression_level": {_leaf(column): 1 for column in schema if _is_compressed(column)},
        "use_dictionary": [_leaf(column) for column in schema if column.name not in plain],
        "use_byte_stream_split": [_leaf(column) for column in schema if column.name in FLOATS],
        "write_statistics": [
            column.name for column in schema if _leaf(column) == column.name and column.name not in TEXTS
        ],
    }


def _is_compressed(column: pa.Field) -> bool:
    return column.name in UNIQUE or any(kind(column.type) for kind in _COMPRESSED)


def _leaf(column: pa.Field) -> str:
    return f"{column.name}.list.element" if pa.types.is_list(column.type) else str(column.name)
