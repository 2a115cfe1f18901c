"""Run SQL over the tables as people write SQL, in DuckDB: a single SELECT at a time.

The question is first planned over empty tables. A wrong question is therefore answered at once, and rows outside the
files are read only for the columns and tables that the question needs: ``SELECT step, avg(reward) FROM trajectories``
opens no segment.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from autotrace.tables.connection import connect, first_line
from autotrace.tables.database import duck_type
from autotrace.tables.errors import QueryError, unknown
from autotrace.tables.schema import TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")
_NUMBER = re.compile(r"\w*INT\b|FLOAT|DOUBLE|DECIMAL")
CHANGING = ("INSERT", "DELETE", "UPDATE", "MERGE_INTO", "CREATE", "COPY")
PAST = ("JSON_EXECUTE_SERIALIZED_SQL", "DUCKDB_TABLE_SAMPLE", "PRAGMA_STORAGE_INFO")
"""Words in names of plan nodes: nodes that change data; nodes that read tables without a scan, here the empty
tables."""
GUESSING = ("filter_pushdown", "statistics_propagation", "empty_result_pullup")
"""Optimizers that would remove parts of the plan because the tables are empty."""
AT_ONCE = 1_000
"""Rows of an answer to fetch at once."""
KEY = "run_id"
"""Column of every table, read where only rows are counted."""


class QueryResult:
    """Hold the answer to a question."""

    def __init__(self, database: duckdb.DuckDBPyConnection, query: str) -> None:
        """Raises ``QueryError``."""
        self._relation = asked(lambda: database.sql(query))
        if self._relation is None:
            raise QueryError("there is nothing to answer: write a SELECT")
        self._database, self._query = database, query
        self.names = _distinct(self._relation.columns)
        self.numeric = [bool(_NUMBER.match(str(kind))) for kind in self._relation.types]
        """Whether each column holds numbers."""

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return [*self.each()]

    def each(self) -> Iterator[tuple[Any, ...]]:
        """Yield all rows, few of them in memory at once."""
        cursor = asked(lambda: self._database.execute(self._query))
        while some := asked(lambda: cursor.fetchmany(AT_ONCE)):
            yield from some

    def arrow(self) -> pa.Table:
        """Return all rows as Arrow; sums of integers, which DuckDB gives 128 bits, as 64-bit integers."""
        import pyarrow as pa

        table = asked(self._relation.to_arrow_table).rename_columns(self.names)
        for place, column in enumerate(table.schema):
            if pa.types.is_decimal(column.type) and column.type.scale == 0:
                with contextlib.suppress(pa.ArrowInvalid):
                    table = table.set_column(place, column.name, table[column.name].cast(pa.int64()))
        return table


def answer(query: str, provide: Callable[[Mapping[str, Sequence[str]]], duckdb.DuckDBPyConnection]) -> QueryResult:
    """Run ``query`` and return the answer; ``provide`` returns a database of tables with the needed columns. Raises
    ``QueryError``."""
    planner = _planner()
    needs = _needs(planner, query)
    return QueryResult(provide(needs) if needs else planner, query)  # no rows needed: DESCRIBE, SELECT 1


def asked(question: Callable[[], T]) -> T:
    """Return the answer to ``question``. Raises ``QueryError`` for errors of DuckDB."""
    import duckdb

    try:
        return question()
    except duckdb.InterruptException:
        raise
    except (duckdb.IOException, duckdb.HTTPException) as error:
        raise QueryError(f"a table of the run cannot be read: {first_line(error)}") from error
    except duckdb.Error as error:
        raise _explained(error) from error


def _needs(planner: duckdb.DuckDBPyConnection, query: str) -> dict[str, list[str]]:
    """Return table -> columns that ``query`` reads. Raises ``QueryError`` unless ``query`` is a single SELECT that
    DuckDB can plan."""
    _check(planner, query)
    plan = asked(lambda: planner.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall())
    try:
        return _scanned(list(_all(json.loads(plan[0][1]))))
    except (KeyError, TypeError, json.JSONDecodeError, IndexError):  # a plan of another form: take every named table
        named = [table for table in TABLES.values() if re.search(rf"\b{table.name}\b", query, re.I)]
        return {table.name: [column.name for column in table.columns] for table in named}


def _distinct(names: Sequence[str]) -> list[str]:
    """Return ``names``, numbered where a name occurs twice (``SELECT * FROM trajectories JOIN turns ...``)."""
    found: list[str] = []
    for name in names:
        own, number = name, 0
        while own in found or (number and own in names):
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found


def _planner() -> duckdb.DuckDBPyConnection:
    """Return a database with empty tables."""
    planner = connect((), 0, disabled_optimizers=",".join(GUESSING), threads="1")
    for name, table in TABLES.items():
        columns = ", ".join(f'"{column.name}" {duck_type(column.type)}' for column in table.columns)
        planner.execute(f"CREATE TABLE {name} ({columns})")
    return planner


def _check(planner: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise ``QueryError`` unless ``query`` is a single SELECT. Other statements wrote files despite restricted
    access."""
    statements = asked(lambda: planner.extract_statements(query))
    if len(statements) != 1:
        count = len(statements) or "no"
        raise QueryError(f"this is {count} statements; ask one SELECT at a time")
    kind = statements[0].type.name
    if kind == "MULTI":
        raise QueryError("PIVOT needs the values of its columns, for example ON step IN (1, 2)")
    if kind != "SELECT":
        raise _read_only(kind)


def _read_only(kind: str) -> QueryError:
    return QueryError(f"{kind} is not possible: the tables of a run are only read; write a SELECT")


def _scanned(nodes: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return table -> columns that the nodes of a plan read. Raises ``QueryError`` for a forbidden node."""
    refused = next((word for node in nodes for word in CHANGING + PAST if word in node["name"]), None)
    if refused is not None:
        raise _read_only(refused)
    found: dict[str, set[str]] = {}
    for node in nodes:
        if "SCAN" in node["name"] and "Table" in node["extra_info"]:
            columns = node["extra_info"].get("Projections", [])
            name = node["extra_info"]["Table"].rpartition(".")[2]
            found.setdefault(name, {KEY}).update([columns] if isinstance(columns, str) else columns)
    return {
        name: [column.name for column in TABLES[name].columns if column.name in columns]
        for name, columns in found.items()
    }


def _all(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from _all(node["children"])


def _explained(error: Exception) -> QueryError:
    """Convert DuckDB's message to a sentence, in autotrace's words if the message is about the tables."""
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
        return QueryError("only the tables of the run are read here; ask DuckDB itself for files (autotrace help data)")
    return QueryError(first_line(error))
