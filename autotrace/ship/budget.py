"""Byte budgets: how much a backend may get per training step and per month. What does not fit stays in the local spool.

Decided per group when its first trajectory is to be sent, from what exactly would be sent: a group is never half
delivered, and a budget is never exceeded by more than the rest of one group.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import datetime, timezone

SECONDS_A_DAY = 86_400


class Ledger:
    """What one backend got, in a ``Memory`` that survives the process (keys ``sent:step:S`` and
    ``sent:month:YYYY-MM``)."""

    def __init__(self, memory: MutableMapping[str, str], step_budget: int | None, month_budget: int | None) -> None:
        self._memory = memory
        self._step_budget = step_budget
        self._month_budget = month_budget

    @property
    def limited(self) -> bool:
        """There is a budget at all."""
        return self._step_budget is not None or self._month_budget is not None

    def fits(self, step: int | None, size: int) -> bool:
        """Whether ``size`` bytes of step ``step`` may still be sent."""
        within_step = self._step_budget is None or self._sent(f"sent:step:{step}") + size <= self._step_budget
        return within_step and (self._month_budget is None or self._sent(_month()) + size <= self._month_budget)

    def admits(self, group: str, step: int | None, size: int) -> bool:
        """Whether a trajectory of ``group`` may be sent; counted if so. The first of a group decides for all."""
        known = self._memory.get(f"sent:group:{group}")
        if known is None:
            known = self._memory[f"sent:group:{group}"] = "1" if self.fits(step, size) else "0"
        if known == "1":
            self.take(step, size)
        return known == "1"

    def take(self, step: int | None, size: int) -> None:
        """Count ``size`` bytes as sent."""
        for key in (f"sent:step:{step}", _month()):
            self._memory[key] = str(self._sent(key) + size)

    def _sent(self, key: str) -> int:
        return int(self._memory.get(key, "0"))


def _month() -> str:
    return f"sent:month:{datetime.now(timezone.utc):%Y-%m}"


def forecast(sent: int, seconds: float) -> float:
    """Gigabytes a day if it goes on as in the last ``seconds``."""
    return sent / max(seconds, 1.0) * SECONDS_A_DAY / 1e9
