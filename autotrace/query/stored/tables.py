"""Parquet: the tables of ``docs/data.md``, as the backend and ``autotrace export --format parquet`` write them."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from autotrace.query.errors import QueryError
from autotrace.query.source import need_arrow
from autotrace.query.stored.place import as_error, connected, finished
from autotrace.ship.store.row import COLUMNS, Row
from autotrace.tables import metrics
from autotrace.tables.metrics import METRICS, OfStep
from autotrace.tables.schema import TABLES
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import answered_words, asked_words

_TIMES = ("queue_s", "prefill_s", "decode_s", "way_s", "tool_s", "reward_s", "other_s", "llm_s")
_NAMES = {"llm_calls": "turns", "rollout_log_probs": "logprobs", "prompt_text": "new_prompt_text"}
"""Column -> what it is called in a row of the state, or in a span."""
_OF_TOKENS = {
    "old_log_probs": "old_logprobs", "rollout_log_probs": "trained_logprobs", "ref_log_prob": "ref_logprobs",
    "rollout_is_weights": "is_weights",
}  # fmt: skip
_SPAN = frozenset(field.name for field in fields(Span))


class Tables:
    """The trajectories of one run in the tables below a folder; see ``Place``."""

    def __init__(self, path: Path, project: str, run_id: str) -> None:
        self.path, self.run_id = path, run_id
        self._project = project

    def files(self) -> Sequence[Path]:
        """See ``Place``."""
        return [self.path / name for name in self._names("trajectories")]

    def rows(self) -> Iterator[Row]:
        """See ``Place``."""
        facts: dict[str, dict[str, Any]] = {}
        for fact in self._read("facts", ["trace_id", "name", "value"]):
            facts.setdefault(fact["trace_id"], {})[fact["name"]] = _decoded(fact["value"])
        names = [column.name for column in TABLES["trajectories"].columns if _is_short(column.type)]
        for row in self._read("trajectories", names):
            yield _row(row, facts.get(row["trace_id"], {}))

    def step_facts(self, step: int | None = None) -> Mapping[int, OfStep]:
        """See ``Place``; of ``step`` alone, if it is given."""
        within = "*" if step is None else f"step-{step}"
        names = sorted(map(str, (self.path / METRICS.name).glob(f"*/{glob.escape(self.run_id)}/{within}/*.parquet")))
        return metrics.steps(self._rows_of(METRICS.name, None, names))

    def load(self, row: Row) -> Trajectory | None:
        """See ``Place``."""
        one = next(iter(self._read("trajectories", None, row)), None)
        spans = {each["span_id"]: _span(each) for each in self._read("spans", None, row)}
        if one is None or not spans:
            return None
        for each in self._read("turns", None, row):
            _fill(spans[each["span_id"]], each, _NAMES)
            _forget_recorded(spans[each["span_id"]])
        for each in self._read("tokens", None, row):
            _fill(spans[each["span_id"]], each, _OF_TOKENS)
        listed = connected(list(spans.values()))
        if one["response_text"] is not None or one["response_ids"] is not None or one["response_mask"] is not None:
            _fill(listed[0], one, {})
        return Trajectory(
            row.trace_id, self.run_id, listed, _mapping(one["attributes"]), _mapping(row.facts), one["notes"] or [],
            one["profile"] or "{}", one["tokenizer"],
        )  # fmt: skip

    def _names(self, table: str, within: str = "") -> list[str]:
        top = self.path / table / self._project / self.run_id
        return sorted(str(path.relative_to(self.path)) for path in Path(f"{top}{within}").rglob("*.parquet"))

    def _read(self, table: str, columns: list[str] | None, row: Row | None = None) -> Iterator[dict[str, Any]]:
        """Rows in their order; of the trajectory of ``row`` only."""
        within = "" if row is None else f"/{'no-step' if row.step is None else f'step-{row.step}'}"
        return self._rows_of(table, columns, self._names(table, within), None if row is None else row.trace_id)

    def _rows_of(
        self, table: str, columns: list[str] | None, names: Sequence[str], trace_id: str | None = None
    ) -> Iterator[dict[str, Any]]:
        need_arrow()
        import pyarrow as pa
        import pyarrow.dataset as ds

        from autotrace.tables import arrow

        paths = [str(self.path / name) for name in names]
        wanted = None if trace_id is None else ds.field("trace_id") == trace_id
        try:
            files = ds.dataset(paths, schema=arrow.schema(TABLES[table]), format="parquet")
            for batch in files.to_batches(columns=columns, filter=wanted):
                yield from batch.to_pylist()
        except (OSError, pa.ArrowException) as error:
            problem = str(error).partition("\n")[0]
            raise QueryError(f"the table {table} below {self.path} cannot be read: {problem}") from error


def places(path: Path) -> list[Tables]:
    """The runs whose tables stand below the folder ``path``."""
    found = sorted((path / "trajectories").glob("*/*/*/*.parquet")) if path.is_dir() else []
    runs = dict.fromkeys((file.parts[-4], file.parts[-3]) for file in found)
    return [Tables(path, project, run_id) for project, run_id in runs]


def _is_short(kind: str) -> bool:
    return not kind.startswith("list<")


def _row(given: Mapping[str, Any], facts: Mapping[str, Any]) -> Row:
    row = Row(given["trace_id"])
    for name, value in given.items():
        field = _NAMES.get(name, name)
        if field in COLUMNS and value is not None:
            setattr(row, field, value)
    row.facts = msgspec.json.encode(facts).decode()
    times = {name: given[name] for name in _TIMES if given.get(name) is not None}
    row.times = msgspec.json.encode(times).decode()
    return finished(row)


def _span(given: Mapping[str, Any]) -> Span:
    names = ("span_id", "parent_id", "name", "role", "key", "start_ns", "end_ns", "status", "host", "pid")
    span = Span(**{name: given[name] for name in names})
    span.first_item_ns, span.items = given["first_item_ns"], given.get("items") or 0
    span.inputs, span.output = _mapping(given["inputs"]), _decoded(given["output"])
    span.attributes = _mapping(given["attributes"])
    span.error = as_error([given[f"error_{part}"] for part in ("type", "message", "stack")])
    return span


def _fill(span: Span, given: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Set what ``span`` does not have yet."""
    for name, value in given.items():
        field = names.get(name, name)
        if value is not None and field in _SPAN and getattr(span, field) is None:
            setattr(span, field, _decoded(value) if name == "messages" else value)
    span.prompt_keep = given.get("prompt_keep") or span.prompt_keep


def _forget_recorded(span: Span) -> None:
    """A text that was made of what was recorded, which is there as well, is none of decoding."""
    asked, span.new_prompt_text = span.new_prompt_text, None
    answered, span.response_text = span.response_text, None
    span.new_prompt_text = None if asked == asked_words(span) else asked
    span.response_text = None if answered == answered_words(span) else answered


def _decoded(text: str | None) -> Any:
    """A value in JSON; None for what is none."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _mapping(text: str | None) -> dict[str, Any]:
    value = _decoded(text)
    return value if isinstance(value, dict) else {}
