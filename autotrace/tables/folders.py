"""Folders of tables: ``TABLE/PROJECT/RUN/step-12/NAME.parquet``, as the backend ``parquet`` and ``autotrace export
--format parquet`` write them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run.status import Status
from autotrace.tables import metrics
from autotrace.tables.errors import Gone, QueryError
from autotrace.tables.metrics import METRICS, OfStep
from autotrace.tables.rebuilding import as_error, connected
from autotrace.tables.schema import TABLES
from autotrace.tables.sources import STORED, Source, Steps, stored_info
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import answered_words, asked_words

_NAMES = {"rollout_log_probs": "logprobs", "prompt_text": "new_prompt_text"}
"""Column -> what it is called in a span."""
_OF_TOKENS = {
    "old_log_probs": "old_logprobs", "rollout_log_probs": "trained_logprobs", "ref_log_prob": "ref_logprobs",
    "rollout_is_weights": "is_weights",
}  # fmt: skip
_SPAN = frozenset(field.name for field in fields(Span))
_CHANGES = "_runs"


class _Change(msgspec.Struct):
    """Of a run's files, not finished: which are new, and which they replace."""

    new: list[str]
    old: list[str]


class TableFolder(Source):
    """The trajectories of one run in the tables below a folder."""

    def __init__(self, root: Path, project: str, folder: str) -> None:
        """``project`` and ``folder``: as the folders of the run are called."""
        self._within = (project, folder)
        self._files = {name: self._visible(root, name) for name in TABLES}
        super().__init__(root, stored_info(*self._described(folder)))

    def _visible(self, root: Path, table: str) -> Sequence[str]:
        """Files that count, in order; none that is a link."""
        top = root.joinpath(table, *self._within)
        found = sorted(str(path) for path in top.glob("*/*.parquet") if not path.is_symlink())
        try:
            written = (root / _CHANGES / f"{self._within[1]}~change.json").read_bytes()
            change = msgspec.json.decode(written, type=_Change)
        except (OSError, msgspec.MsgspecError):
            return found
        new, old = ({str(root / path) for path in paths} for paths in (change.new, change.old))
        there = {path for path in new if os.path.exists(path)}
        return [path for path in found if path not in (old if there == new else new)]

    def _described(self, folder: str) -> tuple[str, int | None]:
        """Id of the run, and when it began."""
        rows = self._rows(TRAJECTORIES.name, ["run_id", "start_ns"])
        return (rows[0]["run_id"], min(row["start_ns"] for row in rows)) if rows else (folder, None)

    def files(self, table: str) -> Sequence[str]:
        """See ``Source``."""
        return self._files[table]

    def lines(self, table: str, columns: Sequence[str], steps: Steps | None) -> list[tuple[Any, ...]]:
        """See ``Source``: everything is in files."""
        return []

    def step_facts(self, step: int | None = None) -> Mapping[int, OfStep]:
        """See ``Source``."""
        return metrics.steps(row for row in self._rows(METRICS.name, None) if step is None or row["step"] == step)

    def load(self, trace_id: str, *, texts: bool = True) -> Trajectory:
        """See ``Source``."""
        one = next(iter(self._rows(TRAJECTORIES.name, None, trace_id)), None)
        spans = {each["span_id"]: _span(each) for each in self._rows("spans", None, trace_id)}
        if one is None or not spans:
            raise Gone(f"trace {trace_id} is gone from {self.path}")
        for each in self._rows("turns", None, trace_id):
            _fill(spans[each["span_id"]], each, _NAMES)
            _forget_recorded(spans[each["span_id"]])
        for each in self._rows("tokens", None, trace_id):
            _fill(spans[each["span_id"]], each, _OF_TOKENS)
        listed = connected(list(spans.values()))
        if one["response_text"] is not None or one["response_ids"] is not None or one["response_mask"] is not None:
            _fill(listed[0], one, {})
        facts = {each["name"]: _decoded(each["value"]) for each in self._rows("facts", None, trace_id)}
        return Trajectory(
            trace_id, self.info.run_id, listed, _mapping(one["attributes"]), facts, one["notes"] or [],
            one["profile"] or "{}", one["settings"] or "{}", one["tokenizer"],
        )  # fmt: skip

    def _rows(self, table: str, columns: list[str] | None, trace_id: str | None = None) -> list[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.dataset as ds

        from autotrace.tables import arrow

        wanted = None if trace_id is None else ds.field("trace_id") == trace_id
        try:
            found = ds.dataset(self._files[table], schema=arrow.schema(TABLES[table]), format="parquet")
            rows: list[dict[str, Any]] = found.to_table(columns=columns, filter=wanted).to_pylist()
        except FileNotFoundError:
            raise Gone(f"the table {table} is gone from {self.path}") from None
        except (OSError, pa.ArrowException) as error:
            problem = str(error).partition("\n")[0]
            raise QueryError(f"the table {table} below {self.path} cannot be read: {problem}") from error
        return rows

    def status(self) -> Status:
        """See ``Source``."""
        return Status(STORED, self.info.run_id, trajectories=len(self._rows(TRAJECTORIES.name, ["trace_id"])))

    def fingerprint(self) -> object:
        """See ``Source``."""
        return self._visible(self.path, TRAJECTORIES.name)


def table_folders(path: Path) -> list[TableFolder]:
    """The runs whose tables stand below the folder ``path``, which may be that of one run's trajectories."""
    if path.parent.parent.name == TRAJECTORIES.name and any(path.glob("*/*.parquet")):
        return [TableFolder(path.parents[2], path.parent.name, path.name)]
    found = sorted((path / TRAJECTORIES.name).glob("*/*/*/*.parquet")) if path.is_dir() else []
    runs = dict.fromkeys((file.parts[-4], file.parts[-3]) for file in found)
    return [TableFolder(path, project, folder) for project, folder in runs]


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
