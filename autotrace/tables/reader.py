"""The one reader: runs as lines, tables and whole trajectories, wherever they stand, over one engine.

What is in Parquet files is read by DuckDB; what is in none yet (open calls, a run of an earlier release, a file of
lines) lies beside it under the same schema. A reader shows one moment: open another one to see what came later.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from autotrace.tables.columns import Column, Table
from autotrace.tables.conditions import EVERY, Condition
from autotrace.tables.engine import connect, of_file, put, read
from autotrace.tables.errors import Gone, QueryError, known
from autotrace.tables.labels import Label
from autotrace.tables.rollout import GROUP_FINDINGS, Rollout, json
from autotrace.tables.schema import OF_TRAJECTORIES, TABLES, WITH_FACTS, rows
from autotrace.tables.sources import Source, Steps, assembled
from autotrace.tables.sql import Answer, answer, asked, first_line
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.tables.words import LIST, WORDS, Word
from autotrace.trajectory.model import Trajectory

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with how many trajectories were read, and of how many."""
AT_ONCE = 100
"""Trajectories in memory."""
TRIES = 3
"""Files may be made one while they are read."""
BESIDE = tuple(
    column
    for column in (
        Column("complete", "bool", "everything of it is known but late facts", lambda one: one.root.status != "OPEN"),
        Column("facts", "json", "all facts", lambda one: json(one.facts)),
        Column("is_trajectory", "bool", "it is one, and no engine's or trainer's call", attrgetter("is_trajectory")),
    )
    if TRAJECTORIES.column(column.name) is None
)
"""Columns that conditions and commands have beside those of ``trajectories``."""
LINE = (
    "run_id", "trace_id", "name", "role", "status", "step", "sample_index", "rollout_n", "validate", "uid",
    "data_source", "project_name", "experiment_name", "group_id", "attempt", "start_ns", "end_ns", "duration_s",
    "llm_calls", "tool_calls", "spans", "late_spans", "prompt_tokens", "response_tokens", "reward", "advantage",
    "error", "findings", "label", "label_why", "complete",
)  # fmt: skip
"""Columns of a trajectory's line."""
SORTS = {name: word for name, word in WORDS.items() if word.kind != LIST}
"""What lists are ordered by."""
SEARCHED = {"turns": ("prompt_text", "response_text"), "spans": ("inputs", "output", "error_type", "error_message")}
"""Table -> columns with texts."""
OF_FACTS = (
    "reward", "reward_extra_info", "advantage", "mismatch_mean", "mismatch_max", "entropy", "token_facts",
    "trained_in_step", "trained_in_steps", "dropped", "num_turns",
)  # fmt: skip
"""Columns of ``trajectories`` that are facts."""
_FACT = {
    "float64": "any_value(number) FILTER (name = '{}')",
    "int64": "any_value(CAST(number AS BIGINT)) FILTER (name = '{}')",
    "json": "any_value(value) FILTER (name = '{}')",
    "string": "any_value(json_extract_string(value, '$')) FILTER (name = '{}')",
}
"""Type of such a column -> SQL over the rows of ``facts`` of one trajectory."""
_KNOWN = {
    **{
        column.name: _FACT[column.type].format(column.name)
        for column in TRAJECTORIES.columns
        if column.name in OF_FACTS
    },
    "findings": f"any_value(json_extract_string(value, '$[*][0]')) FILTER (name = '{GROUP_FINDINGS}')",
    "facts": (
        f"to_json(map(list(name) FILTER (name != '{GROUP_FINDINGS}'),"
        f" list(CAST(value AS JSON)) FILTER (name != '{GROUP_FINDINGS}')))"
    ),
}
_NEWER = "CASE WHEN late.version > one.version THEN late.{0} ELSE one.{0} END"
_LATEST = {
    "findings": (
        "CASE WHEN late.version > one.version AND len(late.findings) > 0"
        " THEN list_distinct(list_concat(one.findings, late.findings)) ELSE one.findings END"
    ),
    "facts": "late.facts",
}
LABELS = ("label", "label_why")
"""Columns that people fill."""
NEWEST = {**dict.fromkeys(WITH_FACTS, "trace_id"), "metrics": "run_id, step"}
"""Table -> of what the rows with the largest version count."""
OWN = {"trajectories": "is_trajectory", "turns": "coalesce(own, true)"}
"""Table -> SQL that is true of the rows that people mean: the others are roots and calls beside the agent's."""
_KEYS = {"trajectories": {"run_id", "trace_id", "start_ns", "is_trajectory"}, "turns": {"run_id", "own"}}


