"""Trajectories as lines of JSON in ``trajectories.jsonl`` of the run folder, nothing to install. ``docs/backends.md``
says what a line holds.

A line: ``trace_id``, ``run_id``, ``status``, ``attributes``, ``facts``, ``notes``, ``findings`` (if it has any),
and ``spans``. A span: ``span_id``, ``parent_id``, ``name``, ``role``, ``key``, ``host``, ``pid``, ``start_ns``,
``end_ns``, ``status``, ``inputs``, ``output``, ``attributes``, and ``error`` if it failed (type, message, stack).
A call that yielded items also ``items`` (how many) and ``first_item_ns``; LLM calls also ``messages``,
``new_prompt_text``, ``response_text``, ``new_prompt_ids``, ``response_ids``, ``logprobs`` (lists), ``prompt_tokens``,
``response_tokens`` (how many), for some trajectories what the trainer computed (``trajectory.model.TRAINERS``),
``prompt_base`` and ``prompt_keep`` as in ``trajectory.model.Span``; the agent's call
also ``prompt_text``, ``response_text``, ``response_mask`` and ``response_parts``.

The line of a trajectory that was sent again (a late reward) is at the end, and the earlier one is taken out: at
once in a small file; in a large one when such lines are half of it, and at last when the sink is closed. So what is
written for late rewards grows with them, not with the file times their number. Until then the last line of a
trajectory is the one that counts.

Several processes may write, one at a time: what each one appends, or rewrites, it does under a lock, and it reads first
what the others have changed."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from autotrace.insight.profile import codes, decode
from autotrace.run import files
from autotrace.sinks import payload
from autotrace.sinks.protocol import Sink, Unavailable
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import TRAINERS, Span, Trajectory

_encode = msgspec.json.Encoder().encode


def encoded(trajectory: Trajectory) -> bytes:
    """The line, with its end."""
    line = line_of(trajectory)
    try:
        return _encode(line) + b"\n"
    except (TypeError, ValueError, OverflowError):  # values that are not plain: not from our assembly
        return _encode(jsonable(line)) + b"\n"


def line_of(trajectory: Trajectory) -> dict[str, Any]:
    """The object on a trajectory's line."""
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


_SOMETIMES = (
    "error", "new_prompt_ids", "prompt_base", "prompt_keep", "response_ids", "prompt_tokens", "response_tokens",
    "logprobs", *TRAINERS, "response_mask", "new_prompt_text", "response_text", "response_parts", "messages",
)  # fmt: skip
"""Left out where there is nothing in them."""
_DEFERRED = frozenset({"new_prompt_ids", "response_ids", "logprobs"})
_NUMBERS = frozenset({"logprobs", *TRAINERS})


def _span(span: Span) -> dict[str, Any]:
    """What is in a span is plain already, except for log probabilities of tokens that could not be drawn."""
    line = {
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "name": span.name,
        "role": span.role,
        "key": span.key,
        "host": span.host,
        "pid": span.pid,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "status": span.status,
        "inputs": span.inputs,
        "output": span.output,
        "attributes": span.attributes,
    }
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


class _Id(msgspec.Struct):
    trace_id: str


_BEGIN = b'{"trace_id":"'


def trace_id_of(line: bytes) -> str:
    """The trace id on one line of the file."""
    end = line.find(b'"', len(_BEGIN), len(_BEGIN) + 64)
    if line.startswith(_BEGIN) and end > 0 and b"\\" not in line[:end]:
        return line[len(_BEGIN) : end].decode()
    return msgspec.json.decode(line, type=_Id).trace_id


FILE = "trajectories.jsonl"
LOCK = "trajectories.lock"
"""Held by who writes; in it, how often the file was rewritten (the number of its inode may be given away again)."""
SMALL = 4 << 20
"""Bytes of a file that is rewritten whenever something in it is replaced."""


class JsonlSink(Sink):
    """See the module. Lines appear in the order of delivery."""

    name = "jsonl"

    def __init__(self, run_folder: Path, memory: MutableMapping[str, str]) -> None:
        self.sent = 0
        self._path = run_folder / FILE
        self._lock = run_folder / LOCK
        self._lines: dict[str, tuple[int, int]] = {}
        """Trace id -> offset and length of its last line, in their order, as far as the file was read."""
        self._replaced = 0
        """Bytes of lines that a later one replaces."""
        self._version: tuple[bytes, int] | None = None
        """How often the file had been rewritten, and its inode, when it was read."""
        self._end = 0
        """Bytes that were read."""
        memory["place"] = str(self._path)

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Append their lines, and take out earlier ones where it is time (atomically)."""
        lines = {trajectory.trace_id: encoded(trajectory) for trajectory in trajectories}
        try:
            with self._locked() as lock:
                self._read_on(lock)
                self._append(lines)
                if self._replaced and (self._end <= SMALL or 2 * self._replaced > self._end):
                    self._rewrite(lock)
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
                self._lines, self._version, self._end, self._replaced = {}, version, 0, 0
            if info.st_size > self._end:
                with self._path.open("rb") as file:
                    file.seek(self._end)
                    for line in file:
                        if not line.endswith(b"\n"):
                            break
                        self._found(trace_id_of(line), len(line))
                os.ftruncate(fd, self._end)
        finally:
            os.close(fd)

    def _found(self, trace_id: str, length: int) -> None:
        """A line of the trajectory begins at the end of what was read."""
        self._replaced += self._lines.pop(trace_id, (0, 0))[1]
        self._lines[trace_id] = (self._end, length)
        self._end += length

    def _append(self, lines: Mapping[str, bytes]) -> None:
        with os.fdopen(files.append(self._path), "wb") as file:
            for trace_id, line in lines.items():
                file.write(line)
                self._found(trace_id, len(line))
            file.flush()
            os.fsync(file.fileno())
        self.sent += sum(map(len, lines.values()))

    def _rewrite(self, lock: int) -> None:
        """Without the lines that were replaced."""
        part = self._path.with_suffix(".part")
        kept = {}
        with self._path.open("rb") as old, os.fdopen(files.overwrite(part), "wb") as new:
            for trace_id, (at, length) in self._lines.items():
                old.seek(at)
                kept[trace_id] = (new.tell(), new.write(old.read(length)))
            new.flush()
            os.fsync(new.fileno())
            end, inode = new.tell(), os.fstat(new.fileno()).st_ino
        count = b"%d" % (int(os.pread(lock, 20, 0) or 0) + 1)
        os.pwrite(lock, count, 0)
        os.replace(part, self._path)
        self._lines, self._end, self._version, self._replaced = kept, end, (count, inode), 0

    def size(self, trajectory: Trajectory) -> int:
        """Length of its line."""
        return len(encoded(trajectory))

    def close(self) -> None:
        """Take out what was replaced. No file is held open."""
        if self._replaced:
            with contextlib.suppress(OSError), self._locked() as lock:
                self._read_on(lock)
                if self._replaced:
                    self._rewrite(lock)
