"""Which groups of trajectories are delivered: keep-rules, and byte budgets of a backend per training step.

Both decide for a whole group (the rollouts of one prompt in one step) once it has ended: what is interesting about one
of its rollouts is interesting beside the others. A budget is decided from what exactly would be sent, and is exceeded
only by rollouts that join a group after that. What is not delivered stays in the run folder; ``autotrace ship --all``
delivers it still."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from autotrace.config.scalars import fraction
from autotrace.config.written import KeepRules
from autotrace.ship.store.row import Row
from autotrace.ship.store.state import State
from autotrace.trajectory.model import OK

SECONDS_A_DAY = 86_400
SHORTEST = 600.0
"""Seconds that a run must have taken before it says anything about a day."""
OVER_BUDGET = "over the byte budget; it stays in the run folder, autotrace ship --all delivers it"
"""Why a trajectory counts as left out, in the state."""


class Ledger:
    """The budget: what one backend may get of one run, and got. Belongs to the thread of ``state``."""

    def __init__(self, state: State, backend: str, step_budget: int | None) -> None:
        self._state = state
        self._backend = backend
        self._step_budget = step_budget

    @property
    def limited(self) -> bool:
        """Whether this backend has a budget."""
        return self._step_budget is not None

    def admits(self, trace_id: str, group: str, step: int | None, sizes: Callable[[], Mapping[str, int]]) -> bool:
        """Whether a trajectory of ``group`` may be sent. The first of a group decides for all of it; ``sizes``: trace
        id -> bytes it would take. What is sent again is not counted again."""
        sql = "SELECT trace_id, bytes FROM admitted WHERE backend = ? AND group_key = ?"
        decided: dict[str, int | None] = dict(self._state.db.execute(sql, (self._backend, group)).fetchall())
        if trace_id in decided:
            return decided[trace_id] is not None
        undecided = {other: size for other, size in sizes().items() if other not in decided}
        admitted = (
            any(size is not None for size in decided.values()) if decided else self._fits(step, sum(undecided.values()))
        )
        self._state.db.executemany(
            "INSERT OR REPLACE INTO admitted VALUES (?, ?, ?, ?, NULL, ?)",
            ((self._backend, id, group, step, size if admitted else None) for id, size in undecided.items()),
        )
        return admitted

    def _fits(self, step: int | None, size: int) -> bool:
        if self._step_budget is None:
            return True
        sql = "SELECT sum(bytes) FROM admitted WHERE backend = ? AND step IS ?"
        return self._state.count(sql, (self._backend, step)) + size <= self._step_budget

    def sent(self, size: int) -> None:
        """The backend took ``size`` more bytes."""
        if size:
            self._state.put_meta(key := sent_key(self._backend), str(int(self._state.meta(key) or 0) + size))


def sent_key(backend: str) -> str:
    """Where the state holds how many bytes ``backend`` took of this run."""
    return f"backend:{backend}:sent"


def forecast(sent: int, seconds: float) -> float:
    """Gigabytes a day if it goes on as in the last ``seconds``; 0 where those are too few to say."""
    return sent / seconds * SECONDS_A_DAY / 1e9 if seconds >= SHORTEST else 0.0


def why_kept(rules: KeepRules, seed: str, group: str, rows: Collection[Row]) -> str | None:
    """Why the group is kept, None when it is not. The random share is the same again for the same ``seed``."""
    rewards = {row.reward for row in rows if row.reward is not None}
    if rules.errors and any(row.status != OK for row in rows):
        return "errors"
    if rules.spread and len(rewards) > 1:
        return "spread"
    return "random" if fraction(seed, group) < rules.random else None
