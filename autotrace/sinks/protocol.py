"""Describe a backend's duties: the sink, and the errors that a sink raises.

Only the shipper calls a sink, from one thread at a time. Two promises make delivery safe:

- ``deliver`` returns only when the backend has acknowledged every trajectory. An unacknowledged trajectory stays on
  disk and is delivered again.
- ``deliver`` may be called again with the same trajectories (after a crash, or because calls arrived later), in this
  process or in another. The trajectories then replace the stored trajectories, and never duplicate a trajectory: trace
  ids and span ids stay the same. A fact that arrived later (a reward) calls ``facts``.

Any other exception of a sink counts as ``Unavailable``, and ``shipper.log`` has the traceback.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from autotrace.trajectory.model import Trajectory


class SinkError(Exception):
    """Base of a sink's errors; the message is a sentence for the user, without secrets and without prompts."""


class Unavailable(SinkError):
    """Reports that the backend cannot be reached, fails, or asks clients to wait. Nothing is lost: the shipper tries
    again, after ``retry_after`` seconds if the backend named a time, else after a growing delay."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Refused(SinkError):
    """Reports that the backend accepts nothing until a person acts: rejected credentials, a wrong address, a missing
    library.

    Everything is kept; the shipper tries again now and then, and ``autotrace status`` shows the message.
    """


class Rejected(SinkError):
    """Reports trajectories that the backend would never accept; all other trajectories are acknowledged.

    ``reasons`` maps a trace id to the reason. Rejected trajectories stay in the run folder; ``autotrace show`` prints
    the reason.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(f"{len(reasons)} trajectories were rejected")
        self.reasons = dict(reasons)


class Sink(Protocol):
    """Delivers a run to a backend; ``autotrace.sinks.backend.Backend.make`` makes the sink. A subclass overrides only
    the methods that the backend needs."""

    name: str
    """Names the word after ``--backend``."""
    sent: int
    """Bytes of trajectories that the backend accepted from this object so far, before compression."""

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Store ``trajectories`` and return once the backend has acknowledged all.

        Raises ``Unavailable`` or ``Refused`` (no trajectory counts as delivered) or ``Rejected`` (all others do).
        """

    needs_calls: bool = True
    """Tells whether ``facts`` needs the calls of a trajectory. False: ``facts`` gets trajectories with the root alone,
    and nothing is assembled."""

    def facts(self, trajectories: Sequence[Trajectory]) -> None:
        """Store the facts of ``trajectories`` that the backend already has, and return once all are acknowledged.

        Called when a fact (a reward) arrived later. Raises as ``deliver``.
        """
        self.deliver(trajectories)

    def report(self, step: int, metrics: Mapping[str, float], page: str) -> None:
        """Store ``metrics`` (name -> number) and the text ``page`` about a step of training, beside the trainer's own
        metrics; again after each change. Raises as ``deliver``.

        If the trainer logs to no run of this backend, nothing is stored.
        """
        return

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Take a report about the run after the launch, and ignore unknown reports.

        Reports: ``config`` (``project_name``, ``experiment_name``, ...), ``mlflow`` or ``wandb`` (the run of the
        trainer's logger), ... (``spool.records.Bind``).
        """
        return

    def size(self, trajectory: Trajectory) -> int:
        """Return the bytes that delivering ``trajectory`` would send, before compression, for budgets; 0: unknown."""
        return 0

    def page(self, trajectory: Trajectory) -> str | None:
        """Return the URL of a delivered trajectory in the backend's own pages; None: the backend has no pages."""
        return None

    def close(self) -> None:
        """Release connections; never raises."""


_Item = TypeVar("_Item")
_Error = TypeVar("_Error", bound=Exception)


def culprits(
    batch: Sequence[_Item], send: Callable[[Sequence[_Item]], object], kind: type[_Error]
) -> Iterator[tuple[_Item, _Error]]:
    """Send ``batch``, and send a rejected batch again in halves. Yield each single item that an error of ``kind``
    blames, with the error."""
    try:
        send(batch)
    except kind as error:
        if len(batch) == 1:
            yield batch[0], error
            return
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            yield from culprits(half, send, kind)


def batches(
    items: Iterable[_Item], size: Callable[[_Item], int], most_bytes: int, most: float = math.inf
) -> Iterator[list[_Item]]:
    """Yield ``items`` in order, in requests of at most ``most_bytes`` and ``most`` items; a larger item goes alone."""
    batch: list[_Item] = []
    taken = 0
    for item in items:
        needed = size(item)
        if batch and (taken + needed > most_bytes or len(batch) >= most):
            yield batch
            batch, taken = [], 0
        batch.append(item)
        taken += needed
    if batch:
        yield batch
