"""Write to W&B Weave: every trajectory is a trace, written by the shipper over plain HTTP.

``POST /v2/{entity}/{project}/calls/complete`` is the request of W&B's own client since 0.52.43; an older server answers
404 and gets ``/call/upsert_batch``. Sending a call again replaces the call (same id, same ``started_at``), so a
delivery that was cut off is simply repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from autotrace.run.info import RunInfo
from autotrace.sinks import DEFAULT_PROJECT
from autotrace.sinks.protocol import Refused, Rejected, Sink, batches, culprits
from autotrace.sinks.weave import scores
from autotrace.sinks.weave.calls import CALL_BYTES, WeaveCalls, add_facts, call_uuid, encoded, fitted
from autotrace.sinks.weave.http import ClientError, Login, Project, WeaveConnection, default_entity, project_name
from autotrace.trajectory.model import Span, Trajectory

DIGEST_CHARS = 43
"""Length of the version of an op."""
REQUEST_BYTES = 8 * 1024 * 1024
"""Limits the bytes of a request. The server takes four times as much; a smaller request ends in time on a slow line."""
REQUEST_CALLS = 1_000
PROBES = 3
"""Calls in a row that a server without any accepted call may reject before delivery stops."""
_END = ("ended_at", "exception", "output", "summary")
_BOTH = ("project_id", "id")


@dataclass(frozen=True)
class _Outgoing:
    """Holds a call on the way to the server."""

    trajectory: Trajectory
    id: str
    data: bytes
    """JSON of the call."""


def _outgoing(calls: WeaveCalls, trajectory: Trajectory, span: Span, op: str) -> _Outgoing:
    call = {**calls.of(span), "op_name": op}
    if span is trajectory.root:
        call = add_facts(call, trajectory.facts)
    return _Outgoing(trajectory, call["id"], fitted(encoded(call)))


class WeaveSink(Sink):
    """Writes to the sink ``weave``. Makes no request before the first delivery.

    Project: the run's (``entity/project`` or ``project``), else each trajectory's ``project_name``, else the project of
    the trainer's W&B run, else ``autotrace``. Entity: the name before the project, else ``WANDB_ENTITY``, else the
    entity of the trainer's W&B run, else the key's default.
    """

    name = "weave"
    needs_calls = False
    """See ``Sink``."""

    def __init__(self, info: RunInfo, memory: MutableMapping[str, str] | None = None) -> None:
        self._memory = {} if memory is None else memory
        self.sent = 0
        self._project = info.project
        self._connection = WeaveConnection(Login.from_environment())
        self._projects: dict[str, Project] = {}
        self._wandb: dict[str, str] = {}
        self._default_entity: str | None = None
        self._upsert = False
        self._accepted = False
        self._rejected = 0

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Store ``trajectories``; see ``sinks.protocol``."""
        self._store_all(trajectories, self._whole)

    def facts(self, trajectories: Sequence[Trajectory]) -> None:
        """Store feedback on the root calls; see ``Sink``."""
        self._store_all(trajectories, partial(self._facts, late=True))

    def _store_all(
        self, trajectories: Sequence[Trajectory], store: Callable[[Project, Sequence[Trajectory]], dict[str, str]]
    ) -> None:
        groups: dict[str, list[Trajectory]] = {}
        for trajectory in trajectories:
            groups.setdefault(self._wanted_project(trajectory), []).append(trajectory)
        reasons: dict[str, str] = {}
        for name, group in groups.items():
            try:
                reasons |= store(self._open(name), group)
            except ClientError as error:
                raise Refused(f"W&B rejected a request: {error}") from None
        if reasons:
            raise Rejected(reasons)

    def _whole(self, project: Project, group: Sequence[Trajectory]) -> dict[str, str]:
        reasons = self._calls(project, group)
        return reasons | self._facts(project, [one for one in group if one.trace_id not in reasons])

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Take ``wandb`` (``entity``, ``project``, ``run_id``): later calls name the trainer's W&B run."""
        if name == "wandb":
            self._wandb = {key: str(item) for key, item in value.items() if item and isinstance(item, (str, int))}

    def size(self, trajectory: Trajectory) -> int:
        """Return the bytes of the trajectory's calls."""
        project = self._projects.get(self._wanted_project(trajectory))
        id = project.id if project else f"entity/{self._wanted_project(trajectory)}"
        calls = WeaveCalls(trajectory, id, f"{id}/run12345" if self._wandb else None)
        digest = "0" * DIGEST_CHARS
        named = ((span, f"weave:///{id}/op/{span.name}:{digest}") for span in trajectory.spans)
        return sum(len(_outgoing(calls, trajectory, span, op).data) for span, op in named)

    def page(self, trajectory: Trajectory) -> str | None:
        """Return the trajectory's address in W&B's pages, once the project received a delivery."""
        project = self._projects.get(self._wanted_project(trajectory))
        if project is None:
            return None
        call = call_uuid(trajectory, trajectory.root.span_id)
        return self._connection.login.page(project.entity, project.name, call)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _wanted_project(self, trajectory: Trajectory) -> str:
        project = self._project or trajectory.attributes.get("project_name") or self._wandb.get("project")
        return str(project or DEFAULT_PROJECT)

    def _open(self, name: str) -> Project:
        if name not in self._projects:
            entity, _, short_name = name.rpartition("/") if name.count("/") == 1 else ("", "", name)
            entity = entity or self._connection.login.entity or self._wandb.get("entity") or self._entity()
            project = self._projects[name] = Project(self._connection, entity, project_name(short_name))
            self._memory["place"] = self._connection.login.traces(project.entity, project.name)
        return self._projects[name]

    def _entity(self) -> str:
        if self._default_entity is None:
            self._default_entity = default_entity(self._connection)
        return self._default_entity

    def _run(self, project: Project) -> str | None:
        """Return the trainer's W&B run. An offline run does not know the entity; W&B synchronises the run to the same
        entity."""
        wandb = self._wandb
        if not {"project", "run_id"} <= wandb.keys():
            return None
        return f"{wandb.get('entity', project.entity)}/{wandb['project']}/{wandb['run_id']}"

    # -- calls ------------------------------------------------------------------------------------------------------

    def _calls(self, project: Project, group: Sequence[Trajectory]) -> dict[str, str]:
        waiting: list[_Outgoing] = []
        for trajectory in group:
            calls = WeaveCalls(trajectory, project.id, self._run(project))
            named = ((span, project.op(span.name, span.key)) for span in trajectory.spans)
            waiting += [_outgoing(calls, trajectory, span, op) for span, op in named]
        reasons: dict[str, str] = {}
        for batch in batches(waiting, lambda one: len(one.data), REQUEST_BYTES, REQUEST_CALLS):
            self._store(project, batch, reasons)
        if reasons:
            self._check(project, ": " + next(iter(reasons.values())), 1)
        return reasons

    def _store(self, project: Project, batch: Sequence[_Outgoing], reasons: dict[str, str]) -> None:
        for one, error in culprits(batch, partial(self._send, project), ClientError):
            self._single(project, one, error, reasons)

    def _send(self, project: Project, batch: Sequence[_Outgoing]) -> None:
        try:
            self._post(project, batch)
        except ClientError as error:
            if error.status not in (400, 413, 422):
                raise Refused(f"W&B rejected all calls for the project {project.id}: {error}") from None
            raise
        self._accepted = True
        self.sent += sum(len(outgoing.data) for outgoing in batch)

    def _single(self, project: Project, one: _Outgoing, error: ClientError, reasons: dict[str, str]) -> None:
        if error.status == 413 and len(one.data) > CALL_BYTES // 64:
            smaller = fitted(one.data, len(one.data) // 4)
            if len(smaller) < len(one.data):
                self._store(project, [replace(one, data=smaller)], reasons)
                return
        self._rejected += error.status != 413
        self._check(project, f": {error}", PROBES)
        reasons.setdefault(one.trajectory.trace_id, f"W&B rejected call {one.id}: {error}")

    def _check(self, project: Project, why: str, limit: int) -> None:
        """Tell a call that the server rejects from a server that rejects every call."""
        if not self._accepted and self._rejected >= limit:
            raise Refused(f"W&B has rejected every call so far for the project {project.id}{why}")

    def _post(self, project: Project, batch: Sequence[_Outgoing]) -> None:
        if not self._upsert:
            body = b'{"batch":[' + b",".join(outgoing.data for outgoing in batch) + b"]}"
            try:
                self._connection.post(f"/v2/{project.path}/calls/complete", body)
                return
            except ClientError as error:
                if error.status not in (404, 405) or self._accepted:
                    raise
                self._upsert = True
        items: list[dict[str, Any]] = []
        for outgoing in batch:
            call = msgspec.json.decode(outgoing.data)
            start = {name: value for name, value in call.items() if name not in _END}
            end = {name: call[name] for name in (*_BOTH, *_END) if name in call}
            items += [{"mode": "start", "req": {"start": start}}, {"mode": "end", "req": {"end": end}}]
        self._connection.post("/call/upsert_batch", msgspec.json.encode({"batch": items}))

    # -- facts ------------------------------------------------------------------------------------------------------

    def _facts(self, project: Project, group: Sequence[Trajectory], late: bool = False) -> dict[str, str]:
        waiting = [(one, name, value) for one in group for name, value in scores.wanted(one, late).items()]
        return scores.send(self._connection, project, waiting) if waiting else {}
