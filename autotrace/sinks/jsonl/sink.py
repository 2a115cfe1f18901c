"""Write trajectories as lines of JSON in ``trajectories.jsonl`` of the run folder. See ``docs/backends.md``.

A line: ``trace_id``, ``run_id``, ``status``, ``attributes``, ``facts``, ``notes``, ``findings`` (if any), and
``spans``. A span: ``span_id``, ``parent_id``, ``name``, ``role``, ``key``, ``host``, ``pid``, ``start_ns``, ``end_ns``,
``status``, ``inputs``, ``output``, ``attributes``, and ``error`` if the span failed (type, message, stack). A call that
yielded items also has ``items`` (how many) and ``first_item_ns``. LLM calls also have ``messages``,
``new_prompt_text``, ``response_text``, ``new_prompt_ids``, ``response_ids``, ``logprobs`` (lists), ``prompt_tokens``,
``response_tokens`` (how many), for some trajectories the trainer's values (``trajectory.model.TRAINERS``),
``prompt_base`` and ``prompt_keep`` as in ``trajectory.model.Span``. The agent's call also has ``prompt_text``,
``response_text``, ``response_mask`` and ``response_parts``.

The line of a trajectory that was sent again (a late reward) is at the end, and the earlier line is removed: at once in
a small file; in a large file when half of the file is such lines, and at last when the sink is closed. The bytes
written for late rewards therefore grow with the rewards, not with the file times the rewards. Until the removal the
last line of a trajectory counts.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from autotrace.insight.profile import codes, decode
from autotrace.run import files
from autotrace.sinks import payload
from autotrace.sinks.protocol import Sink, Unavailable
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import TRAINERS, Span, Trajectory

_encode = msgspec.json.Encoder().encode


def encoded(trajectory: Trajectory) -> bytes:
    """Encode the line, with the line's end."""
    line = line_of(trajectory)
    try:
        return _encode(line) + b"\n"
    except (TypeError, ValueError, OverflowError):  # values that are not plain: not from our assembly
        return _encode(jsonable(line)) + b"\n"


def line_of(trajectory: Trajectory) -> dict[str, Any]:
    """Return the object on a trajectory's line."""
    return {
        "trace_id": trajectory.trace_id,
        "run_id": trajectory.run_id,
        "status": trajectory.status,
        "attributes": jsonable(trajectory.attributes),
        "notes": trajectory.notes,
        **_late(trajectory),
        "spans": [_span(span) for span in trajectory.spans],
    }


def _late(trajectory: Trajectory) -> dict[str, Any]:
    """Return the fields that may become known after the trajectory."""
    found = codes(decode(trajectory.profile))
    return {"facts": jsonable(trajectory.facts), **({"findings": found} if found else {})}


_ALWAYS = (
    "span_id", "parent_id", "name", "role", "key", "host", "pid", "start_ns", "end_ns", "status", "inputs", "output",
    "attributes",
)  # fmt: skip
_SOMETIMES = (
    "error", "new_prompt_ids", "prompt_base", "prompt_keep", "response_ids", "prompt_tokens", "response_tokens",
    "logprobs", *TRAINERS, "response_mask", "new_prompt_text", "response_text", "response_parts", "messages",
)  # fmt: skip
"""Names of fields that are left out if empty."""
_DEFERRED = frozenset({"new_prompt_ids", "response_ids", "logprobs"})
_NUMBERS = frozenset({"logprobs", *TRAINERS})


def _span(span: Span) -> dict[str, Any]:
    """Return the fields of a span, which are plain values except log probabilities of impossible tokens."""
    line = {name: getattr(span, name) for name in _ALWAYS}
    having = vars(span)  # without what has the class's default, in which there is nothing
    for name in _SOMETIMES:
        if value := getattr(span, name) if name in _DEFERRED else having.get(name):
            if name in _NUMBERS and not math.isfinite(sum(value)):
                value = jsonable(value)
            line[name] = value
    line.update(payload.measured(span))
    if span.first_item_ns:
        line["first_item_ns"] = span.first_item_ns
    if span.role != "llm" and (text := span.prompt_text) is not None:
        line["prompt_text"] = text
    return line


FILE = "trajectories.jsonl"
SMALL = 4 << 20
"""Bytes of a file that is rewritten whenever a line is replaced."""


_BEGIN = re.compile(rb'{"trace_id":"(\w+)"', re.ASCII)


