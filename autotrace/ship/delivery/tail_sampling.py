"""Between "complete" and "to be delivered": keep-rules and budgets hold a trajectory back until its group has ended."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from autotrace.config.keep_rules import KeepRules
from autotrace.run.info import RunInfo
from autotrace.ship.delivery.keep import Keeper, Member
from autotrace.ship.store.row import Row
from autotrace.ship.store.state import State

QUIET = 2.0
"""Seconds without news of a group, and without an open trajectory in it, after which it is decided on."""
ALL = "all"
"""``Row.kept`` where no rule has a say."""
LOCAL = ""
"""``Row.kept`` of a trajectory that stays in the spool."""


class Gate:
    """Queues complete traces for the backends; with keep-rules or a budget, trajectories once their group has ended.

    A decision is stored with each row, so it stands after a restart, and what comes later follows it.
    """

    def __init__(self, state: State, backends: Sequence[str], info: RunInfo) -> None:
        self._state = state
        self._backends = backends
        rules = KeepRules.parse(info.keep)
        self._keeper = None if rules is None else Keeper(rules, info.run_id)
        self._holds = rules is not None or info.step_budget is not None or info.month_budget is not None
        self._waiting: dict[str, float] = {}
        """Undecided group -> when it was heard of last."""
        if self._holds:
            for row in state.rows("complete = 1 AND role = 'trajectory' AND kept IS NULL"):
                self._waiting[group_of(row)] = 0.0

    def completed(self, row: Row) -> None:
        """Version ``row.version + 1`` of a trace is complete (the caller stores the row)."""
        if not self._holds or row.role != "trajectory":
            row.kept = ALL
        elif row.kept is None:
            row.kept = self._state.kept(group_of(row))
        if row.kept is None:
            self._waiting[group_of(row)] = time.monotonic()
        elif row.kept != LOCAL:
            self._state.enqueue(self._backends, row.trace_id, row.version + 1)

    def settle(self, live: Collection[Row], over: bool) -> int:
        """Decide on the groups that have ended; how many there were. ``over``: nobody waits any more."""
        if not self._waiting:
            return 0
        open_groups = {group_of(row) for row in live}
        now = time.monotonic()
        ready = [
            group
            for group, heard in self._waiting.items()
            if group not in open_groups and (over or now - heard > QUIET)
        ]
        for group in ready:
            del self._waiting[group]
            rows = [row for row in self._state.group(group) if row.complete]
            why = self._decision(group, rows)
            self._state.decide(group, why)
            for row in rows:
                if why != LOCAL:
                    self._state.enqueue(self._backends, row.trace_id, row.version)
        return len(ready)

    def _decision(self, group: str, rows: Sequence[Row]) -> str:
        """Why the group is delivered; ``all`` where a budget alone decides, later, from what would be sent."""
        if self._keeper is None:
            return ALL
        members = [Member(row.status, row.duration_ns or 0, row.reward) for row in rows]
        return self._keeper.decide(group, members) or LOCAL

    @property
    def undecided(self) -> bool:
        """Some group waits for its decision."""
        return bool(self._waiting)


def group_of(row: Row) -> str:
    """What the rollouts of one prompt in one step share; a trajectory without a ``uid`` is a group of its own."""
    return row.trace_id if row.uid is None else f"{row.step}/{row.uid}"
