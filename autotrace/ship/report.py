"""Compute ``Status`` from the state, with all numbers of a run. Choose the backends of a run: the user's choice,
otherwise the choice of veRL's configuration, otherwise the default."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run.info import RunInfo
from autotrace.run.losses import losses, with_full_disk
from autotrace.run.status import BackendStatus, Status, TargetStatus
from autotrace.ship.delivery.packing import OVER_BUDGET
from autotrace.ship.delivery.reporting import has_all_steps
from autotrace.ship.store.delivery_queue import not_in_tables
from autotrace.ship.store.state import State
from autotrace.sinks import registry
from autotrace.spool.reader import segments
from autotrace.spool.records import ENDED, OUTSIDE
from autotrace.tables.rollout import ROLES

VERL_TRACE = "actor_rollout_ref.rollout.trace"
"""Name the place of the trace settings in veRL's configuration, unless ``Bind("verl_trace")`` names another ``key``."""


def chosen_backends(info: RunInfo, settings: Mapping[str, Any]) -> list[str]:
    """Return the backend that veRL's trace settings (``Bind("verl_trace")``) name, and the backend of ``--tables``.
    Empty if the user chose a backend, or if no backend has that name."""
    backend = settings.get("backend")
    if backend not in registry.names() or info.origins.get("backends") != "default":
        return []
    return list(dict.fromkeys([str(backend), *(name for name in info.backends if name == registry.TABLES)]))


def origin_of(settings: Mapping[str, Any], name: str) -> str:
    """Name the origin of a veRL setting, as ``autotrace status`` shows the origin."""
    return f"veRL's {settings.get('key', VERL_TRACE)}.{name}"


_SHOWN = 20
_MINUTE = 60
SECONDS_A_DAY = 86_400
SHORTEST = 600.0
"""Require so many seconds of a run before figures per day are shown."""


class _Counters(msgspec.Struct):
    calls: dict[str, int] = {}
    drops: dict[str, int] = {}
    gauges: dict[str, int] = {}
    paths: dict[str, tuple[int, int]] = {}


def status_of(state: State, info: RunInfo, run_folder: str | Path, verdict: str) -> Status:
    """Compute the status of a run with ``verdict`` as its state; the caller adds delivery errors."""
    status = Status(verdict, info.run_id, os.getpid(), os.uname().nodename, time.time_ns())
    for complete, whole, count, kept_here in state.db.execute(
        f"SELECT complete, role IN {ROLES}, count(*), sum(kept IS '') FROM traces GROUP BY 1, 2"
    ):
        status.open += 0 if complete else count
        status.traces += count if complete else 0
        status.trajectories += count if complete and whole else 0
        status.kept_here += kept_here if complete and whole else 0
    status.in_tables = verdict == "done" and not not_in_tables(state) and has_all_steps(state)
    status.facts_waiting = state.count("SELECT count(*) FROM facts WHERE trace_id IS NULL")
    sizes = {file.name: file.size for file in segments(run_folder)}
    status.spool_bytes = sum(sizes.values())
    for name, offset in state.db.execute("SELECT name, offset FROM segments").fetchall():
        sizes[name] = max(0, sizes.get(name, 0) - offset)
        status.read_bytes += offset
    status.unread_bytes = sum(sizes.values())
    since = status.updated_ns - _MINUTE * 10**9
    status.rate = state.count("SELECT count(*) FROM traces WHERE complete = 1 AND end_ns > ?", (since,)) / _MINUTE
    status.backends = {name: _backend(state, name, info, since) for name in info.backends}
    pending = [backend.pending for backend in status.backends.values()]
    status.pending = max(pending) if pending else state.count("SELECT count(*) FROM queue")
    oldest = state.db.execute("SELECT min(t.end_ns) FROM queue q JOIN traces t USING (trace_id)").fetchone()[0]
    status.lag_seconds = max(0.0, (status.updated_ns - oldest) / 1e9) if oldest else 0.0
    _processes(state, run_folder, status)
    return status


def title_of(status: Status) -> str:
    """Return the counts of a run for the title of the terminal, and first the lost records."""
    calls = sum(target.calls for target in status.targets)
    counts = f"trajectories: {status.trajectories:,} complete, {status.open:,} open; calls: {calls:,}"
    return "; ".join(["autotrace", *losses(status.drops), counts])


