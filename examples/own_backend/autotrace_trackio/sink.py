"""The sink: a trajectory becomes one ``trackio.Trace`` with its conversation, its identity and its spans.

``trackio.log`` hands over to a thread and tells nobody whether it arrived. A sink must know, so this one calls what
that thread calls, with the trace id as the row's id: what is delivered again (a late reward) replaces itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import closing
from datetime import datetime, timezone
from typing import Any

from trackio.sqlite_storage import SQLiteStorage
from trackio.trace import Trace

from autotrace.run.info import RunInfo
from autotrace.sinks import DEFAULT_PROJECT, payload
from autotrace.sinks.protocol import Sink, Unavailable
from autotrace.trajectory.model import Span, Trajectory

KEY = "trajectory"
KINDS = {"llm": "generation", "tool": "tool"}


class TrackioSink(Sink):
    name = "trackio"

    def __init__(self, info: RunInfo, memory: MutableMapping[str, str]) -> None:
        self.sent = 0
        self._info = info
        self._memory = memory
        self._config: dict[str, Any] = {}

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        if name == "config":  # veRL's: project_name, experiment_name, ...
            self._config.update(value)

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        project = self._info.project or self._config.get("project_name") or DEFAULT_PROJECT
        run = self._info.experiment or self._config.get("experiment_name") or self._info.run_id
        trace_ids = [trajectory.trace_id for trajectory in trajectories]
        try:
            database = SQLiteStorage.init_db(project)
            with closing(sqlite3.connect(database, timeout=30)) as db, db:
                for table in ("traces", "metrics"):
                    db.executemany(f"DELETE FROM {table} WHERE log_id = ?", [(trace_id,) for trace_id in trace_ids])
            SQLiteStorage.bulk_log(
                project,
                run,
                [{KEY: trace_of(trajectory)._to_dict(project, run)} for trajectory in trajectories],
                steps=[max(0, trajectory.attributes.get("step") or 0) for trajectory in trajectories],
                timestamps=[_time(trajectory.root.start_ns) for trajectory in trajectories],
                log_ids=trace_ids,
                run_id=self._info.run_id,
            )
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(f"trackio's database cannot be written: {error}") from error
        self._memory["place"] = str(database)
        self._memory["open_with"] = f"trackio show --project {project}"
        self.sent += sum(map(self.size, trajectories))

    def size(self, trajectory: Trajectory) -> int:
        return len(json.dumps(trace_of(trajectory)._to_dict("", "")))

    def page(self, trajectory: Trajectory) -> str | None:
        return None

    def close(self) -> None:
        pass


def trace_of(trajectory: Trajectory) -> Trace:
    messages: list[dict[str, Any]] = []
    for span in trajectory.llm_spans:
        turn = payload.turn(span)
        messages += [*turn.messages, *([turn.reply] if turn.reply else [])]
    if not messages:  # no call of a model, or none whose text is known: what went in and what came out
        ends = {"user": trajectory.root.inputs, "assistant": trajectory.root.output}
        messages = [{"role": role, "content": json.dumps(payload.jsonable(value))} for role, value in ends.items()]
    metadata = {**trajectory.attributes, **trajectory.facts, "status": trajectory.status}
    metadata |= {"trace_id": trajectory.trace_id, "session_id": payload.group_of(trajectory.attributes)}
    return Trace(messages, payload.jsonable(metadata), [_span(trajectory, span) for span in trajectory.spans])


def _span(trajectory: Trajectory, span: Span) -> dict[str, Any]:
    end = payload.end_of(trajectory, span)
    usage = payload.usage(span)
    return {
        "id": span.span_id,
        "parent_id": span.parent_id,
        "name": span.name,
        "kind": KINDS.get(span.role, "span"),
        "start_time": _time(span.start_ns),
        "end_time": _time(end),
        "duration_ms": (end - span.start_ns) / 1e6,
        "status": span.status,
        "error": payload.failure(span),
        "input": payload.jsonable(span.inputs),
        "output": payload.jsonable(span.output),
        "usage": None if usage is None else {"prompt_tokens": usage[0], "completion_tokens": usage[1]},
        "metadata": payload.jsonable(span.attributes),
    }


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, timezone.utc).isoformat()
