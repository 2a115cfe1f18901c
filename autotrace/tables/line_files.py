"""Read lines of JSON, as the backend ``jsonl`` and ``autotrace export --format jsonl`` write trajectories."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from autotrace.config import ids
from autotrace.config.ids import RunId, SpanId
from autotrace.insight.profile import encode
from autotrace.insight.settings import TrainerSettings
from autotrace.run import files
from autotrace.tables.errors import Gone, QueryError
from autotrace.tables.rebuild import as_error, connected
from autotrace.tables.sources import Source, Steps, stored_info, within
from autotrace.trajectory.deferred import DeferrableField
from autotrace.trajectory.jsonable import EXPANDS, expands, integer
from autotrace.trajectory.model import Span, Trajectory

FILE = "trajectories.jsonl"
SUFFIX = ".jsonl"
_CLOCK = range(1 << 63)
_MADE = frozenset({"prompt_ids", "prompt_text", "error", "title"})
"""Fields of ``Span`` whose type on the line differs."""

_KINDS = {
    name: get_args(kind)[0] | None if get_origin(kind) is DeferrableField else kind
    for name, kind in get_type_hints(Span).items()
}
_IDS = {"span_id": SpanId, "parent_id": SpanId | None, "prompt_base": SpanId | None}
_FLOATS = [name for name, kind in _KINDS.items() if kind == list[float] | None]


def _types() -> list[tuple[str, Any, Any]]:
    """Return the fields of a span on a line: name, type, default."""
    fields: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(Span):
        if field.name not in _MADE:
            kind: Any = list[float | str | None] | None if field.name in _FLOATS else _KINDS[field.name]  # "nan"
            kind = _IDS.get(field.name, kind)
            default = msgspec.NODEFAULT if field.default is dataclasses.MISSING else field.default
            is_made = field.default_factory is not dataclasses.MISSING
            fields.append((field.name, kind, msgspec.field(default_factory=dict) if is_made else default))
    return [*fields, ("prompt_text", str | None, None), ("error", list[str | None] | None, None)]


_Span = msgspec.defstruct("_Span", _types(), kw_only=True)


class _Line(msgspec.Struct):
    trace_id: str
    spans: list[_Span]  # type: ignore[valid-type]  # made of the fields of Span
    run_id: RunId = ""
    attributes: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    notes: list[str] = []


_decoder = msgspec.json.Decoder(_Line)


class LineFile(Source):
    """Read the trajectories of a run in a file. The last line of a trajectory counts."""

    def __init__(
        self, path: Path, run_id: str, at: dict[str, tuple[int, int, int | None]], seen: tuple[int, int] | None
    ) -> None:
        """Take ``seen``, the result of ``fingerprint`` before the file was read."""
        self.seen = seen
        super().__init__(path, stored_info(run_id, min((start for start, _, _ in at.values()), default=None)))
        self._at = at
        """Trace id -> start, offset of the line, step."""

    def ids(self, steps: Steps | None) -> Sequence[str]:
        """See ``Source``."""
        found = [(start, id) for id, (start, _, step) in self._at.items() if within(step, steps)]
        return [id for _, id in sorted(found)]

    def load(self, trace_id: str, *, texts: bool = True) -> Trajectory:
        """See ``Source``."""
        one = None
        if trace_id in self._at:
            with self.path.open("rb") as file:
                file.seek(self._at[trace_id][1])
                one = _trajectory(file.readline())
        if one is None or one.trace_id != trace_id:
            raise Gone(f"trace {trace_id} is gone from {self.path}")
        from autotrace.insight.examine import examine  # all detectors

        one.profile = encode(examine(one, TrainerSettings()))
        return one

    def fingerprint(self) -> object:
        """See ``Source``."""
        return files.changed(self.path)

    def again(self) -> Source | None:
        """See ``Source``: an unchanged file is not read again for each run."""
        return self if self.seen is not None and self.seen == self.fingerprint() else None


def line_files(path: Path) -> list[LineFile]:
    """Return the runs in ``path``: a file of lines, or a folder with ``trajectories.jsonl``. Raises ``QueryError`` for
    another file."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file() or (file != path and file.is_symlink()) or (not path.is_dir() and path.suffix != SUFFIX):
        return []
    runs: dict[str, dict[str, tuple[int, int, int | None]]] = {}
    seen = files.changed(file)
    for at, one in _read(file):
        if not re.fullmatch(ids.TRACE, one.trace_id):
            raise QueryError(f"{one.trace_id[:40]!r} is no id of a trajectory: it has to be 32 lower-case hex digits")
        if not all(time is None or time in _CLOCK for span in one.spans for time in (span.start_ns, span.end_ns)):
            raise QueryError(f"{file} cannot be read: a time of trace {one.trace_id} is too large for a clock")
        step = integer(one.attributes.get("step"))
        runs.setdefault(one.run_id, {})[one.trace_id] = (one.root.start_ns, at, step)
    return [LineFile(file, run_id, found, seen) for run_id, found in runs.items()]


def _read(path: Path) -> Iterator[tuple[int, Trajectory]]:
    """Yield the trajectories of all runs, each with the offset of the line. A last line without its end is still being
    written."""
    try:
        with path.open("rb") as file:
            if not files.is_ours(os.fstat(file.fileno())):
                raise QueryError(f"{path} cannot be read: it is no regular file, or mostly a hole")
            at = 0
            for number, line in enumerate(file, 1):
                if expands(line):
                    raise QueryError(f"{path}, line {number} cannot be read: {EXPANDS}")
                if line.endswith(b"\n") and line.strip():
                    if number == 1 and b'"spans"' not in line:
                        return  # a file of another program
                    one = _trajectory(line)
                    if one is None:
                        raise QueryError(
                            f"{path}, line {number}: this is no trajectory as autotrace export --format jsonl writes "
                            "it; export it anew"
                        )
                    yield at, one
                at += len(line)
    except OSError as error:
        raise QueryError(f"{path} cannot be read: {error.strerror}") from error


def _trajectory(line: bytes) -> Trajectory | None:
    """Parse a line; return None if the line is not a trajectory."""
    try:
        read = _decoder.decode(line)
        if not read.spans:
            return None
        spans = connected([_span(span) for span in read.spans])
        return Trajectory(read.trace_id, read.run_id, spans, read.attributes, read.facts, read.notes)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _span(given: Any) -> Span:
    values = msgspec.structs.asdict(given)
    for name in _FLOATS:
        if values[name] and any(type(item) is str for item in values[name]):
            values[name] = [float(item) if isinstance(item, str) else item for item in values[name]]
    values["error"] = as_error(values["error"])
    return Span(**values)
