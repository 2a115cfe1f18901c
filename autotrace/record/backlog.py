"""Queue events for the flusher's thread and count the bytes that wait. No other module adds or subtracts bytes.

Callers append to a ``deque``: no lock, no wake-up. The ``weight`` of an event (in bytes, strings included) is charged
when the event is queued and settled when the event is taken. Encoded records that are not in the file yet count as
waiting, too.

When much waits, recording gets cheaper in steps. Each step is a share of the memory limit, and each loss is counted.
First, the flusher's thread works longer between two pauses. Then callers pack token lists (``PACK``), large arguments
and results are left out (``LEAVE_OUT``), no new trajectory begins (``NO_NEW``), and at the whole limit token lists are
left out.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from autotrace.record import faults
from autotrace.record.weights import EVENT_BYTES, LARGE, weigh
from autotrace.spool.records import Report

MAX_EVENTS = 100_000
"""Limits the waiting events beyond which not even spans of open trajectories are opened."""
PACK, LEAVE_OUT, NO_NEW = 0.25, 0.75, 0.9
STUCK = 1.1
"""Holds the share of the limit at which not even spans of open trajectories are opened."""


class Consumer(Protocol):
    """Takes the events."""

    def start(self) -> None:
        """Start a thread that takes the events, unless the thread runs already. Never raises."""

    def spool_full(self, events: int) -> bool:
        """Tells whether the spool reaches its size limit once ``events`` more are written."""


class Weighted(msgspec.Struct, eq=False, gc=False):
    """Holds an event that has no field for the event's weight."""

    event: object
    weight: int


class WhenRecording(msgspec.Struct, eq=False, gc=False):
    """Holds a report that is written only beside other records: the report alone is no reason for a file."""

    report: Report


