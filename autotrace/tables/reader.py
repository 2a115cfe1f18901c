"""Read runs as lines, tables and whole trajectories, wherever the runs are, through a single engine.

DuckDB reads the rows in Parquet files; rows that are in no file yet (open calls, a run of an earlier release, a file of
lines) are provided beside the files under the same schema. A reader shows a fixed moment: open another reader to see
later data.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from autotrace.tables.columns import ID, id_of
from autotrace.tables.conditions import EVERY, Condition
from autotrace.tables.database import IN_MEMORY, LABELS, Views
from autotrace.tables.errors import Gone, NotFound, QueryError, known
from autotrace.tables.schema import TABLES
from autotrace.tables.sources import Source, Steps
from autotrace.tables.sql import QueryResult, answer, asked
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.tables.words import LIST, WORDS, Word
from autotrace.trajectory.model import Trajectory

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

P = ParamSpec("P")
T = TypeVar("T")
TRIES = 3
"""Number of repetitions when files are merged during a read."""
LINE = (
    "run_id", "trace_id", "name", "role", "status", "step", "sample_index", "rollout_n", "validate", "uid",
    "data_source", "project_name", "experiment_name", "group_id", "attempt", "start_ns", "end_ns", "duration_s",
    "llm_calls", "tool_calls", "spans", "late_spans", "prompt_tokens", "response_tokens", "reward", "advantage",
    "error", "findings", "label", "label_why", "complete",
)  # fmt: skip
"""Columns of a trajectory's line."""
SORTS = {name: word for name, word in WORDS.items() if word.kind != LIST}
"""Name -> the word by which lists are sorted."""
SEARCHED = {"turns": ("prompt_text", "response_text"), "spans": ("inputs", "output", "error_type", "error_message")}
"""Table -> columns with texts."""
OWN = {"trajectories": "is_trajectory", "turns": "coalesce(own, true)"}
"""Table -> SQL that is true for the rows that people mean; the other rows are roots and calls beside the agent's."""


def _changed(sources: Sequence[Source]) -> bool:
    """Return whether other files count by now, and the files exist."""
    with suppress(OSError, QueryError):
        return any([source.look_again() for source in sources])
    return False


