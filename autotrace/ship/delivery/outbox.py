"""Put complete traces into the backends' queues; with keep-rules or a budget, once the trace's group has ended.

Keep-rules decide for a whole group (the rollouts of one prompt in one step): an interesting rollout is interesting
beside the other rollouts of its group. Undelivered rollouts stay in the run folder; ``autotrace ship --all`` delivers
these rollouts later.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autotrace.config.scalars import fraction
from autotrace.config.written import KeepRules
from autotrace.run.info import RunInfo
from autotrace.ship.index.indexer import Subscriber
from autotrace.ship.store.delivery_queue import TABLES, DeliveryQueue
from autotrace.ship.store.row import ALL, LOCAL, TraceRow
from autotrace.ship.store.state import State
from autotrace.sinks import registry
from autotrace.trajectory.model import OK

QUIET = 2.0
"""Wait so many seconds without news of a group, and without an open trajectory in the group, before deciding."""


class Outbox(Subscriber):
    """Decide which traces of one run are delivered, and to which backends. The indexer reports complete traces.

    A tail sampling decision is stored with each row: the decision survives a restart, and late calls follow the
    decision.
    """

    def __init__(self, state: State, info: RunInfo) -> None:
        self._state = state
        self._backends: Sequence[str] = tuple(info.backends)
        self.queue = DeliveryQueue(state)
        self._rules = rules = KeepRules.parse(info.keep)
        self._seed = info.run_id
        self._holds_back = rules is not None or info.step_budget is not None
        self._undecided: dict[str, float] = {}
        """Map group -> when a record of the group was last read."""
        if self._holds_back:
            for row in state.rows("complete = 1 AND role = 'trajectory' AND kept IS NULL"):
                self._undecided[row.group] = 0.0

    def deliver_to(self, backends: Sequence[str]) -> None:
        """Deliver everything to ``backends`` from now on, including queued traces. Inside a transaction."""
        self._backends = tuple(backends)
        self.queue.keep_only((TABLES, *self._backends))
        for backend in self._backends:
            self.queue.add_missing(backend)

    def completed(self, row: TraceRow) -> None:
        """Queue version ``row.version`` of a complete trace. Inside the transaction in which the caller stores
        ``row``."""
        if not self._holds_back or row.role != "trajectory":
            row.kept = ALL
        elif row.kept is None:
            row.kept = self._state.kept(row.group)
        self.queue.add(self._to(row), row.trace_id, row.version)
        if row.kept is None:
            self._undecided[row.group] = time.monotonic()

    def _to(self, row: TraceRow) -> tuple[str, ...]:
        return (TABLES, *self._backends) if row.kept else (TABLES,)

    def learned(self, row: TraceRow) -> None:
        """Queue the changed facts of a complete trace. Inside the transaction in which the caller stores ``row``."""
        self.queue.add_facts(self._to(row), row.trace_id, row.version)
        if row.group in self._undecided:
            self._undecided[row.group] = time.monotonic()

    def marked(self, row: TraceRow, backends: bool) -> None:
        """Queue a trace about which the group or the step showed something. The tables get the marks; ``backends`` get
        the calls too. Inside the caller's transaction."""
        self.queue.add_facts((TABLES,), row.trace_id, row.version)
        if backends:
            self.queue.add(self._backends, row.trace_id, row.version)

    def bound(self, name: str, value: Mapping[str, Any]) -> None:
        """Queue traces again after a report about the run. Inside the transaction that stores the report."""
        for backend in registry.linked_by(name, self._backends):  # again, with the link to the trainer's run
            self.queue.add_again(backend, rejected=False)

    def settle(self, open_groups: Collection[str], over: bool) -> int:
        """Decide on the groups that have ended; return how many. ``over``: the run has ended."""
        now = time.monotonic()
        ended = [
            group
            for group, heard in self._undecided.items()
            if group not in open_groups and (over or now - heard > QUIET)
        ]
        if not ended:
            return 0
        with self._state:
            for group in ended:
                self._decide(group)
        for group in ended:
            del self._undecided[group]
        return len(ended)

    def _decide(self, group: str) -> None:
        rows = [row for row in self._state.group(group) if row.complete]
        kept = ALL  # a budget alone decides later, from the bytes to send
        if self._rules is not None:
            kept = why_kept(self._rules, self._seed, group, rows) or LOCAL
        self._state.decide(group, kept)
        if kept != LOCAL:
            for row in rows:
                self.queue.add(self._backends, row.trace_id, row.version)

    @property
    def undecided(self) -> bool:
        """Return whether some group waits for a decision."""
        return bool(self._undecided)


def why_kept(rules: KeepRules, seed: str, group: str, rows: Collection[TraceRow]) -> str | None:
    """Return why the group is kept; None: not kept. The random share is equal for the same ``seed``."""
    rewards = {row.reward for row in rows if row.reward is not None}
    if rules.errors and any(row.status != OK for row in rows):
        return "errors"
    if rules.spread and len(rewards) > 1:
        return "spread"
    return "random" if fraction(seed, group) < rules.random else None
