"""Read the rows of sources with DuckDB: a database in memory opens only the given files and writes nothing.

The views (``Views``) are the tables of the sources: the rows of Parquet files with later facts, and the rows that are
in no file yet (open calls, a run of an earlier release, a file of lines) under the same schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec

from autotrace.config import ids
from autotrace.tables.columns import ID, Column, Table
from autotrace.tables.connection import connect, first_line, read
from autotrace.tables.errors import QueryError
from autotrace.tables.labels import Label
from autotrace.tables.rollout import GROUP_FINDINGS, Rollout
from autotrace.tables.rollout import json as to_json
from autotrace.tables.schema import OF_TRAJECTORIES, TABLES, WITH_FACTS
from autotrace.tables.sources import Source, Steps, assembled
from autotrace.tables.trajectories import TRAJECTORIES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

TYPES = {
    "string": "VARCHAR", "json": "VARCHAR", "bool": "BOOLEAN", "int64": "BIGINT", "int32": "INTEGER", "int8": "TINYINT",
    "float64": "DOUBLE", "float32": "FLOAT",
}  # fmt: skip
AT_ONCE, IN_MEMORY = 2_000, 100
"""Rows inserted at once, and trajectories read at once."""
Progress = Callable[[int, int], None]
"""Receive the number of trajectories read so far, and the total."""
BESIDE = (
    Column("complete", "bool", "all calls are known; facts may still come", lambda one: one.root.status != "OPEN"),
    Column("facts", "json", "all facts", lambda one: to_json(one.facts)),
)
"""Columns that conditions and commands use in addition to the columns of ``trajectories``."""
_FACT = {
    "float64": "any_value(number) FILTER (name = '{}')",
    "int64": "any_value(TRY_CAST(trunc(number) AS BIGINT)) FILTER (name = '{}')",
    "json": "any_value(value) FILTER (name = '{}' AND value NOT IN ('{{}}', '[]', 'null'))",
    "string": "any_value(json_extract_string(value, '$')) FILTER (name = '{}')",
    "bool": "any_value(value = 'true') FILTER (name = '{}' AND value IN ('true', 'false'))",
}
"""Type of a fact's column -> SQL over the rows of ``facts`` of a trajectory."""
_KNOWN = {
    "version": "any_value(version)",
    **{column.name: _FACT[column.type].format(column.name) for column in TRAJECTORIES.columns if column.fact},
    "findings": f"any_value(json_extract_string(value, '$[*][0]')) FILTER (name = '{GROUP_FINDINGS}')",
    "facts": (
        f"to_json(map(list(name) FILTER (name != '{GROUP_FINDINGS}'),"
        f" list(CAST(value AS JSON)) FILTER (name != '{GROUP_FINDINGS}')))"
    ),
}
_NEWER = "CASE WHEN late.version > one.version THEN late.{0} ELSE one.{0} END"
_LATEST = {
    "version": "greatest(one.version, late.version)",
    "findings": (
        "CASE WHEN late.version > one.version AND len(late.findings) > 0"
        " THEN list_distinct(list_concat(one.findings, late.findings)) ELSE one.findings END"
    ),
    "facts": "late.facts",
}
LABELS = ("label", "label_why")
"""Columns that people fill."""
NEWEST = {**dict.fromkeys(WITH_FACTS, ", ".join(ID)), "metrics": "run_id, step"}
"""Table -> key; for each key only the rows with the largest version count."""
_SAME = " AND ".join(f"{{0}}.{name} = one.{name}" for name in ID)
_KEYS = {"trajectories": {*ID, "start_ns", "is_trajectory"}, "turns": {"run_id", "own"}}


def duck_type(name: str) -> str:
    """Return DuckDB's type for a column's ``type``."""
    return f"{TYPES[name[5:-1]]}[]" if name.startswith("list<") else TYPES[name]


def put(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Sequence[Column], rows: Iterable[tuple[Any, ...]]
) -> None:
    """Create the table ``name`` with ``rows``, inserted as JSON, ``AT_ONCE`` rows at a time: JSON needs neither Arrow
    nor numpy, whose imports take longer than showing a list."""
    types = {column.name: duck_type(column.type) for column in columns}
    declared = ", ".join(f'"{column}" {kind}' for column, kind in types.items())
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({declared})")
    structure = json.dumps({column: [[kind[:-2]] if kind.endswith("[]") else kind] for column, kind in types.items()})
    unnested = ", ".join(f'unnest(document."{column}")' for column in types)
    sql = f"INSERT INTO {name} SELECT {unnested} FROM (SELECT from_json(?, '{structure}') AS document)"
    listed = iter(rows)
    while chunk := list(islice(listed, AT_ONCE)):
        columns_of = dict(zip(types, zip(*chunk, strict=True), strict=True))
        connection.execute(sql, [msgspec.json.encode(columns_of).decode()])