def _asked_again(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap ``method`` of a reader to run again if files were merged meanwhile: the files that the method read are
    gone."""

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
    """Read a run, or several runs together."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)
        self.views = Views(self.sources)

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
        shown: Sequence[str] = (),
    ) -> list[Any]:
        """Return ``columns`` of the trajectories that satisfy ``condition``, at most ``limit``, sorted by a key of
        ``SORTS``; missing values come last. ``steps``: look only at these steps. ``roots``: include every root call,
        also if the root is not a trajectory. ``shown``: additional columns, None where a trajectory outside the tables
        would have to be assembled for these columns alone."""
        order = SORTS[sort]
        needs = {*columns} | order.columns | condition.columns
        view = self.views.provide(TRAJECTORIES, needs, steps, shown)
        columns = [*dict.fromkeys((*columns, *shown))]
        direction = "DESC" if descending else "ASC"
        listed = ", ".join(f'"{column}"' for column in columns)
        sql = (
            f"SELECT {listed} FROM {view} WHERE {_wanted(condition, roots)}"
            f" ORDER BY {order.sql} {direction} NULLS LAST, trace_id {direction}, run_id {direction}"
        )
        limits = "" if limit is None else f" LIMIT {int(limit)}"
        line = namedtuple("Line", columns)  # type: ignore[misc]  # its fields are those that were asked for
        return list(map(line._make, self.views.asked(sql + limits, condition.values)))

    @_asked_again
    def count(self, condition: Condition = EVERY, *, roots: bool = False) -> int:
        """Return the number of trajectories that satisfy ``condition``."""
        view = self.views.provide(TRAJECTORIES, condition.columns, None)
        sql = f"SELECT count(*) FROM {view} WHERE {_wanted(condition, roots)}"
        return int(self.views.asked(sql, condition.values)[0][0])

    @_asked_again
    def steps(self) -> dict[int | None, int]:
        """Return training step -> number of trajectories, in order; None (no step) comes last."""
        view = self.views.provide(TRAJECTORIES, ("step",), None)
        sql = f"SELECT step, count(*) FROM {view} WHERE is_trajectory GROUP BY step ORDER BY step NULLS LAST"
        return dict(self.views.asked(sql))

    def rows(self, name: str, columns: Sequence[str], where: str = "true") -> Iterator[Any]:
        """Yield ``columns`` of the table ``name`` where ``where`` (SQL, never user input) is true, in no order."""
        view = self.views.provide(known(name), columns, None)
        listed = ", ".join(f'"{column}"' for column in columns)
        cursor = self.views.database.cursor()
        try:
            cursor.execute(f"SELECT {listed} FROM {view} WHERE {where}")
            while rows := cursor.fetchmany(1000):
                yield from rows
        finally:
            cursor.close()

    @_asked_again
    def table(
        self, name: str = "trajectories", columns: Sequence[str] | None = None, step: int | None = None
    ) -> pa.Table:
        """Return a table as Arrow. Raises ``QueryError``."""
        table = known(name, columns)
        names = [column.name for column in table.columns] if columns is None else list(columns)
        sql = self._meant(name, names, None if step is None else (step, step))
        from autotrace.tables import arrow

        rows = asked(self.views.database.sql(sql).to_arrow_table)
        return rows.cast(arrow.arrow_schema(table.chosen(*names)))

    @_asked_again
    def sql(self, query: str) -> QueryResult:
        """Run a SELECT over the tables. Raises ``QueryError``."""
        return answer(query, self._views)

    def _views(self, needs: Mapping[str, Sequence[str]]) -> duckdb.DuckDBPyConnection:
        """Return the database after providing the needed columns of each table under the table's name."""
        for name, columns in needs.items():
            meant = self._meant(name, columns)  # may open another database
            self.views.database.execute(f"CREATE OR REPLACE VIEW {name} AS {meant}")
        return self.views.database

    def _meant(self, name: str, columns: Sequence[str], steps: Steps | None = None) -> str:
        """Return SQL for ``columns`` of the rows that people mean."""
        view = self.views.provide(TABLES[name], columns, steps)
        listed = ", ".join(f'"{column}"' for column in columns)
        return f"SELECT {listed} FROM {view} WHERE {OWN.get(name, 'true')}"

    @_asked_again
    def computed(self, of: Mapping[str, Word], condition: Condition = EVERY) -> pa.Table:
        """Return words of conditions, by name, for the trajectories that satisfy ``condition``, sorted by start, as
        Arrow: numbers and flags as 64-bit floats, other words as text, several texts joined by blanks."""
        needs = condition.columns.union(*(word.columns for word in of.values()))
        view = self.views.provide(TRAJECTORIES, needs, None)
        listed = ", ".join(f'{word.shown} AS "{name}"' for name, word in of.items())
        sql = (
            f"SELECT {listed} FROM {view} WHERE {_wanted(condition, False)}"
            " ORDER BY start_ns NULLS LAST, trace_id, run_id"
        )  # fmt: skip
        return self.views.database.sql(sql, params=list(condition.values)).to_arrow_table()

    @_asked_again
    def structure(self, column: str) -> dict[str, Any]:
        """Return the names within a column of JSON, each with its type: ``{"acc": "BOOLEAN", "parts": {...}}``."""
        view = self.views.provide(TRAJECTORIES, {column}, None)
        text = f'CASE WHEN json_valid("{column}") THEN CAST("{column}" AS JSON) END'
        ((found,),) = self.views.asked(f"SELECT json_group_structure({text}) FROM {view} WHERE is_trajectory")
        return mapping(found)

    @_asked_again
    def containing(self, text: str, *, in_any_case: bool = False) -> set[tuple[str, str]]:
        """Return run and trace id of the trajectories that may contain ``text`` in the input or output of models and
        tools: trajectories whose files contain ``text``, and all trajectories outside the files."""
        found = {(source.info.run_id, trace_id) for source in self.sources for trace_id in source.ids(None)}
        of = ", ".join(ID)
        for name, columns in SEARCHED.items():
            wanted = TABLES[name].chosen(*ID, *columns)
            for part in self.views.of_files(TABLES[name], wanted, None):
                form = "contains(lower({}), lower(?))" if in_any_case else "contains({}, ?)"
                where = " OR ".join(form.format(column) for column in columns)
                sql = f"SELECT DISTINCT {of} FROM ({part}) WHERE {where}"
                found |= {(run_id, trace_id) for run_id, trace_id in self.views.asked(sql, [text] * len(columns))}
        ids = TABLES["turns"].chosen(*ID, "response_ids", "response_text")
        for part in self.views.of_files(TABLES["turns"], ids, None):  # a tokenizer may have been named since
            sql = f"SELECT DISTINCT {of} FROM ({part}) WHERE response_text IS NULL AND response_ids IS NOT NULL"
            found |= {(run_id, trace_id) for run_id, trace_id in self.views.asked(sql)}
        return found

    # -- whole trajectories --------------------------------------------------------------------------------------------

    def resolve(self, prefix: str) -> str:
        """Return the whole id of the only trajectory that begins with ``prefix`` (MLflow prepends ``tr-``). Raises
        ``NotFound`` if no trajectory or several trajectories match."""
        return str(self._found(prefix).trace_id)

    def _found(self, prefix: str) -> Any:
        """Return the row with the columns ``ID`` of the only trajectory that matches."""
        wanted = prefix.removeprefix("tr-").lower()
        begins = Condition("starts_with(trace_id, ?)", (wanted,), frozenset({"trace_id"}))
        rows = self.select(begins, ID, sort="trace_id", limit=4, roots=True) if wanted else []
        if not rows:
            raise NotFound(f"no trace of this run begins with {prefix!r}; autotrace ls shows them")
        if len(rows) > 1:
            runs = {row.run_id for row in rows}
            found = ", ".join(row.trace_id if len(runs) == 1 else f"{row.trace_id} of {row.run_id}" for row in rows)
            which = "" if len(runs) == 1 else f"""; choose with --where "run_id = '{rows[0].run_id}'\""""
            raise NotFound(f"{prefix!r} is the beginning of several traces: {found}{which}")
        return rows[0]

    def load(self, prefix: str, *, texts: bool = True) -> Trajectory:
        """Load the trajectory whose id begins with ``prefix``, open calls included, decoded if ``texts``. Raises
        ``NotFound`` if no trajectory matches, ``Gone`` if only the trajectory's line is left."""
        return self.one(self._found(prefix), texts=texts)

    def one(self, row: Any, *, texts: bool = True) -> Trajectory:
        """Load the trajectory of a row that has ``ID``. Raises the errors of ``load``."""
        return self._labelled(self.source(row.run_id).load(row.trace_id, texts=texts))

    def each(self, rows: Iterable[Any], *, texts: bool = True) -> Iterator[tuple[Any, Trajectory | None]]:
        """Yield each of ``rows`` (with ``ID``) with its trajectory; None if only the line is left."""
        listed = iter(rows)
        while chunk := list(islice(listed, IN_MEMORY)):
            ids: dict[str, list[str]] = {}
            for row in chunk:
                ids.setdefault(row.run_id, []).append(row.trace_id)
            stored: dict[tuple[str, str], Trajectory] = {}
            for run_id, of_run in ids.items():
                with suppress(Gone):
                    stored |= {(run_id, id): one for id, one in self.source(run_id).stored(of_run).items()}
            for row in chunk:
                one = stored.get(id_of(row))
                if one is None:
                    with suppress(KeyError):
                        one = self.source(row.run_id).load(row.trace_id, texts=texts)
                yield row, one and self._labelled(one)

    def _labelled(self, trajectory: Trajectory) -> Trajectory:
        """Add the label that a person gave to the facts of the trajectory."""
        given = self.views.labels.get((trajectory.run_id, trajectory.trace_id))
        if given is not None:
            facts = {name: value for name, value in trajectory.facts.items() if name not in LABELS}
            values = zip(LABELS, (given.label, given.why), strict=True)
            trajectory.facts = facts | {name: value for name, value in values if value is not None}
        return trajectory

    def source(self, run_id: str) -> Source:
        """Return the run with this id; the newest run if no run has the id."""
        return self._by_run.get(run_id, self.run)

    @functools.cached_property
    def _by_run(self) -> dict[str, Source]:
        return {source.info.run_id: source for source in self.sources}

    def pages(self) -> dict[tuple[str, str], str]:
        """Return ``ID`` -> URL of the trajectory's page in a backend, for trajectories with a page."""
        return {(source.info.run_id, id): page for source in self.sources for id, page in source.pages().items()}

    @property
    def run(self) -> Source:
        """Return the newest run, or the only run."""
        return self.sources[-1]

    def close(self) -> None:
        """Close the database and the sources."""
        self.views.close()
        for source in self.sources:
            source.close()


def mapping(text: str | None) -> dict[str, Any]:
    """Parse a mapping in JSON; return an empty mapping for other text."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _wanted(condition: Condition, roots: bool) -> str:
    return condition.sql if roots else f"is_trajectory AND ({condition.sql})"