class Backlog:
    """Holds the events that wait in this process. Counters are changed without a lock: with a global interpreter lock,
    an addition without a call inside is a single step."""

    __slots__ = (
        "__weakref__", "_encoded", "_never_came", "_room", "append", "charged", "consumer", "enough", "limit", "queue",
        "watchful",
    )  # fmt: skip

    def __init__(self) -> None:
        self.queue: deque[object] = deque()
        self.append = self.queue.append
        """Hand over an event that was charged: never blocks, never raises."""
        self.consumer: Consumer | None = None
        """Takes the events; None: nothing is recorded."""
        self.limit = 0
        """Counts the bytes that may wait."""
        self.watchful = True
        """Tells whether callers have to ask ``accepts`` and the other checks first: no thread runs yet, or the thread
        is behind or in a write that may take long. Asking every time would cost each call 100 ns."""
        self._room = 0
        self.charged = 0
        """Counts the bytes of all events so far. A caller adds here directly where not even ``charge`` may be called
        (``closing.close``)."""
        self.enough = 0
        """Counts the bytes that may be ``charged`` before callers have to ask. The limit does not wait for the next
        look of the thread."""
        self._never_came = 0
        """Counts the bytes that were charged and not settled when ``settle`` last found the queue empty."""
        self._encoded = 0

    def connect(self, consumer: Consumer | None, limit: int) -> None:
        """Let ``consumer`` take the events from now on (None: nobody takes events), and let ``limit`` bytes wait."""
        settled = self._settled
        self.consumer, self.limit, self._room = consumer, limit, int(limit * PACK)
        self.enough = settled + self._room
        self.watchful = True

    # -- callers -----------------------------------------------------------------------------------------------------

    def charge(self, weight: int) -> None:
        """Charge the ``weight`` in bytes of an event that is about to be appended."""
        self.charged += weight
        if self.charged > self.enough:
            self.watchful = True

    def put(self, event: object) -> None:
        """Hand over an event that was not charged; never blocks, never raises."""
        if not self.watchful or self.accepts():
            weight = weigh(getattr(event, "value", None))
            if weight > LARGE and self.crowded():
                return
            self.charge(weight)
            self.append(Weighted(event, weight))

    def report(self, key: str, name: str, state: str, reason: str, alone: bool = True) -> None:
        """Queue a report about a target. Unlike ``put``, ``report`` starts no thread: the report leaves with the first
        record or at exit. With ``alone=False`` the report leaves only beside other records."""
        event = Report(key, name, state, reason)
        self.append(event if alone else WhenRecording(event))

    def accepts(self) -> bool:
        """Tells whether there is room for another event; starts the thread if no thread runs. Called while
        ``watchful``."""
        if self.consumer is None:
            return False
        self.consumer.start()
        if len(self.queue) < MAX_EVENTS and self.waiting() < self.limit * STUCK:
            return True
        faults.count("drop:stuck")
        return False

    def full(self) -> bool:
        """Tells whether no new trajectory should begin, because too much waits or the spool reached its size limit.
        Whole trajectories are refused, never halves. Counts each refusal."""
        if self.consumer is None:
            return False
        if self.waiting() > self.limit * NO_NEW:  # the rest is for open trajectories
            faults.count("drop:memory_limit")
            return True
        if self.consumer.spool_full(len(self.queue)):
            faults.count("drop:spool_limit")
            return True
        return False

    def packs(self) -> bool:
        """Tells whether callers should pack token lists: a ninth of the memory, for three times the time."""
        return self.waiting() > self.limit * PACK

    def crowded(self) -> bool:
        """Tells whether large arguments and results have to be left out. Counts each loss."""
        if self.waiting() <= self.limit * LEAVE_OUT:
            return False
        faults.count("drop:content")
        return True

    def overloaded(self) -> bool:
        """Tells whether not even token lists of recorded trajectories may be copied, because waiting events take all
        the memory. Asked while ``watchful``; counts each loss."""
        if self.consumer is None or self.waiting() <= self.limit:
            return False
        faults.count("drop:tokens")
        return True

    def wake(self) -> None:
        """Start the thread after the first count of a counter, so that counters are written without any span."""
        if self.consumer is not None:
            self.consumer.start()

    # -- the flusher's thread ----------------------------------------------------------------------------------------

    def take(self) -> object:
        """Take the oldest event out of the queue. Raises ``IndexError`` if the queue is empty."""
        event = self.queue.popleft()
        self.enough += getattr(event, "weight", 0)
        return event.event if type(event) is Weighted else event

    def encoded(self, size: int) -> None:
        """Set the size in bytes of the records that are encoded and not in the file yet."""
        self._encoded = size

    def settle(self, last: bool = False) -> None:
        """Discard the weight of events that an exception of the host's ended between charge and queue: on Python 3.10
        an exception may come between any two instructions. ``settle`` is called about once a second. Bytes that were
        charged and did not arrive by two calls in a row count as lost. ``last``: nobody charges any more."""
        if self.queue:
            return
        before, self._never_came = self._never_came, self.charged - self._settled
        lost = self._never_came if last else max(0, min(before, self._never_came))
        self.enough += lost
        self._never_came -= lost

    def clear(self) -> None:
        """Discard everything that waits."""
        self.queue.clear()
        self.enough = self.charged + self._room
        self._encoded = 0
        self.watchful = True

    # -- both --------------------------------------------------------------------------------------------------------

    @property
    def _settled(self) -> int:
        return self.enough - self._room

    def waiting(self) -> int:
        """Estimate the bytes that wait to be written."""
        return self.charged - self._settled + self._encoded + len(self.queue) * EVENT_BYTES

    @property
    def pressure(self) -> float:
        """Return the share of the limit that is taken."""
        return self.waiting() / self.limit if self.limit else 0.0

    @property
    def behind(self) -> bool:
        """Tells whether callers have to ask before handing over more."""
        return self.consumer is None or len(self.queue) > MAX_EVENTS // 2 or self.waiting() > self._room


backlog = Backlog()
"""Holds the events of this process."""
