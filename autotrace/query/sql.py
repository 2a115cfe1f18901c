"""SQL over the tables, in DuckDB: reads nothing but them, and writes nothing.

The question is planned over empty tables first. So a wrong one is answered at once, and only those columns of those
tables are read that it needs: ``SELECT step, avg(reward) FROM trajectories`` opens no segment.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from autotrace.query.errors import QueryError, missing, unknown
from autotrace.query.source import Progress, Source, need_arrow
from autotrace.tables.schema import TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

CHANGING = ("INSERT", "DELETE", "UPDATE", "MERGE_INTO", "CREATE", "COPY")
"""Words in names of a plan's nodes."""
GUESSING = {"filter_pushdown", "statistics_propagation", "empty_result_pullup"}
"""Optimizers that would leave out of the plan what an empty table does not need."""
KEY = "run_id"
"""A column of every table: what is read where only rows are counted."""
TRIES = 3
"""While a run goes on, a Parquet file may be replaced between the look at the folder and the reading."""


def answer(sources: Sequence[Source], query: str, progress: Progress | None = None) -> pa.Table:
    """The answer to ``query`` over all ``sources``. Raises ``QueryError``; ``ModuleNotFoundError`` with the remedy."""
    try:
        import duckdb
    except ImportError as error:  # its extra installs Arrow, too
        raise missing("duckdb", "sql") from error
    need_arrow()
    with contextlib.closing(_connection()) as planner:
        _check(planner, query)
        needs = _needs(planner, query)
        if not needs:  # about no row: DESCRIBE, EXPLAIN, SELECT 1
            return _result(planner, query)
    for attempt in range(TRIES):
        with contextlib.closing(_connection()) as connection:
            try:
                _provide(connection, sources, needs, progress)
                return _result(connection, query)
            except (duckdb.IOException, FileNotFoundError) as error:
                if attempt == TRIES - 1:
                    raise QueryError(f"the Parquet files of the run cannot be read: {_first_line(error)}") from error
            except duckdb.Error as error:
                raise _explained(error) from error
    raise AssertionError


def _result(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """The answer, its columns with names of their own; sums of integers as 64-bit integers, which DuckDB gives 128
    bits."""
    import pyarrow as pa

    table = connection.sql(query).to_arrow_table()
    table = table.rename_columns(_distinct(table.column_names))
    for place, column in enumerate(table.schema):
        if pa.types.is_decimal(column.type) and column.type.scale == 0:
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(place, column.name, table[column.name].cast(pa.int64()))
    return table


def _distinct(names: Sequence[str]) -> list[str]:
    """``names``, numbered where one stands twice (``SELECT * FROM trajectories JOIN turns ...``)."""
    found: list[str] = []
    for name in names:
        own, number = name, 0
        while own in found or (number and own in names):
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found


def _connection() -> duckdb.DuckDBPyConnection:
    """A database in memory that opens no file and looks at no variable of Python's."""
    import duckdb

    settings: dict[str, Any] = {"enable_external_access": "false", "python_enable_replacements": "false"}
    return duckdb.connect(":memory:", config=settings)


def _check(planner: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise ``QueryError`` unless ``query`` is one statement that reads."""
    import duckdb

    try:
        statements = planner.extract_statements(query)
    except duckdb.Error as error:
        raise _explained(error) from error
    if len(statements) != 1:
        count = len(statements) or "no"
        raise QueryError(f"this is {count} statements; ask one SELECT at a time")
    kind = statements[0].type.name
    if kind not in ("SELECT", "EXPLAIN"):
        raise _read_only(kind)


def _read_only(kind: str) -> QueryError:
    return QueryError(f"{kind} is not possible: the tables of a run are only read; write a SELECT")


def _needs(planner: duckdb.DuckDBPyConnection, query: str) -> dict[str, list[str]]:
    """Table -> columns that ``query`` reads. Raises ``QueryError`` for one that cannot be planned."""
    import duckdb

    from autotrace.tables import arrow

    for name, table in TABLES.items():
        planner.register("empty", arrow.schema(table).empty_table())
        planner.execute(f"CREATE TABLE {name} AS SELECT * FROM empty")
        planner.unregister("empty")
    present = {name for (name,) in planner.execute("SELECT name FROM duckdb_optimizers()").fetchall()}
    planner.execute(f"SET disabled_optimizers = '{','.join(sorted(present & GUESSING))}'")
    try:
        plan = planner.execute(query if _explains(query) else f"EXPLAIN (FORMAT JSON) {query}").fetchall()
    except duckdb.Error as error:
        raise _explained(error) from error
    try:
        return _scanned(list(_all(json.loads(plan[0][1]))))
    except (KeyError, TypeError, json.JSONDecodeError, IndexError):  # a plan of another form: everything that is named
        named = [table for table in TABLES.values() if re.search(rf"\b{table.name}\b", query, re.I)]
        return {table.name: [column.name for column in table.columns] for table in named}


def _scanned(nodes: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Table -> columns that the nodes of a plan read. Raises ``QueryError`` for one that changes something."""
    changing = next((word for node in nodes for word in CHANGING if word in node["name"]), None)
    if changing is not None:
        raise _read_only(changing)
    needs: dict[str, set[str]] = {}
    for node in nodes:
        if "SCAN" in node["name"] and "Table" in node["extra_info"]:
            columns = node["extra_info"].get("Projections", [])
            name = node["extra_info"]["Table"].rpartition(".")[2]
            needs.setdefault(name, {KEY}).update([columns] if isinstance(columns, str) else columns)
    return {
        name: [column.name for column in TABLES[name].columns if column.name in columns]
        for name, columns in needs.items()
    }


def _explains(query: str) -> bool:
    return query.lstrip().lower().startswith("explain")


def _all(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from _all(node["children"])


def _provide(
    connection: duckdb.DuckDBPyConnection, sources: Sequence[Source], needs: dict[str, list[str]],
    progress: Progress | None,
) -> None:  # fmt: skip
    """Make the tables that are needed, and the rest empty."""
    import pyarrow as pa

    from autotrace.tables import arrow

    for name, table in TABLES.items():
        columns = needs.get(name)
        made = [arrow.schema(table, columns).empty_table()]
        for source in sources if columns else []:
            made.append(source.read(name, columns, None, progress))
        connection.register(f"{name}_made", pa.concat_tables(made))
        listed = ", ".join(f'"{column}"' for column in columns) if columns else "*"
        connection.execute(f"CREATE VIEW {name} AS SELECT {listed} FROM {name}_made")


def _explained(error: Exception) -> QueryError:
    """DuckDB's message, in one sentence and in our words where it is about our tables."""
    text = str(error)
    column = re.search(
        r'(?:column|Column) (?:with name |named )?"?(?:\w+\.)?(\w+)"? (?:not found|does not exist)', text
    )
    if column is None:
        column = re.search(r'does not have a column named "(\w+)"', text)
    if column is not None:
        return unknown("column", column[1], sorted({each.name for one in TABLES.values() for each in one.columns}))
    table = re.search(r"Table with name \"?(\S+?)\"? does not exist", text)
    if table is not None:
        return unknown("table", table[1], TABLES)
    if "disabled by configuration" in text or "Permission Error" in text:
        return QueryError("files are not read here, only the tables of the run; ask DuckDB itself (docs/data.md)")
    return QueryError(_first_line(error))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
