"""What a backend must be able to do: the sink, and the errors it raises.

A sink is called by the shipper alone, from one thread at a time. Two promises make delivery safe:

- ``deliver`` returns only when the backend has acknowledged every trajectory: what is not acknowledged stays on disk
  and is delivered again.
- It may be called again with the same trajectories (after a crash, or because calls arrived later), in this process or
  in another. They then replace what was stored, never duplicate it: trace ids and span ids stay the same. A fact that
  arrived later (a reward) calls ``facts``.

Whatever else a sink raises counts as ``Unavailable``, and its traceback is in ``shipper.log``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from autotrace.trajectory.model import Trajectory


class SinkError(Exception):
    """Base of what a sink raises; the message is one sentence for the user, without secrets and without prompts."""


class Unavailable(SinkError):
    """The backend cannot be reached, fails, or asks clients to wait. Nothing is lost: the shipper tries again, after
    ``retry_after`` seconds if the backend named a time, else after a delay that grows.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Refused(SinkError):
    """The backend accepts nothing until a person acts: rejected credentials, a wrong address, a missing library.

    Everything is kept; the shipper tries again now and then, and ``autotrace status`` shows the message.
    """


class Rejected(SinkError):
    """The backend accepted all trajectories but these, and would never accept them; the others are acknowledged.

    ``reasons``: trace id -> why. They stay in the run folder; ``autotrace show`` prints the reason.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(f"{len(reasons)} trajectories were rejected")
        self.reasons = dict(reasons)


class Sink(Protocol):
    """A backend at work for one run; ``autotrace.sinks.backend.Backend.make`` makes it. A sink that inherits from this
    class says only what it does."""

    name: str
    """The word after ``--backend``."""
    sent: int
    """Bytes of trajectories that the backend accepted from this object so far, before compression."""

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Store ``trajectories`` and return once the backend has acknowledged them.

        Raises ``Unavailable`` or ``Refused`` (none counts as delivered) or ``Rejected`` (all others do).
        """

    needs_calls: bool = True
    """Whether ``facts`` needs the calls of a trajectory. False: ``facts`` gets trajectories with the root alone, and
    nothing is assembled."""

    def facts(self, trajectories: Sequence[Trajectory]) -> None:
        """Store the facts of ``trajectories``, which the backend has already, and return once they are acknowledged.
        Called when a fact (a reward) arrived later. Raises as ``deliver``."""
        self.deliver(trajectories)

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Take what is reported about the run after the launch: ``config`` (``project_name``, ``experiment_name``,
        ...), ``mlflow`` or ``wandb`` (the run of the trainer's logger), ... (``spool.records.Bind``). Ignore the rest.
        """
        return

    def size(self, trajectory: Trajectory) -> int:
        """Bytes that delivering ``trajectory`` would send, before compression: what budgets count; 0: it has none."""
        return 0

    def page(self, trajectory: Trajectory) -> str | None:
        """URL of a delivered trajectory in the backend's own pages; None: it has no pages."""
        return None

    def close(self) -> None:
        """Release connections; never raises."""


class Reporter(Protocol):
    """What of a backend takes numbers and texts about whole steps, beside the trainer's own metrics
    (``Backend.reporter``). Called by one thread; raises as a sink does."""

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """As of a sink."""

    def report(self, step: int, metrics: Mapping[str, float], page: str) -> None:
        """Store ``metrics`` (name -> number) and the text ``page`` about a step of training; again, if they changed.
        Where the trainer logs to no run of this backend there is no place for them, and nothing is stored."""

    def logged(self, step: int, numbers: Mapping[str, Mapping[str, float]]) -> None:
        """Store what was recorded about a step, instead of what was stored of it: ``metrics`` as the trainer logged
        them, ``token_facts``. Nothing to do where the trainer's own logger has brought them there."""

    def close(self) -> None:
        """Release connections; never raises."""


_Item = TypeVar("_Item")
_Error = TypeVar("_Error", bound=Exception)


def culprits(
    batch: Sequence[_Item], send: Callable[[Sequence[_Item]], object], kind: type[_Error]
) -> Iterator[tuple[_Item, _Error]]:
    """Send ``batch``, and in halves what is rejected with an error of ``kind``. Yields the single items that are to
    blame, each with its error."""
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
    """``items`` in order, in requests of ``most_bytes`` and ``most`` items at most; what is larger goes alone."""
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