def _changed(sources: Sequence[Source]) -> bool:
    """Other files count by now, and they are there."""
    with suppress(OSError, QueryError):
        return any([source.look_again() for source in sources])
    return False


def _asked_again(method: Callable[P, T]) -> Callable[P, T]:
    """``method`` of a reader, called once more if files were made one meanwhile: those that it asked are gone."""

    @functools.wraps(method)
    def called(*args: P.args, **more: P.kwargs) -> T:
        reader: Any = args[0]
        for _ in range(TRIES):
            try:
                return method(*args, **more)
            except Exception:
                if not _changed(reader.sources):
                    raise
        return method(*args, **more)

    return called


class Reader:
    """Of one run, or of several as one."""

    def __init__(self, sources: Sequence[Source], progress: Progress | None = None) -> None:
        self.sources = list(sources)
        self.progress = progress
        self._there: dict[tuple[str, Steps | None], set[str]] = {}
        """Table, steps -> columns of it that are in the database."""
        self._opened: list[str] = []
        """Files that the database may read."""
        self._is_beside = self._is_superseded = False
        """Trajectories are beside the files; rows in files are superseded."""

    # -- lines and tables ----------------------------------------------------------------------------------------------

    @_asked_again
    def select(
        self,
        condition: Condition = EVERY,
        columns: Sequence[str] = LINE,
        *,
        sort: str = "start",
        descending: bool = False,
        limit: int | None = None,
        steps: Steps | None = None,
        roots: bool = False,
    ) -> list[Any]:
        """These columns of the trajectories that satisfy ``condition``, at most ``limit``, in the order of one of
        ``SORTS``; what has no value comes last. ``steps``: only those of these steps are looked at. ``roots``:
        everything that is no part of another call, also what is no trajectory."""
        order = SORTS[sort]
        needs = {*columns} | order.columns | condition.columns
        view = self._provide(TRAJECTORIES, needs, steps)
        direction = "DESC" if descending else "ASC"
        listed = ", ".join(f'"{column}"' for column in columns)
        sql = (
            f"SELECT {listed} FROM {view} WHERE {_wanted(condition, roots)}"
            f" ORDER BY {order.sql} {direction} NULLS LAST, trace_id {direction}"
        )
        limits = "" if limit is None else f" LIMIT {int(limit)}"
        line = namedtuple("Line", columns)  # type: ignore[misc]  # its fields are those that were asked for
        return list(map(line._make, self._asked(sql + limits, condition.values)))

    @_asked_again
    def count(self, condition: Condition = EVERY, *, roots: bool = False) -> int:
        """How many trajectories satisfy ``condition``."""
        view = self._provide(TRAJECTORIES, condition.columns, None)
        sql = f"SELECT count(*) FROM {view} WHERE {_wanted(condition, roots)}"
        return int(self._asked(sql, condition.values)[0][0])

    @_asked_again
    def steps(self) -> dict[int | None, int]:
        """The training steps in order, and how many trajectories there are of each; None last, for those without."""
        view = self._provide(TRAJECTORIES, ("step",), None)
        sql = f"SELECT step, count(*) FROM {view} WHERE is_trajectory GROUP BY step ORDER BY step NULLS LAST"
        return dict(self._asked(sql))

    def rows(self, name: str, columns: Sequence[str], where: str = "true", values: Sequence[Any] = ()) -> Iterator[Any]:
        """These columns of the table ``name``, where ``where`` (SQL, never user input) is true, in no order."""
        table = known(name)
        view = self._provide(table, columns, None)
        listed = ", ".join(f'"{column}"' for column in columns)
        cursor = self._database.cursor()
        try:
            cursor.execute(f"SELECT {listed} FROM {view} WHERE {where}", values)
            while rows := cursor.fetchmany(1000):
                yield from rows
        finally:
            cursor.close()

    @_asked_again
    def table(
        self, name: str = "trajectories", columns: Sequence[str] | None = None, step: int | None = None
    ) -> pa.Table:
        """A table as Arrow. Raises ``QueryError``."""
        table = known(name, columns)
        names = [column.name for column in table.columns] if columns is None else list(columns)
        view = self._provide(table, names, None if step is None else (step, step))
        own = f" WHERE {OWN[name]}" if name in OWN else ""
        listed = ", ".join(f'"{column}"' for column in names)
        from autotrace.tables import arrow

        rows = asked(self._database.sql(f"SELECT {listed} FROM {view}{own}").to_arrow_table)
        return rows.cast(arrow.arrow_schema(table, names))

    @_asked_again
    def sql(self, query: str) -> Answer:
        """The answer to one SELECT over the tables. Raises ``QueryError``."""
        return answer(query, self._views)

    def _views(self, needs: Mapping[str, Sequence[str]]) -> duckdb.DuckDBPyConnection:
        """The database with these columns of the tables by their names."""
        for name, columns in needs.items():
            view = self._provide(TABLES[name], columns, None)
            listed = ", ".join(f'"{column}"' for column in columns)
            own = f" WHERE {OWN[name]}" if name in OWN else ""
            self._database.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT {listed} FROM {view}{own}")
        return self._database

    @_asked_again
    def computed(self, of: Mapping[str, Word], condition: Condition = EVERY) -> pa.Table:
        """Words of conditions, by name, of the trajectories that satisfy ``condition``, by start, as Arrow: numbers and
        flags as 64-bit floats, others as text, several texts with blanks between."""
        needs = condition.columns.union(*(word.columns for word in of.values()))
        view = self._provide(TRAJECTORIES, needs, None)
        listed = ", ".join(f'{word.shown} AS "{name}"' for name, word in of.items())
        sql = (
            f"SELECT {listed} FROM {view} WHERE {_wanted(condition, False)}"
            " ORDER BY start_ns NULLS LAST, trace_id"
        )  # fmt: skip
        return self._database.sql(sql, params=list(condition.values)).to_arrow_table()

    @_asked_again
    def structure(self, column: str) -> dict[str, Any]:
        """The names within a column of JSON, each with its type: ``{"acc": "BOOLEAN", "parts": {...}}``."""
        view = self._provide(TRAJECTORIES, {column}, None)
        text = f'CASE WHEN json_valid("{column}") THEN CAST("{column}" AS JSON) END'
        ((found,),) = self._asked(f"SELECT json_group_structure({text}) FROM {view} WHERE is_trajectory")
        return mapping(found)

    @_asked_again
    def containing(self, text: str, *, in_any_case: bool = False) -> set[str]:
        """The trajectories that may contain ``text`` in what models and tools were given and returned: those in files
        that do, and all others."""
        found = {trace_id for source in self.sources for trace_id in source.ids(None)}
        for name, columns in SEARCHED.items():
            wanted = [_column(name, column) for column in ("trace_id", *columns)]
            for part in self._of_files(TABLES[name], wanted, None):
                form = "contains(lower({}), lower(?))" if in_any_case else "contains({}, ?)"
                where = " OR ".join(form.format(column) for column in columns)
                sql = f"SELECT DISTINCT trace_id FROM ({part}) WHERE {where}"
                found |= {trace_id for (trace_id,) in self._asked(sql, [text] * len(columns))}
        ids = [_column("turns", column) for column in ("trace_id", "response_ids", "response_text")]
        for part in self._of_files(TABLES["turns"], ids, None):  # a tokenizer may have been named since
            sql = f"SELECT DISTINCT trace_id FROM ({part}) WHERE response_text IS NULL AND response_ids IS NOT NULL"
            found |= {trace_id for (trace_id,) in self._asked(sql)}
        return found

    # -- whole trajectories --------------------------------------------------------------------------------------------

    def resolve(self, prefix: str) -> str:
        """The whole id of the trajectory that begins with ``prefix`` (``tr-`` in front is MLflow's).

        Raises ``KeyError`` with a sentence when there is none or more than one.
        """
        wanted = prefix.removeprefix("tr-").lower()
        begins = Condition("starts_with(trace_id, ?)", (wanted,), frozenset({"trace_id"}))
        rows = self.select(begins, ("trace_id",), sort="trace_id", limit=4, roots=True) if wanted else []
        if not rows:
            raise KeyError(f"no trace of this run begins with {prefix!r}; autotrace ls shows them")
        if len(rows) > 1:
            found = ", ".join(row.trace_id for row in rows)
            raise KeyError(f"{prefix!r} is the beginning of several traces: {found}")
        return str(rows[0].trace_id)

    def load(self, prefix: str, *, texts: bool = True) -> Trajectory:
        """The trajectory whose id begins with ``prefix``, open calls included, decoded if ``texts``. Raises
        ``KeyError`` where there is none, ``Gone`` where only its line is left."""
        trace_id = self.resolve(prefix)
        of = Condition("trace_id = ?", (trace_id,), frozenset({"trace_id"}))
        (row,) = self.select(of, ("run_id",), limit=1, roots=True)
        source = next(source for source in self.sources if source.info.run_id == row.run_id)
        return self._labelled(source.load(trace_id, texts=texts))

    def forget(self, steps: Steps) -> None:
        """Let go of what was read of some steps alone."""
        for name, of in list(self._there):
            if of == steps:
                del self._there[name, of]
                view = _view(name, of)
                self._database.execute(f"DROP VIEW {view}; DROP TABLE {view}_beside")

    def each(self, rows: Iterable[Any], *, texts: bool = True) -> Iterator[tuple[Any, Trajectory | None]]:
        """Each of ``rows`` (with a ``trace_id``) with its trajectory; None where only its line is left."""
        listed = iter(rows)
        while chunk := list(islice(listed, AT_ONCE)):
            ids = [row.trace_id for row in chunk]
            stored: dict[str, Trajectory] = {}
            for source in self.sources:
                with suppress(Gone):
                    stored |= source.stored(ids)
            for row in chunk:
                one = stored.get(row.trace_id)
                if one is None:
                    with suppress(KeyError):
                        one = self.load(row.trace_id, texts=texts)
                yield row, one and self._labelled(one)

    @cached_property
    def _labels(self) -> dict[str, Label]:
        return {trace_id: one for source in self.sources for trace_id, one in source.labels().items()}

    def _labelled(self, trajectory: Trajectory) -> Trajectory:
        """With what somebody called it among its facts."""
        given = self._labels.get(trajectory.trace_id)
        if given is not None:
            facts = {name: value for name, value in trajectory.facts.items() if name not in LABELS}
            values = zip(LABELS, (given.label, given.why), strict=True)
            trajectory.facts = facts | {name: value for name, value in values if value is not None}
        return trajectory

    @property
    def run(self) -> Source:
        """The newest run, or the only one."""
        return self.sources[-1]

    def close(self) -> None:
        """Close the database and the sources."""
        if "_database" in self.__dict__:
            self._database.close()
        for source in self.sources:
            source.close()

    def _asked(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        import duckdb

        try:
            return self._database.execute(sql, values).fetchall()
        except duckdb.Error as error:
            raise QueryError(f"the tables cannot be read: {first_line(error)}") from error

    # -- the database --------------------------------------------------------------------------------------------------

    @cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        self._opened = self._files()
        database = connect(self._opened, sum(source.size() for source in self.sources))
        database.execute("CREATE SCHEMA own")
        beside: list[tuple[str]] = []
        superseded: list[tuple[str, int]] = []
        for source in self.sources:
            if source.files(TRAJECTORIES.name):
                beside += [(trace_id,) for trace_id in source.ids(None)]
                superseded += source.superseded().items()
        trace_id, version = (_column(TRAJECTORIES.name, name) for name in ("trace_id", "version"))
        self._is_beside, self._is_superseded = bool(beside), bool(superseded)
        put(database, "own.labels", [trace_id, *(_column(TRAJECTORIES.name, name) for name in LABELS)], [
            (one.trace_id, one.label, one.why) for one in self._labels.values()
        ])  # fmt: skip
        put(database, "own.beside", [trace_id], beside)
        put(database, "own.superseded", [trace_id, version], superseded)
        return database

    def _files(self) -> list[str]:
        return [file for source in self.sources for name in TABLES for file in source.files(name)]

    def _provide(self, table: Table, needs: Iterable[str], steps: Steps | None) -> str:
        """The name of a view of ``table`` that has the columns ``needs`` at least."""
        if "_database" in self.__dict__ and self._files() != self._opened:  # the end of the run made one file of some
            self._database.close()
            del self._database
            self._there.clear()
        needed = set(needs) | _KEYS.get(table.name, {"run_id"})
        key = (table.name, steps)
        view = _view(table.name, steps)
        if key in self._there and needed <= self._there[key]:
            return view
        needed |= self._there.get(key, set())
        every = (*table.columns, *BESIDE) if table is TRAJECTORIES else table.columns
        columns = [column for column in every if column.name in needed]
        if missing := needed - {column.name for column in columns}:
            raise QueryError(f"there is no column of {table.name} called {min(missing)}")
        parts = self._of_files(table, columns, steps)
        parts.append(f"SELECT * FROM {self._beside(table, columns, steps, view)}")
        every_row = " UNION ALL BY NAME ".join(parts)
        if table is TRAJECTORIES and self._labels and (given := [name for name in LABELS if name in needed]):
            replaced = ", ".join(
                f"CASE WHEN given.trace_id IS NULL THEN one.{name} ELSE given.{name} END AS {name}" for name in given
            )
            joined = f"FROM ({every_row}) AS one LEFT JOIN own.labels AS given ON given.trace_id = one.trace_id"
            every_row = f"SELECT one.* REPLACE ({replaced}) {joined}"
        self._database.execute(f"CREATE OR REPLACE VIEW {view} AS {every_row}")
        self._there[key] = needed
        return view

    def _of_files(self, table: Table, columns: Sequence[Column], steps: Steps | None) -> list[str]:
        """SELECTs over the files of the sources: what a later version has replaced, and what is beside them, does not
        count."""
        files = [file for source in self.sources for file in source.files(table.name)]
        if not files or self._database is None:  # which says what is beside them
            return []
        conditions = []
        if table.name in OF_TRAJECTORIES and self._is_beside:
            conditions.append("NOT EXISTS (FROM own.beside WHERE trace_id = one.trace_id)")
        if table.name in OF_TRAJECTORIES and table.name not in WITH_FACTS and self._is_superseded:
            conditions.append(
                "NOT EXISTS (FROM own.superseded AS s WHERE s.trace_id = one.trace_id AND s.version > one.version)"
            )
        if steps is not None:
            conditions.append(f"step BETWEEN {int(steps[0])} AND {int(steps[1])}")
        found = f"SELECT * FROM {read(files)} AS one" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")
        if table.name in NEWEST:
            found += f" QUALIFY version = max(version) OVER (PARTITION BY {NEWEST[table.name]})"
        if table is TRAJECTORIES:
            return [self._with_facts(found, columns)]
        present = self._present(files)
        return [f"SELECT {', '.join(of_file(column, present) for column in columns)} FROM ({found})"]

    def _present(self, files: Sequence[str]) -> set[str]:
        """The columns that ``files`` have: those of an earlier release lack some."""
        return {row[0] for row in self._asked(f"DESCRIBE SELECT * FROM {read(files)}")}

    def _with_facts(self, found: str, columns: Sequence[Column]) -> str:
        """The trajectories ``found`` with what became known of them since they were written."""
        files = [file for source in self.sources for file in source.files("facts")]
        present = self._present([file for source in self.sources for file in source.files(TRAJECTORIES.name)])
        names = [column.name for column in columns if column.name in (*OF_FACTS, "findings", "facts")]
        if not files or not names:
            return f"SELECT {', '.join(of_file(column, present) for column in columns)} FROM ({found})"
        later = "" if "facts" in names else " WHERE version > 1"  # the first one is in the row itself
        known = ", ".join(f"{_KNOWN[name]} AS {name}" for name in names)
        facts = (
            f"SELECT trace_id, any_value(version) AS version, {known} FROM (SELECT * FROM {read(files)}{later}"
            " QUALIFY version = max(version) OVER (PARTITION BY trace_id)) GROUP BY trace_id"
        )
        shown = ", ".join(
            f'{_LATEST.get(column.name, _NEWER).format(column.name)} AS "{column.name}"'
            if column.name in names
            else 'greatest(one.version, late.version) AS "version"'
            if column.name == "version"
            else of_file(column, present, "one.")
            for column in columns
        )
        return f"SELECT {shown} FROM ({found}) AS one LEFT JOIN ({facts}) AS late USING (trace_id)"

    def _beside(self, table: Table, columns: Sequence[Column], steps: Steps | None, view: str) -> str:
        """The name of a table with what is in no file."""
        name, names = f"{view}_beside", [column.name for column in columns]
        there: list[Iterator[tuple[Any, ...]]] = []
        whole = []
        for source in self.sources:
            lines = source.lines(table.name, names, steps)
            if lines is not None:
                there.append(lines)
            elif source.ids(steps):
                whole.append(source)
        put(self._database, name, columns, chain.from_iterable(there))
        if whole:
            made = self._assembled(table, columns, steps, whole)
            self._database.register("made", made)
            self._database.execute(f"INSERT INTO {name} BY NAME SELECT * FROM made")
            self._database.unregister("made")
        return name

    def _assembled(
        self, table: Table, columns: Sequence[Column], steps: Steps | None, sources: list[Source]
    ) -> pa.Table:
        """Rows made of whole trajectories."""
        import pyarrow as pa

        from autotrace.tables import arrow

        parts = [arrow.from_rows(columns, [])]
        if table.name in OF_TRAJECTORIES:
            texts = any(column.text for column in columns)
            total = sum(len(source.ids(steps)) for source in sources)
            trajectories = (one for source in sources for one in assembled(source, steps, texts))
            count = 0
            while chunk := [Rollout(one) for one in islice(trajectories, AT_ONCE)]:
                parts.append(arrow.from_rows(columns, rows(table, chunk)))
                count += len(chunk)
                if self.progress is not None:
                    self.progress(count, total)
        return pa.concat_tables(parts)


def _view(table: str, steps: Steps | None) -> str:
    return f"own.{table}" + ("" if steps is None else "_{}_{}".format(*steps).replace("-", "m"))


def _column(table: str, name: str) -> Column:
    column = TABLES[table].column(name)
    assert column is not None
    return column


def mapping(text: str | None) -> dict[str, Any]:
    """A mapping in JSON; an empty one for other text."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _wanted(condition: Condition, roots: bool) -> str:
    return condition.sql if roots else f"is_trajectory AND ({condition.sql})"
