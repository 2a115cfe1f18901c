"""Trajectories as lines of JSON in ``trajectories.jsonl`` of the run folder: one object a line, nothing to install.

A line: ``trace_id``, ``run_id``, ``status``, ``attributes``, ``facts``, ``notes``, ``findings`` where there are
some, and ``spans``. A span: ``span_id``,
``parent_id``, ``name``, ``role``, ``key``, ``host``, ``pid``, ``start_ns``, ``end_ns``, ``status``, ``inputs``,
``output``, ``attributes``, and where there is one ``error`` (type, message, stack). A call that yielded items also
``items`` (how many) and ``first_item_ns``; LLM calls also ``messages``, ``new_prompt_text``, ``response_text``,
``new_prompt_ids``, ``response_ids``, ``logprobs`` (lists), ``prompt_tokens``, ``response_tokens`` (how many),
``prompt_base`` and ``prompt_keep`` as in ``trajectory.model.Span``; the agent's call also ``prompt_text``,
``response_text``, ``response_mask`` and ``response_parts``. The line of a trajectory that was sent again (a late
reward) replaces the earlier one.

Several processes may write, one at a time: what each one appends, or rewrites, it does under a lock, and it reads first
what the others have changed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from autotrace.insight.profile import codes, decode
from autotrace.run import files
from autotrace.sinks import payload
from autotrace.sinks.protocol import Unavailable
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Span, Trajectory

FILE = "trajectories.jsonl"
LOCK = "trajectories.lock"
"""Held by who writes; in it, how often the file was rewritten (the number of its inode may be given away again)."""


class JsonlSink:
    """See the module. Lines appear in the order of delivery."""

    name = "jsonl"

    def __init__(self, run_folder: Path, memory: MutableMapping[str, str]) -> None:
        self.sent = 0
        self._path = run_folder / FILE
        self._lock = run_folder / LOCK
        self._lines: dict[str, tuple[int, int]] = {}
        """Trace id -> offset and length of its line, as far as the file was read."""
        self._version: tuple[bytes, int] | None = None
        """How often the file had been rewritten, and its inode, when it was read."""
        self._end = 0
        """Of what was read."""
        memory["place"] = str(self._path)

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Append; where one of them has a line already, rewrite the file without it (atomically)."""
        lines = {trajectory.trace_id: _encoded(trajectory) for trajectory in trajectories}
        try:
            with self._locked() as lock:
                self._read_on(lock)
                if not self._lines.keys().isdisjoint(lines):
                    self._drop(lines.keys(), lock)
                self._append(lines)
        except OSError as error:
            self._version = None
            raise Unavailable(f"cannot write {self._path}: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        fd = files.shared(self._lock)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def _read_on(self, lock: int) -> None:
        """Find the lines that are new; an incomplete last line (its writer was killed) is cut off."""
        fd = files.append(self._path)
        try:
            info = os.fstat(fd)
            version = (os.pread(lock, 20, 0), info.st_ino)
            if version != self._version or info.st_size < self._end:
                self._lines, self._version, self._end = {}, version, 0
            if info.st_size > self._end:
                with self._path.open("rb") as file:
                    file.seek(self._end)
                    for line in file:
                        if not line.endswith(b"\n"):
                            break
                        self._lines[_trace_id(line)] = (self._end, len(line))
                        self._end += len(line)
                os.ftruncate(fd, self._end)
        finally:
            os.close(fd)

    def _drop(self, trace_ids: Set[str], lock: int) -> None:
        part = self._path.with_suffix(".part")
        kept = {}
        with self._path.open("rb") as old, os.fdopen(files.overwrite(part), "wb") as new:
            for trace_id, (at, length) in self._lines.items():
                if trace_id not in trace_ids:
                    old.seek(at)
                    kept[trace_id] = (new.tell(), new.write(old.read(length)))
            end, inode = new.tell(), os.fstat(new.fileno()).st_ino
        count = b"%d" % (int(os.pread(lock, 20, 0) or 0) + 1)
        os.pwrite(lock, count, 0)
        os.replace(part, self._path)
        self._lines, self._end, self._version = kept, end, (count, inode)

    def _append(self, lines: Mapping[str, bytes]) -> None:
        with os.fdopen(files.append(self._path), "wb") as file:
            for trace_id, line in lines.items():
                file.write(line)
                self._lines[trace_id] = (self._end, len(line))
                self._end += len(line)
            file.flush()
            os.fsync(file.fileno())
        self.sent += sum(map(len, lines.values()))

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Nothing of it is needed."""

    def size(self, trajectory: Trajectory) -> int:
        """Length of its line."""
        return len(_encoded(trajectory))

    def page(self, trajectory: Trajectory) -> str | None:
        """A file has no pages."""
        return None

    def close(self) -> None:
        """No file is held open."""


class _Id(msgspec.Struct):
    trace_id: str


_BEGIN = b'{"trace_id":"'


def _trace_id(line: bytes) -> str:
    """Of one line of the file."""
    end = line.find(b'"', len(_BEGIN), len(_BEGIN) + 64)
    if line.startswith(_BEGIN) and end > 0 and b"\\" not in line[:end]:
        return line[len(_BEGIN) : end].decode()
    return msgspec.json.decode(line, type=_Id).trace_id


def _encoded(trajectory: Trajectory) -> bytes:
    return msgspec.json.encode(line_of(trajectory)) + b"\n"


def line_of(trajectory: Trajectory) -> dict[str, Any]:
    """The object that stands on a trajectory's line."""
    return {
        "trace_id": trajectory.trace_id,
        "run_id": trajectory.run_id,
        "status": trajectory.status,
        "attributes": jsonable(trajectory.attributes),
        "facts": jsonable(trajectory.facts),
        "notes": trajectory.notes,
        **({"findings": found} if (found := codes(decode(trajectory.profile))) else {}),
        "spans": [_span(span) for span in trajectory.spans],
    }


_ALWAYS = (
    "span_id",
    "parent_id",
    "name",
    "role",
    "key",
    "host",
    "pid",
    "start_ns",
    "end_ns",
    "status",
    "inputs",
    "output",
    "attributes",
)
_SOMETIMES = (
    "error", "new_prompt_ids", "prompt_base", "prompt_keep", "response_ids", "prompt_tokens", "response_tokens",
    "logprobs", "response_mask", "new_prompt_text", "response_text", "response_parts", "messages",
)  # fmt: skip
"""Left out where there is nothing in them."""


def _span(span: Span) -> dict[str, Any]:
    line = {name: jsonable(getattr(span, name)) for name in _ALWAYS}
    line.update({name: jsonable(value) for name in _SOMETIMES if (value := getattr(span, name))})
    line.update({name: jsonable(value) for name, value in payload.measured(span).items()})
    if span.first_item_ns:
        line["first_item_ns"] = span.first_item_ns
    if span.role != "llm" and span.prompt_text is not None:
        line["prompt_text"] = span.prompt_text
    return line