def _ids(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield trace id and length of each whole line: the writer of the last line may have been killed. A line without an
    id is its own id."""
    for line in file:
        if line.endswith(b"\n"):
            found = _BEGIN.match(line)
            yield found[1] if found else line, len(line)


class JsonlSink(Sink):
    """Writes the lines; see the module. Lines appear in the order of delivery."""

    name = "jsonl"
    needs_calls = False

    def __init__(self, run_folder: Path, memory: MutableMapping[str, str]) -> None:
        self.sent = 0
        self._path = run_folder / FILE
        self._lines: dict[bytes, tuple[int, int]] = {}
        """Maps a trace id to the place of the last line about the trace: start and length, in bytes."""
        self._size = 0
        """Bytes of the file that this sink knows."""
        self._known: tuple[int, int, int] | None = None
        """Holds ``_stamp`` of the known file. A file that somebody changed must be read first."""
        self._replaced = 0
        """Bytes of lines that a later line replaces."""
        memory["place"] = str(self._path)

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Append the lines of ``trajectories``; remove earlier lines when due (atomically)."""
        self._write(lambda: {trajectory.trace_id.encode(): encoded(trajectory) for trajectory in trajectories})

    def facts(self, trajectories: Sequence[Trajectory]) -> None:
        """Append the lines of ``trajectories`` with new facts and findings. A line that somebody removed from the file
        stays removed."""
        self._write(lambda: self._told(trajectories))

    def _told(self, trajectories: Sequence[Trajectory]) -> dict[bytes, bytes]:
        lines: dict[bytes, bytes] = {}
        with self._path.open("rb") as file:
            for trajectory in trajectories:
                trace_id = trajectory.trace_id.encode()
                start, length = self._lines.get(trace_id, (0, 0))
                file.seek(start)
                with contextlib.suppress(msgspec.DecodeError):  # removed, or changed by somebody
                    fields = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
                    fields.pop("findings", None)
                    lines[trace_id] = _encode(fields | _late(trajectory)) + b"\n"
        return lines

    def _write(self, lines_of: Callable[[], dict[bytes, bytes]]) -> None:
        """Append lines (trace id -> line), made once the file is known."""
        try:
            self._look()
            lines = lines_of()
            with os.fdopen(files.append(self._path), "wb") as file:
                file.writelines(lines.values())
                file.flush()
                os.fsync(file.fileno())
            for trace_id, line in lines.items():
                self._replaced += self._lines.get(trace_id, (0, 0))[1]
                self._lines[trace_id] = self._size, len(line)
                self._size += len(line)
            self._known = self._stamp()
            if self._size <= SMALL or 2 * self._replaced > self._size:
                self._rewrite()
        except OSError as error:
            self._known = None
            raise Unavailable(f"cannot write {self._path}: {error.strerror}") from error
        self.sent += sum(map(len, lines.values()))

    def _look(self) -> None:
        """Find the last line of each trace, unless the file is known; cut an incomplete last line off the file."""
        files.ensure(self._path)
        if self._known is not None and self._stamp() == self._known:
            return
        self._size, self._lines = 0, {}
        with self._path.open("rb") as file:
            for trace_id, length in _ids(file):
                self._lines[trace_id] = self._size, length
                self._size += length
        os.truncate(self._path, self._size)
        self._replaced = self._size - sum(length for _, length in self._lines.values())
        self._known = self._stamp()

    def _stamp(self) -> tuple[int, int, int] | None:
        """Return what changes when somebody writes the file; None: somebody did, and the size is another."""
        info = self._path.stat()
        return (info.st_ino, info.st_size, info.st_mtime_ns) if info.st_size == self._size else None

    def _rewrite(self) -> None:
        """Write the file anew without the lines that a later line replaces."""
        if not self._replaced:
            return
        self._look()
        part = self._path.with_suffix(".part")
        with self._path.open("rb") as old, os.fdopen(files.overwrite(part), "wb") as new:
            for trace_id, (start, length) in sorted(self._lines.items(), key=lambda each: each[1]):
                old.seek(start)
                self._lines[trace_id] = new.tell(), new.write(old.read(length))
            new.flush()
            os.fsync(new.fileno())
            self._size, self._replaced = new.tell(), 0
        os.replace(part, self._path)
        self._known = self._stamp()

    def size(self, trajectory: Trajectory) -> int:
        """Return the length of the trajectory's line."""
        return len(encoded(trajectory))

    def close(self) -> None:
        """Take out the replaced lines. No file is held open."""
        with contextlib.suppress(OSError):
            self._rewrite()
