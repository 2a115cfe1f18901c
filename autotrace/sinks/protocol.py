"""What a backend must be able to do: one small protocol, one file a backend.

A sink is called by the shipper alone, from one thread. ``deliver`` returns only when the backend has acknowledged all
of it; it may be called again with the same trajectories (after a crash, or because facts arrived later) and must
then replace, never duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from autotrace.trajectory.model import Trajectory


class SinkError(Exception):
    """Base of what a sink raises; the message is one sentence for people, without secrets."""


class Unavailable(SinkError):
    """The backend cannot be reached or asks to wait; nothing is lost, the shipper tries again.

    ``retry_after``: seconds the backend asked for, else None.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Refused(SinkError):
    """The backend will not take anything until a person acts (401, 403, wrong URI): the spool is kept."""


class Rejected(SinkError):
    """The backend took all but these trajectories, which it will never take; the rest is acknowledged.

    ``reasons``: trace id -> why.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(f"{len(reasons)} trajectories were rejected")
        self.reasons = dict(reasons)


class Sink(Protocol):
    """A backend. ``name`` is the word used on the command line."""

    name: str
    sent: int
    """Bytes of trajectories that the backend took from this object so far, before compression."""

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Store ``trajectories`` and return once the backend acknowledged them."""

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Take what became known about the run after the launch (see ``spool.records.Bind``)."""

    def size(self, trajectory: Trajectory) -> int:
        """Bytes that delivering ``trajectory`` would send, before compression: what budgets count."""

    def page(self, trajectory: Trajectory) -> str | None:
        """URL of the trajectory in the backend's own pages, if there is one."""

    def close(self) -> None:
        """Release connections; never raises."""
