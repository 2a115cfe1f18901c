"""Events on their way to the flusher's thread, and how many bytes wait: the only module that adds and subtracts.

Callers append to a ``deque``: no lock, no wake-up. What an event holds (its ``weight``, in bytes, strings included) is
charged when it is queued and settled when it is taken; what was encoded and is not in the file yet counts as waiting,
too.

When much waits, recording gets cheaper in steps, each a share of the memory limit, and each counted where something is
lost: the flusher's thread works longer between two pauses; callers pack token lists (``PACK``); large arguments and
results are left out (``LEAVE_OUT``); no new trajectory begins (``NO_NEW``); token lists are left out (all of it).
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from autotrace.record import faults
from autotrace.record.weights import EVENT_BYTES, LARGE, weigh
from autotrace.spool.records import Report

MAX_EVENTS = 100_000
"""Events waiting beyond which not even spans of open trajectories are opened."""
PACK, LEAVE_OUT, NO_NEW = 0.25, 0.75, 0.9
STUCK = 1.1
"""Share of the limit at which not even spans of open trajectories are opened."""


class Consumer(Protocol):
    """Who takes the events."""

    def start(self) -> None:
        """See that a thread takes them from now on. Idempotent; never raises."""

    def spool_full(self, events: int) -> bool:
        """Whether the spool has its size once ``events`` more were written."""


class Weighted(msgspec.Struct, eq=False, gc=False):
    """An event that has no field for its own weight."""

    event: object
    weight: int


class WhenRecording(msgspec.Struct, eq=False, gc=False):
    """Said only by a process that has something else to say: it is no reason for a file."""

    report: Report


class Backlog:
    """What waits in this process. Counters are changed without a lock: an addition without a call in it is one step as
    long as there is a global interpreter lock."""

    __slots__ = (
        "__weakref__", "_encoded", "_never_came", "_room", "append", "charged", "consumer", "enough", "limit", "queue",
        "watchful",
    )  # fmt: skip

    def __init__(self) -> None:
        self.queue: deque[object] = deque()
        self.append = self.queue.append
        """Hand an event over that was charged for: never blocks, never raises."""
        self.consumer: Consumer | None = None
        """None: nothing is recorded."""
        self.limit = 0
        """Bytes that may wait."""
        self.watchful = True
        """Callers have to ask ``accepts`` and the others first: no thread runs yet, or it is behind, or in a write
        that may take its time. Asking every time would cost each call 100 ns."""
        self._room = 0
        self.charged = 0
        """Bytes of all events so far. Callers add to it where not even ``charge`` may be called (``closing.close``)."""
        self.enough = 0
        """What may be ``charged`` before callers have to ask: not only when the thread looks the next time."""
        self._never_came = 0
        """Bytes that were charged and not settled when ``settle`` found the queue empty the last time."""
        self._encoded = 0

    def connect(self, consumer: Consumer | None, limit: int) -> None:
        """From now on ``consumer`` takes the events (None: nobody), and ``limit`` bytes may wait."""
        settled = self._settled
        self.consumer, self.limit, self._room = consumer, limit, int(limit * PACK)
        self.enough = settled + self._room
        self.watchful = True

    # -- callers -----------------------------------------------------------------------------------------------------

    def charge(self, weight: int) -> None:
        """An event that holds ``weight`` bytes is about to be appended."""
        self.charged += weight
        if self.charged > self.enough:
            self.watchful = True

    def put(self, event: object) -> None:
        """Hand over an event that was not charged for; never blocks, never raises."""
        if not self.watchful or self.accepts():
            weight = weigh(getattr(event, "value", None))
            if weight > LARGE and self.crowded():
                return
            self.charge(weight)
            self.append(Weighted(event, weight))

    def report(self, key: str, name: str, state: str, reason: str, alone: bool = True) -> None:
        """Queue what happened to a target; unlike ``put`` this starts no thread: it leaves with the first record, or at
        exit, unless it is nothing to be said ``alone``."""
        event = Report(key, name, state, reason)
        self.append(event if alone else WhenRecording(event))

    def accepts(self) -> bool:
        """Whether there is room for another event; starts the thread if there is none. Called while ``watchful``."""
        if self.consumer is None:
            return False
        self.consumer.start()
        if len(self.queue) < MAX_EVENTS and self.waiting() < self.limit * STUCK:
            return True
        faults.count("drop:stuck")
        return False

    def full(self) -> bool:
        """Whether no new trajectory should begin, because too much is waiting or the spool has its size: whole ones are
        refused, never halves. Counts."""
        if self.consumer is None:
            return False
        if self.waiting() > self.limit * NO_NEW:  # the rest is for those that are open
            faults.count("drop:memory_limit")
            return True
        if self.consumer.spool_full(len(self.queue)):
            faults.count("drop:spool_limit")
            return True
        return False

    def packs(self) -> bool:
        """Whether token lists should be packed by the caller: a ninth of the memory, for three times the time."""
        return self.waiting() > self.limit * PACK

    def crowded(self) -> bool:
        """Whether large arguments and results have to be left out. Counts."""
        if self.waiting() <= self.limit * LEAVE_OUT:
            return False
        faults.count("drop:content")
        return True

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
        self.enough += getattr(event, "weight", 0)
        return event.event if type(event) is Weighted else event

    def encoded(self, size: int) -> None:
        """``size`` bytes of records are ready and not in the file yet."""
        self._encoded = size

    def settle(self, last: bool = False) -> None:
        """Forget the weight of events that an exception of the host's ended between their charge and the queue: on
        Python 3.10 one may come between any two instructions. Asked about once a second: what was charged and did not
        come both times is such. ``last``: nobody charges any more."""
        if self.queue:
            return
        before, self._never_came = self._never_came, self.charged - self._settled
        lost = self._never_came if last else max(0, min(before, self._never_came))
        self.enough += lost
        self._never_came -= lost

    def clear(self) -> None:
        """Forget everything that waits."""
        self.queue.clear()
        self.enough = self.charged + self._room
        self._encoded = 0
        self.watchful = True

    # -- both --------------------------------------------------------------------------------------------------------

    @property
    def _settled(self) -> int:
        return self.enough - self._room

    def waiting(self) -> int:
        """Bytes that wait to be written, about."""
        return self.charged - self._settled + self._encoded + len(self.queue) * EVENT_BYTES

    @property
    def pressure(self) -> float:
        """Share of the limit that is taken."""
        return self.waiting() / self.limit if self.limit else 0.0

    @property
    def behind(self) -> bool:
        """Callers have to ask before they hand over more."""
        return self.consumer is None or len(self.queue) > MAX_EVENTS // 2 or self.waiting() > self._room


backlog = Backlog()
"""The one of this process."""