def of_file(column: Column, present: set[str], one: str = "") -> str:
    """Return SQL for a column of a file; a column that an earlier release lacks gets a default."""
    if column.name in present:
        value = f'{one}"{column.name}"'
        return f'{checked_id(column.name, value)} AS "{column.name}"' if column.name in ids.OF_COLUMN else value
    value = "true" if column.name == "complete" else "NULL"
    return f'CAST({value} AS {duck_type(column.type)}) AS "{column.name}"'


def checked_id(name: str, value: str) -> str:
    """Return SQL for the id ``value`` of the column ``name``; a malformed id ends the question with an error."""
    wrong = f"error('not written by autotrace, or damaged: a {name} is no id')"
    is_id = f"{value} IS NULL OR regexp_full_match({value}, '{ids.OF_COLUMN[name]}')"
    return f"CASE WHEN {is_id} THEN {value} ELSE {wrong} END"


class Views:
    """Serve the tables of ``sources`` as views. A table is read when a question needs the table."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.progress: Progress | None = None
        self._sources = sources
        self._there: dict[tuple[str, Steps | None], set[str]] = {}
        """Table and steps -> the columns that the database already has."""
        self._opened: list[str] = []
        """Files that the database may read."""
        self._is_beside = self._is_superseded = False
        """Whether trajectories exist outside the files; whether rows in files are superseded."""

    def provide(self, table: Table, needs: Iterable[str], steps: Steps | None, shown: Iterable[str] = ()) -> str:
        """Return the name of a view of ``table`` that has at least the columns ``needs`` and the columns that are only
        ``shown`` (see ``Source.lines``)."""
        self._follow()
        needed = set(needs) | _KEYS.get(table.name, {"run_id"})
        key = (table.name, steps)
        view = _view(table.name, steps)
        if key in self._there and needed.union(shown) <= self._there[key]:
            return view
        needed |= self._there.get(key, set())
        every = (*table.columns, *BESIDE) if table is TRAJECTORIES else table.columns
        shown = {*shown} - needed
        columns = [column for column in every if column.name in needed | shown]
        if missing := needed - {column.name for column in columns}:
            raise QueryError(f"there is no column of {table.name} called {min(missing)}")
        parts = self.of_files(table, columns, steps)
        parts.append(f"SELECT * FROM {self._beside(table, columns, steps, view, shown)}")
        every_row = " UNION ALL BY NAME ".join(parts)
        if table is TRAJECTORIES and self.labels and (given := [name for name in LABELS if name in needed | shown]):
            replaced = ", ".join(
                f"CASE WHEN given.trace_id IS NULL THEN one.{name} ELSE given.{name} END AS {name}" for name in given
            )
            joined = f"FROM ({every_row}) AS one LEFT JOIN own.labels AS given ON {_SAME.format('given')}"
            every_row = f"SELECT one.* REPLACE ({replaced}) {joined}"
        self.database.execute(f"CREATE OR REPLACE VIEW {view} AS {every_row}")
        self._there[key] = needed
        return view

    def of_files(self, table: Table, columns: Sequence[Column], steps: Steps | None) -> list[str]:
        """Return SELECTs over the files of the sources, without rows that a later version has replaced and without
        trajectories that are also outside the files."""
        self._follow()
        rows = self._rows(table.name)
        if not rows or self.database is None:  # opening the database finds the trajectories outside the files
            return []
        conditions = []
        if table.name in OF_TRAJECTORIES and self._is_beside:
            conditions.append(f"NOT EXISTS (FROM own.beside AS b WHERE {_SAME.format('b')})")
        if table.name in OF_TRAJECTORIES and table.name not in WITH_FACTS and self._is_superseded:
            conditions.append(
                f"NOT EXISTS (FROM own.superseded AS s WHERE {_SAME.format('s')} AND s.version > one.version)"
            )
        if steps is not None:
            conditions.append(f"step BETWEEN {int(steps[0])} AND {int(steps[1])}")
        found = f"SELECT * FROM {rows} AS one" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")
        if table.name in NEWEST:
            found += f" QUALIFY version = max(version) OVER (PARTITION BY {NEWEST[table.name]})"
        if table is TRAJECTORIES:
            return [self._with_facts(found, columns)]
        present = self._present(rows)
        return [f"SELECT {', '.join(of_file(column, present) for column in columns)} FROM ({found})"]

    def forget(self, steps: Steps) -> None:
        """Drop the views and rows that were read for ``steps`` alone."""
        for name, of in list(self._there):
            if of == steps:
                del self._there[name, of]
                view = _view(name, of)
                self.database.execute(f"DROP VIEW {view}; DROP TABLE {view}_beside")

    def close(self) -> None:
        """Close the database."""
        if "database" in self.__dict__:
            self.database.close()

    @cached_property
    def labels(self) -> dict[tuple[str, str], Label]:
        """Map run and trace id to the label that a person gave."""
        return {(source.info.run_id, id): one for source in self._sources for id, one in source.labels().items()}

    def asked(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of an answer. Raises ``QueryError``."""
        import duckdb

        try:
            return self.database.execute(sql, values).fetchall()
        except duckdb.Error as error:
            raise QueryError(f"the tables cannot be read: {first_line(error)}") from error

    @cached_property
    def database(self) -> duckdb.DuckDBPyConnection:
        """Open the database with the views and the tables ``own.*`` that the views need."""
        self._opened = self._files()
        database = connect(self._opened, sum(source.size() for source in self._sources))
        database.execute("CREATE SCHEMA own")
        beside: list[tuple[str, str]] = []
        superseded: list[tuple[str, str, int]] = []
        for source in self._sources:
            if source.files(TRAJECTORIES.name):
                beside += [(source.info.run_id, trace_id) for trace_id in source.ids(None)]
                superseded += [(source.info.run_id, *one) for one in source.superseded().items()]
        self._is_beside, self._is_superseded = bool(beside), bool(superseded)
        labels = [(*of, one.label, one.why) for of, one in self.labels.items()]
        put(database, "own.labels", TRAJECTORIES.chosen(*ID, *LABELS), labels)
        put(database, "own.beside", TRAJECTORIES.chosen(*ID), beside)
        put(database, "own.superseded", TRAJECTORIES.chosen(*ID, "version"), superseded)
        return database

    def _follow(self) -> None:
        """Close the database if the files have changed: the end of a run merges files."""
        if "database" in self.__dict__ and self._files() != self._opened:
            self.database.close()
            del self.database
            self._there.clear()

    def _files(self) -> list[str]:
        return [file for source in self._sources for name in TABLES for file in source.files(name)]

    def _rows(self, name: str, late: bool = False) -> str:
        """Return SQL for all rows of a table in files, or (``late``) in the files of ``late_facts``; empty without
        files."""
        files = [file for source in self._sources for file in (source.late_facts() if late else source.files(name))]
        return read(files, len(self._sources) > 1) if files else ""

    def _present(self, rows: str) -> set[str]:
        """Return the columns that ``rows`` have: files of an earlier release lack some columns."""
        return {row[0] for row in self.asked(f"DESCRIBE SELECT * FROM {rows}")}

    def _with_facts(self, found: str, columns: Sequence[Column]) -> str:
        """Return SQL for the trajectories ``found`` with the facts that came later."""
        present = self._present(self._rows(TRAJECTORIES.name))
        names = [column.name for column in columns if column.name in _KNOWN and column.name in {*present, "facts"}]
        at_first = "facts" not in names  # the row itself has the facts of that time
        rows = self._rows("facts", late=at_first)
        if not rows or not names:
            return f"SELECT {', '.join(of_file(column, present) for column in columns)} FROM ({found})"
        later = " WHERE version > 1" if at_first else ""
        known = ", ".join(f"{_KNOWN[name]} AS {name}" for name in dict.fromkeys(["version", *names]))
        of = NEWEST["facts"]
        facts = (
            f"SELECT {of}, {known} FROM (SELECT * FROM {rows} AS one{later}"
            f" QUALIFY version = max(version) OVER (PARTITION BY {of})) GROUP BY {of}"
        )
        shown = ", ".join(
            _LATEST.get(column.name, _NEWER).format(column.name) + f' AS "{column.name}"'
            if column.name in names
            else of_file(column, present, "one.")
            for column in columns
        )
        return f"SELECT {shown} FROM ({found}) AS one LEFT JOIN ({facts}) AS late USING ({of})"

    def _beside(
        self, table: Table, columns: Sequence[Column], steps: Steps | None, view: str, shown: Iterable[str]
    ) -> str:
        """Create a table with the rows that are in no file; return the name of the table."""
        name, names = f"{view}_beside", [column.name for column in columns]
        there: list[Iterator[tuple[Any, ...]]] = []
        whole = []
        for source in self._sources:
            lines = source.lines(table.name, names, steps, shown)
            if lines is not None:
                there.append(lines)
            elif source.ids(steps):
                whole.append(source)
        put(self.database, name, columns, chain.from_iterable(there))
        if whole:
            self.database.register("made", self._assembled(table, columns, steps, whole))
            self.database.execute(f"INSERT INTO {name} BY NAME SELECT * FROM made")
            self.database.unregister("made")
        return name

    def _assembled(
        self, table: Table, columns: Sequence[Column], steps: Steps | None, sources: list[Source]
    ) -> pa.Table:
        """Build rows from whole trajectories."""
        import pyarrow as pa

        from autotrace.tables import arrow

        parts = [arrow.from_rows(columns, [])]
        if table.name in OF_TRAJECTORIES:
            texts = any(column.text for column in columns)
            total = sum(len(source.ids(steps)) for source in sources)
            trajectories = (one for source in sources for one in assembled(source, steps, texts))
            count = 0
            while chunk := [Rollout(one) for one in islice(trajectories, IN_MEMORY)]:
                parts.append(arrow.from_rows(columns, table.rows(chunk)))
                count += len(chunk)
                if self.progress is not None:
                    self.progress(count, total)
        return pa.concat_tables(parts)


def _view(table: str, steps: Steps | None) -> str:
    return f"own.{table}" + ("" if steps is None else "_{}_{}".format(*steps).replace("-", "m"))
