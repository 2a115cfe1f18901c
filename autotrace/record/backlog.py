"""Events on their way to the flusher's thread, and how many bytes wait: the one place that adds and subtracts.

Callers append to a ``deque``: no lock, no wake-up. What an event holds beyond itself (its ``weight``, in bytes) is
charged when it is queued and settled when it is taken; what was encoded and is not in the file yet counts as waiting,
too.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from autotrace.record import faults
from autotrace.spool.records import Report

MAX_EVENTS = 100_000
"""Events waiting (about 40 MB without what they were charged for) beyond which not even spans of open trajectories are
opened."""
EVENT_BYTES = 512
"""Least memory of a waiting event."""
NUMBER_BYTES = 16
"""Memory of one number of a copied list: 8 for its place, and a share of the objects that the host dropped
meanwhile."""


class Consumer(Protocol):
    """Who takes the events."""

    def start(self) -> None:
        """See that a thread takes them from now on. Idempotent; never raises."""

    def spool_full(self, events: int) -> bool:
        """Whether the spool has its size once ``events`` more were written."""


class Backlog:
    """What waits in this process. Counters are changed without a lock: an addition without a call in it is one step as
    long as there is a global interpreter lock."""

    __slots__ = ("_charged", "_encoded", "_settled", "append", "consumer", "event_bytes", "limit", "queue", "watchful")

    def __init__(self) -> None:
        self.queue: deque[object] = deque()
        self.append = self.queue.append
        """Hand an event over that was charged for: never blocks, never raises."""
        self.consumer: Consumer | None = None
        """None: nothing is recorded."""
        self.limit = 0
        """Bytes that may wait."""
        self.event_bytes = EVENT_BYTES
        """Average size of a record so far."""
        self.watchful = True
        """Callers have to ask ``accepts`` and ``overloaded`` first: no thread runs yet, or it is behind, or in a write
        that may take its time. Asking every time would cost each call 100 ns."""
        self._charged = 0
        self._settled = 0
        self._encoded = 0

    def connect(self, consumer: Consumer | None, limit: int) -> None:
        """From now on ``consumer`` takes the events (None: nobody), and ``limit`` bytes may wait."""
        self.consumer, self.limit = consumer, limit

    # -- callers -----------------------------------------------------------------------------------------------------

    def charge(self, weight: int) -> None:
        """An event that holds ``weight`` bytes is about to be appended."""
        self._charged += weight

    def put(self, event: object) -> None:
        """Hand over an event without a weight of its own; never blocks, never raises."""
        if not self.watchful or self.accepts():
            self.append(event)

    def report(self, key: str, name: str, state: str, reason: str) -> None:
        """Queue what happened to a target; unlike ``put`` this starts no thread: it leaves with the first record, or at
        exit."""
        self.append(Report(key, name, state, reason))

    def accepts(self) -> bool:
        """Whether there is room for another event; starts the thread if there is none. Called while ``watchful``."""
        if self.consumer is None:
            return False
        self.consumer.start()
        if len(self.queue) < MAX_EVENTS:
            return True
        faults.count("drop:stuck")
        return False

    def full(self) -> bool:
        """Whether no new trajectory should begin, because too much is waiting or the spool has its size: whole ones are
        refused, never halves. Counts."""
        if self.consumer is None:
            return False
        if self.waiting() > self.limit // 2:  # the other half is for those that are open
            faults.count("drop:memory_limit")
            return True
        if self.consumer.spool_full(len(self.queue)):
            faults.count("drop:spool_limit")
            return True
        return False

    def overloaded(self) -> bool:
        """Whether not even token lists of trajectories that are recorded may be copied: all the memory there is for
        what waits is taken. Asked while ``watchful``; counts."""
        if self.consumer is None or self.waiting() <= self.limit:
            return False
        faults.count("drop:tokens")
        return True

    def wake(self) -> None:
        """Something was counted for the first time: start the thread, so that counters are written without any
        span."""
        if self.consumer is not None:
            self.consumer.start()

    # -- the flusher's thread ----------------------------------------------------------------------------------------

    def take(self) -> object:
        """The oldest event, which waits no longer. Raises ``IndexError`` when there is none."""
        event = self.queue.popleft()
        self._settled += getattr(event, "weight", 0)
        return event

    def encoded(self, size: int) -> None:
        """``size`` bytes of records are ready and not in the file yet."""
        self._encoded = size

    def clear(self) -> None:
        """Forget everything that waits."""
        self.queue.clear()
        self._settled = self._charged
        self._encoded = 0
        self.watchful = True

    # -- both --------------------------------------------------------------------------------------------------------

    def waiting(self) -> int:
        """Bytes that wait to be written, about."""
        return self._charged - self._settled + len(self.queue) * self.event_bytes + self._encoded

    @property
    def behind(self) -> bool:
        """Half of some limit is reached."""
        return len(self.queue) > MAX_EVENTS // 2 or self.waiting() > self.limit // 2


backlog = Backlog()
"""The one of this process."""
