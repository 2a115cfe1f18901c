"""Trajectories as lines of JSON in ``trajectories.jsonl`` of the run folder: one object a line, nothing to install.

A line: ``trace_id``, ``run_id``, ``status``, ``attributes``, ``facts``, ``notes`` and ``spans``. A span: ``span_id``,
``parent_id``, ``name``, ``role``, ``key``, ``host``, ``pid``, ``start_ns``, ``end_ns``, ``status``, ``inputs``,
``output``, ``attributes``, and where there is one ``error`` (type, message, stack). A call that yielded items also
``items`` (how many) and ``first_item_ns``; LLM calls also ``messages``, ``new_prompt_text``, ``response_text``,
``new_prompt_ids``, ``response_ids``, ``logprobs`` (lists), ``prompt_tokens``, ``response_tokens`` (how many),
``prompt_base`` and ``prompt_keep`` as in ``trajectory.model.Span``; the agent's call also ``prompt_text``,
``response_text``, ``response_mask`` and ``response_parts``. The line of a trajectory that was sent again (a late
reward) replaces the earlier one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run import files
from autotrace.sinks import payload
from autotrace.sinks.protocol import Unavailable
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Span, Trajectory

FILE = "trajectories.jsonl"


class JsonlSink:
    """See the module. Lines appear in the order of delivery."""

    name = "jsonl"

    def __init__(self, run_folder: Path, memory: MutableMapping[str, str]) -> None:
        self.sent = 0
        self._path = run_folder / FILE
        self._lines: dict[str, tuple[int, int]] | None = None
        memory["place"] = str(self._path)

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Append; where one of them has a line already, rewrite the file without it (atomically)."""
        try:
            lines = self._written_lines()
            if any(trajectory.trace_id in lines for trajectory in trajectories):
                self._drop({trajectory.trace_id for trajectory in trajectories})
            self._append(trajectories)
        except OSError as error:
            self._lines = None
            raise Unavailable(f"cannot write {self._path}: {error.strerror}") from error

    def _written_lines(self) -> dict[str, tuple[int, int]]:
        """Trace id -> offset and length of its line; an incomplete last line (we were killed) is cut off."""
        if self._lines is not None:
            return self._lines
        self._lines = {}
        at = 0
        if self._path.exists():
            with self._path.open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._lines[msgspec.json.decode(line, type=_Id).trace_id] = (at, len(line))
                    at += len(line)
            os.truncate(self._path, at)
        return self._lines

    def _drop(self, trace_ids: set[str]) -> None:
        part = self._path.with_suffix(".part")
        kept = {}
        with self._path.open("rb") as old, os.fdopen(files.overwrite(part), "wb") as new:
            for trace_id, (at, length) in self._written_lines().items():
                if trace_id not in trace_ids:
                    old.seek(at)
                    kept[trace_id] = (new.tell(), new.write(old.read(length)))
        os.replace(part, self._path)
        self._lines = kept

    def _append(self, trajectories: Sequence[Trajectory]) -> None:
        lines = self._written_lines()
        with os.fdopen(files.append(self._path), "wb") as file:
            at = file.seek(0, os.SEEK_END)
            for trajectory in trajectories:
                line = msgspec.json.encode(line_of(trajectory)) + b"\n"
                file.write(line)
                lines[trajectory.trace_id] = (at, len(line))
                at += len(line)
                self.sent += len(line)
            file.flush()
            os.fsync(file.fileno())

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Nothing of it is needed."""

    def size(self, trajectory: Trajectory) -> int:
        """Length of its line."""
        return len(msgspec.json.encode(line_of(trajectory))) + 1

    def page(self, trajectory: Trajectory) -> str | None:
        """A file has no pages."""
        return None

    def close(self) -> None:
        """No file is held open."""


class _Id(msgspec.Struct):
    trace_id: str


def line_of(trajectory: Trajectory) -> dict[str, Any]:
    """The object that stands on a trajectory's line."""
    return {
        "trace_id": trajectory.trace_id,
        "run_id": trajectory.run_id,
        "status": trajectory.status,
        "attributes": jsonable(trajectory.attributes),
        "facts": jsonable(trajectory.facts),
        "notes": trajectory.notes,
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
