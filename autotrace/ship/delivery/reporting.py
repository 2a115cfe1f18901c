"""Send reports about steps to the backends, and the metrics that the trainer recorded to the tables, each in the thread
in which a backend takes trajectories."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable
from concurrent.futures import Future

import msgspec

from autotrace.run.info import RunInfo
from autotrace.ship.delivery.courier import Courier
from autotrace.ship.index import facts
from autotrace.ship.index.indexer import Subscriber
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.state import State
from autotrace.sinks.protocol import Refused, Unavailable

_log = logging.getLogger("autotrace.ship")
_KEY = "report:"
_STORED = f"metrics:{TABLES}:"
"""Map step -> digest of the metrics that the tables have."""

PAUSE = 10.0
"""Wait so many seconds before a failed report is tried again."""
TRIES = 30
"""Try a report so many times; after the end of the run ``LAST_TRIES``."""
LAST_TRIES = 2


class StepReport(msgspec.Struct):
    """Report on one step of training."""

    step: int
    metrics: dict[str, float]
    page: str


class Logged(msgspec.Struct):
    """Hold the recorded numbers of one step (``index.facts``)."""

    step: int
    numbers: dict[str, dict[str, float]] = {}
    """Read at sending: as many steps may wait as a run has."""

    def digest(self) -> str:
        """Return a digest of the numbers."""
        return hashlib.blake2b(msgspec.json.encode(self.numbers), digest_size=8).hexdigest()


Item = StepReport | Logged


class _Post:
    """Hold the waiting items of one destination, at most one a step, and the item on the way."""

    def __init__(self, waiting: Iterable[Item]) -> None:
        self.waiting = {item.step: item for item in waiting}
        self.sending: tuple[Item, Future[None]] | None = None
        self.failures = 0
        self.not_before = 0.0


class Reporting(Subscriber):
    """Report on one run, as a subscriber of its indexer. The next shipper of the run sends the items that were not
    taken."""

    def __init__(self, state: State, info: RunInfo) -> None:
        self._state = state
        self._info = info
        self._posts = {TABLES: _Post(map(Logged, facts.step_numbers(state)))}

    def _post(self, name: str) -> _Post:
        """Return the post of a destination, with the reports that an earlier shipper left."""
        if name not in self._posts:
            left = self._state.metas(f"{_KEY}{name}:").values()
            self._posts[name] = _Post(msgspec.json.decode(text, type=StepReport) for text in left)
        return self._posts[name]

    def add(self, report: StepReport) -> None:
        """Report on a step, instead of an earlier waiting report on the step."""
        for name in self._info.backends:
            self._post(name).waiting[report.step] = report
            with self._state:
                self._state.put_meta(f"{_KEY}{name}:{report.step}", msgspec.json.encode(report).decode())

    def recorded(self, step: int) -> None:
        """Note that numbers about a step were recorded."""
        self._posts[TABLES].waiting[step] = Logged(step)

    def deliver(self, couriers: Iterable[Courier], over: bool) -> bool:
        """Store the outcome of earlier items and hand over the next items. Returns whether something moved."""
        moved = False
        for courier in couriers:
            post = self._post(courier.name)
            if post.sending is not None and post.sending[1].done():
                item, future = post.sending
                post.sending, moved = None, True
                error = Unavailable("the sink was closed") if future.cancelled() else future.exception()
                self._came(courier.name, post, item, error, over)
            if post.sending is None and time.monotonic() >= post.not_before:
                moved |= self._send(courier, post)
        return moved

    def _send(self, courier: Courier, post: _Post) -> bool:
        """Hand over the next item that the destination lacks; return whether any was left."""
        while post.waiting:
            item = post.waiting.pop(min(post.waiting))
            if isinstance(item, StepReport):
                post.sending = item, courier.tell("report", item.step, item.metrics, item.page)
                return True
            item.numbers = facts.read_steps(self._state, item.step).get(item.step, {})
            if not _is_stored(self._state, item):
                post.sending = item, courier.tell("logged", item.step, item.numbers)
                return True
        return False

    def _came(self, name: str, post: _Post, item: Item, error: BaseException | None, over: bool) -> None:
        if error is None:
            post.failures = 0
            with self._state:
                if isinstance(item, Logged):
                    self._state.put_meta(f"{_STORED}{item.step}", item.digest())
                elif item.step not in post.waiting:
                    self._state.db.execute("DELETE FROM meta WHERE key = ?", (f"{_KEY}{name}:{item.step}",))
            return
        post.failures += 1
        post.not_before = time.monotonic() + (0.5 if over else PAUSE)
        if isinstance(error, Unavailable) and post.failures < (LAST_TRIES if over else TRIES):
            post.waiting.setdefault(item.step, item)
            return
        unforeseen = None if isinstance(error, (Refused, Unavailable)) else error
        what = "report on" if isinstance(item, StepReport) else "metrics of"
        _log.warning("%s did not take the %s step %d: %s", name, what, item.step, error, exc_info=unforeseen)

    @property
    def busy(self) -> bool:
        """Return whether something waits to be sent."""
        posts = map(self._post, (TABLES, *self._info.backends))
        return any(post.waiting or post.sending is not None for post in posts)


def has_all_steps(state: State) -> bool:
    """Return whether the tables have all recorded numbers about steps."""
    return all(_is_stored(state, Logged(*step)) for step in facts.read_steps(state).items())


def _is_stored(state: State, logged: Logged) -> bool:
    return state.meta(f"{_STORED}{logged.step}") == logged.digest()
