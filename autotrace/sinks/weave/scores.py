"""Store facts as Weave feedback: the reward always, and every fact once some arrived after the root call was sent.

The server does not promise to drop a second feedback with the same id. Ids are therefore looked up before anything is
sent, and a changed value is removed first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from autotrace.insight.profile import marks
from autotrace.insight.registry import by_weight
from autotrace.sinks import payload
from autotrace.sinks.weave.calls import call_uuid, feedback_uuid, object_name
from autotrace.sinks.weave.http import ClientError, Project, WeaveConnection
from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import DETAILS, Trajectory

SCORES = ("reward", "advantage")
"""Facts that are always feedback if numeric, so that the same filter finds late facts."""
MAX_PAYLOAD = 1_000_000
"""Limits the bytes of a payload; the server takes 1 MiB."""
FINDING = "finding"
"""Score with the code of the most costly finding; ``attributes.findings`` of the root call has all findings."""
BATCH = 200


def wanted(trajectory: Trajectory, late: bool) -> dict[str, Any]:
    """Return the facts to store as feedback. ``late``: the root call does not have all facts."""
    facts: dict[str, Any] = {}
    for name, value in trajectory.facts.items():
        shown = payload.jsonable(value)
        if shown is None or name.partition(".")[0] in DETAILS:
            continue
        if late or (name in SCORES and isinstance(shown, (int, float))):
            facts[name] = shown
    if found := by_weight(marks(trajectory.profile)):
        facts[FINDING] = text(found[0].code)
    return facts


def send(connection: WeaveConnection, project: Project, facts: Sequence[tuple[Trajectory, str, Any]]) -> dict[str, str]:
    """Store ``facts`` (trajectory, name, value); leave existing facts alone.

    Returns trace id -> reason of each rejection. Raises ``Refused`` or ``Unavailable``.
    """
    reasons: dict[str, str] = {}
    for first in range(0, len(facts), BATCH):
        part = {feedback_uuid(fact[0].trace_id, fact[1]): fact for fact in facts[first : first + BATCH]}
        try:
            stored = _stored(connection, project, list(part))
            changed = [id for id, output in stored.items() if output != part[id][2]]
            if changed:
                _purge(connection, project, changed)
        except ClientError as error:
            reasons.update(dict.fromkeys((fact[0].trace_id for fact in part.values()), _why("facts", error)))
            continue
        new = {id: fact for id, fact in part.items() if id not in stored or id in changed}
        if new:
            reasons |= _create(connection, project, new)
    return reasons


def _stored(connection: WeaveConnection, project: Project, ids: Sequence[str]) -> dict[str, Any]:
    """Map the id of each feedback in ``ids`` that the server has to the value."""
    query = {"$expr": {"$in": [{"$getField": "id"}, [{"$literal": id} for id in ids]]}}
    body = {"project_id": project.id, "fields": ["id", "payload"], "query": query}
    rows = connection.post("/feedback/query", msgspec.json.encode(body)).get("result", [])
    return {row["id"]: (row.get("payload") or {}).get("output") for row in rows}


def _purge(connection: WeaveConnection, project: Project, ids: Sequence[str]) -> None:
    """Purge single ids, because the server takes no ``$in`` here."""
    each = [{"$eq": [{"$getField": "id"}, {"$literal": id}]} for id in ids]
    body = {"project_id": project.id, "query": {"$expr": {"$or": each}}}
    connection.post("/feedback/purge", msgspec.json.encode(body))


def _create(
    connection: WeaveConnection, project: Project, facts: Mapping[str, tuple[Trajectory, str, Any]]
) -> dict[str, str]:
    reasons: dict[str, str] = {}
    rows: list[tuple[str, str, dict[str, Any]]] = []
    for id, (trajectory, name, value) in facts.items():
        try:
            rows.append((trajectory.trace_id, name, _row(project, id, trajectory, name, value)))
        except ClientError as error:
            reasons[trajectory.trace_id] = _why(name, error)
    try:
        if rows:
            connection.post("/feedback/batch/create", msgspec.json.encode({"batch": [row for _, _, row in rows]}))
        return reasons
    except ClientError:
        pass  # a bad row, or a server without batches: send one by one
    for trace_id, name, row in rows:
        try:
            connection.post("/feedback/create", msgspec.json.encode(row))
        except ClientError as error:
            reasons[trace_id] = _why(name, error)
    return reasons


def _row(project: Project, id: str, trajectory: Trajectory, name: str, value: Any) -> dict[str, Any]:
    if len(msgspec.json.encode(value)) > MAX_PAYLOAD:
        value = "left out: larger than the server takes"
    return {
        "id": id,
        "project_id": project.id,
        "weave_ref": f"weave:///{project.id}/call/{call_uuid(trajectory, trajectory.root.span_id)}",
        "feedback_type": f"wandb.runnable.{object_name(name)}",
        "runnable_ref": project.score(name),
        "payload": {"output": value},
    }


def _why(name: str, error: ClientError) -> str:
    return f"the trajectory is stored, but W&B rejected its {name}: {error}"
