"""Lines of JSON, as the backend ``jsonl`` and ``autotrace export --format jsonl`` write them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from autotrace.query.errors import QueryError
from autotrace.query.stored.place import as_error, connected, row_of
from autotrace.ship.store.row import Row
from autotrace.sinks.jsonl.sink import FILE
from autotrace.tables.metrics import OfStep
from autotrace.trajectory.deferred import DeferrableField
from autotrace.trajectory.model import Span, Trajectory

SUFFIX = ".jsonl"
_MADE = frozenset({"prompt_ids", "prompt_text", "error", "title"})
"""Fields of ``Span`` whose type on the line is another."""

_KINDS = {
    name: get_args(kind)[0] | None if get_origin(kind) is DeferrableField else kind
    for name, kind in get_type_hints(Span).items()
}
_FLOATS = [name for name, kind in _KINDS.items() if kind == list[float] | None]


def _types() -> list[tuple[str, Any, Any]]:
    """The fields of a span on a line: name, type, default."""
    fields: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(Span):
        if field.name not in _MADE:
            kind: Any = list[float | str | None] | None if field.name in _FLOATS else _KINDS[field.name]  # "nan"
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            fields.append((field.name, kind, msgspec.NODEFAULT if required else _default(field)))
    return [*fields, ("prompt_text", str | None, None), ("error", list[str | None] | None, None)]


def _default(field: Any) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else msgspec.field(default_factory=dict)


_Span = msgspec.defstruct("_Span", _types(), kw_only=True)


class _Line(msgspec.Struct):
    trace_id: str
    spans: list[_Span]  # type: ignore[valid-type]  # made of the fields of Span
    run_id: str = ""
    attributes: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    notes: list[str] = []


_decoder = msgspec.json.Decoder(_Line)


class Lines:
    """The trajectories of one run in one file; see ``Place``."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.path, self.run_id = path, run_id
        self._at: dict[str, int] = {}

    def files(self) -> Sequence[Path]:
        """See ``Place``."""
        return [self.path]

    def rows(self) -> Iterator[Row]:
        """See ``Place``. Of several lines of a trajectory the last one counts."""
        self._at, rows = {}, {}
        for at, one in read(self.path):
            if one.run_id == self.run_id:
                self._at[one.trace_id] = at
                rows[one.trace_id] = row_of(one)
        yield from rows.values()

    def step_facts(self) -> Mapping[int, OfStep]:
        """See ``Place``: lines are about trajectories."""
        return {}

    def load(self, row: Row) -> Trajectory | None:
        """See ``Place``."""
        at = self._at.get(row.trace_id)
        if at is None:
            return None
        with self.path.open("rb") as file:
            file.seek(at)
            line = file.readline()
        one = _trajectory(line)
        return one if one is not None and one.trace_id == row.trace_id else None


def places(path: Path) -> list[Lines]:
    """The runs whose trajectories stand in ``path``: a file of lines, or a folder with ``trajectories.jsonl``. Raises
    ``QueryError`` for another file."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file() or (not path.is_dir() and path.suffix != SUFFIX):
        return []
    return [Lines(file, run_id) for run_id in dict.fromkeys(_run_ids(file))]


class _RunId(msgspec.Struct):
    run_id: str
    trace_id: str


def _run_ids(path: Path) -> Iterator[str]:
    for number, line in _lines(path):
        try:
            yield msgspec.json.decode(line[1], type=_RunId).run_id
        except msgspec.MsgspecError:
            raise _not_ours(path, number) from None


def read(path: Path) -> Iterator[tuple[int, Trajectory]]:
    """The trajectories of all runs, each with where its line begins. Raises ``QueryError``."""
    for number, (at, line) in _lines(path):
        one = _trajectory(line)
        if one is None:
            raise _not_ours(path, number)
        yield at, one


def _lines(path: Path) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Number from 1, offset, content. A last line without its end is being written."""
    try:
        with path.open("rb") as file:
            at = 0
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n") and line.strip():
                    yield number, (at, line)
                at += len(line)
    except OSError as error:
        raise QueryError(f"{path} cannot be read: {error.strerror}") from error


def _not_ours(path: Path, number: int) -> QueryError:
    return QueryError(
        f"{path}, line {number}: this is no trajectory as autotrace export --format jsonl writes it; export it anew"
    )


def _trajectory(line: bytes) -> Trajectory | None:
    """None where the line is something else."""
    try:
        read = _decoder.decode(line)
        if not read.spans:
            return None
        spans = connected([_span(span) for span in read.spans])
        return Trajectory(read.trace_id, read.run_id, spans, read.attributes, read.facts, read.notes)
    except (msgspec.MsgspecError, ValueError):
        return None


def _span(given: Any) -> Span:
    values = msgspec.structs.asdict(given)
    for name in _FLOATS:
        if values[name] and any(type(item) is str for item in values[name]):
            values[name] = [float(item) if isinstance(item, str) else item for item in values[name]]
    values["error"] = as_error(values["error"])
    return Span(**values)