def _backend(state: State, name: str, info: RunInfo, since: int) -> BackendStatus:
    remembered = state.metas(f"backend:{name}:")
    delivered, lately, rejected, over = state.db.execute(
        "SELECT count(*) - count(rejected), sum(delivered_ns > ?), count(rejected), sum(rejected = ?) FROM deliveries "
        "WHERE backend = ?",
        (since, OVER_BUDGET, name),
    ).fetchone()
    reasons = state.db.execute(
        "SELECT trace_id, rejected FROM deliveries WHERE backend = ? AND rejected != ? LIMIT ?",
        (name, OVER_BUDGET, _SHOWN),
    )
    sent, seconds = int(remembered.get("sent", 0)), _seconds(state, name)
    return BackendStatus(
        name,
        delivered=delivered,
        rate=(lately or 0) / _MINUTE,
        pending=state.count("SELECT count(*) FROM queue WHERE backend = ?", (name,)),
        rejected=dict(reasons.fetchall()),
        rejected_count=rejected - (over or 0),
        sent_bytes=sent,
        gb_a_day=sent / seconds * SECONDS_A_DAY / 1e9 if seconds >= SHORTEST else 0.0,
        step_budget=info.step_budget,
        over_budget=over or 0,
        place=remembered.get("place"),
        open_with=remembered.get("open_with"),
    )


def _seconds(state: State, name: str) -> float:
    """Return how long (seconds) the run took to produce the traces of ``name``: the run's own time, not the time of
    delivery."""
    sql = "SELECT min(start_ns), max(end_ns) FROM traces JOIN deliveries USING (trace_id) WHERE backend = ?"
    first, last = state.db.execute(sql, (name,)).fetchone()
    return (last - first) / 1e9 if first and last else 0.0


def _processes(state: State, run_folder: str | Path, status: Status) -> None:
    calls: Counter[str] = Counter()
    drops: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    reads: Counter[str] = Counter()
    hosts = set()
    for row in state.db.execute("SELECT * FROM processes"):
        status.processes += 1
        hosts.add(row["process"].rsplit("-", 2)[0])  # HOST-PID-RAND; a host name may itself hold dashes
        status.living += row["ended"] is None
        status.died += row["ended"] == "died"
        status.torn += row["torn"]
        skipped.update(msgspec.json.decode(row["skipped"], type=dict[str, int]))
        if row["counters"] is not None:
            try:
                counters = msgspec.msgpack.decode(row["counters"], type=_Counters)
            except msgspec.ValidationError:
                continue
            calls.update(counters.calls)
            drops.update(counters.drops)
            missed.update({path: counts[0] for path, counts in counters.paths.items()})
            reads.update({path: counts[1] for path, counts in counters.paths.items()})
    status.hosts = sorted(hosts)
    status.skipped = dict(skipped)
    status.drops = with_full_disk(str(run_folder), drops)
    status.absent = {path: calls for path, calls in reads.items() if calls and missed[path] == calls}
    for row in state.db.execute("SELECT name, unusable FROM segments WHERE unusable IS NOT NULL LIMIT ?", (_SHOWN,)):
        status.notes.append(f"the segment {row['name']} was not read: {row['unusable']}")
    status.targets = _targets(state, calls)


def _targets(state: State, calls: Counter[str]) -> list[TargetStatus]:
    targets: dict[str, TargetStatus] = {}
    for row in state.db.execute(
        "SELECT key, state, name, reason, count(DISTINCT process) AS n FROM reports WHERE state != ? "
        "GROUP BY 1, 2, 3, 4 ORDER BY 1, 3",
        (ENDED,),
    ):
        target = targets.setdefault(row["key"], TargetStatus(row["key"], {}, [], []))
        if row["state"] == OUTSIDE:
            target.outside = [*target.outside, row["name"]][:_SHOWN]
            continue
        target.states[row["state"]] = target.states.get(row["state"], 0) + 1
        if row["state"] == "bound":
            target.processes = max(target.processes, row["n"])
            if row["name"] not in target.places and len(target.places) < _SHOWN:
                target.places.append(row["name"])
        if row["reason"] and row["reason"] not in target.reasons and len(target.reasons) < _SHOWN:
            target.reasons.append(row["reason"])
    for key, count in calls.items():
        targets.setdefault(key, TargetStatus(key, {}, [], [])).calls += count
    return sorted(targets.values(), key=lambda target: target.key)
