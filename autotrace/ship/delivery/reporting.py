"""Send reports about steps, and the metrics that the trainer recorded, to the backends that show metrics. Each backend
has a thread of its own."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run.info import RunInfo
from autotrace.ship.index import facts
from autotrace.ship.index.indexer import Subscriber
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.state import Memory, State
from autotrace.sinks import registry
from autotrace.sinks.protocol import Refused, Reporter, Unavailable

_log = logging.getLogger("autotrace.ship")
_KEY = "report:"
_STORED = "metrics:"
"""Map backend and step -> digest of the metrics that the backend has."""

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
Waiting = tuple[int, str]
"""Name an item by step and kind: of equal names, one item waits."""


class _Post:
    """Hold the waiting items of one backend and the item on the way."""

    def __init__(self, name: str, reporter: Reporter) -> None:
        self.name = name
        self.reporter = reporter
        self.waiting: dict[Waiting, Item] = {}
        self.sending: tuple[Item, Future[None]] | None = None
        self.failures = 0
        self.not_before = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"report-{name}")

    def send(self, item: Item) -> None:
        """Hand an item over to the backend's thread."""
        self.sending = (item, self._thread.submit(self._call, item))

    def _call(self, item: Item) -> None:
        if isinstance(item, StepReport):
            self.reporter.report(item.step, item.metrics, item.page)
        else:
            self.reporter.logged(item.step, item.numbers)

    def close(self) -> None:
        """Release the reporter; an item on the way is left alone."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self.sending is None:
            self.reporter.close()


class Reporting(Subscriber):
    """Report on one run, as a subscriber of its indexer. The next shipper of the run sends the items that were not
    taken."""

    def __init__(
        self, state: State, run_folder: Path, info: RunInfo, backends: Iterable[str], tables: Reporter
    ) -> None:
        self._state = state
        self._run_folder = run_folder
        self._info = info
        self._tables = tables
        self._recorded: set[int] = set(facts.step_numbers(state))
        """List steps with recorded numbers that some backend may lack."""
        self._posts = self._made(backends)
        for post in self._posts:
            for text in state.metas(f"{_KEY}{post.name}:").values():
                report = msgspec.json.decode(text, type=StepReport)
                post.waiting[_place(report)] = report

    def _made(self, backends: Iterable[str]) -> list[_Post]:
        posts = [_Post(TABLES, self._tables)]
        for name in backends:
            memory = Memory(self._state, f"backend:{name}:")
            with contextlib.suppress(registry.BackendError, ImportError):  # reported where the sink is made
                reporter = registry.usable(name).reporter(self._info, self._run_folder, memory)
                if reporter is not None:
                    posts.append(_Post(name, reporter))
        return posts

    def replace(self, backends: Iterable[str]) -> None:
        """Report to ``backends`` from now on. New backends get everything known about the run."""
        self.close()
        self._posts = self._made(backends)
        self._recorded |= set(facts.step_numbers(self._state))

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Pass a report about the run to all backends."""
        for post in self._posts:
            post.reporter.bind(name, value)

    def add(self, report: StepReport) -> None:
        """Report on a step, instead of an earlier waiting report on the step."""
        for post in self._posts:
            post.waiting[_place(report)] = report
            with self._state:
                self._state.put_meta(_key(post, report), msgspec.json.encode(report).decode())

    def recorded(self, step: int) -> None:
        """Note that numbers about a step were recorded."""
        self._recorded.add(step)

    def _send(self, post: _Post) -> bool:
        """Hand over the next item that the backend lacks; return whether any was left."""
        while post.waiting:
            item = post.waiting.pop(min(post.waiting))
            if isinstance(item, Logged):
                item.numbers = facts.read_steps(self._state, item.step).get(item.step, {})
                if _has(self._state, post.name, item):
                    continue
            post.send(item)
            return True
        return False

    def deliver(self, over: bool) -> bool:
        """Store the outcome of earlier items and hand over the next items. Returns whether something moved."""
        moved = False
        for post in self._posts:
            post.waiting |= {_place(logged): logged for logged in map(Logged, self._recorded)}
            if post.sending is not None and post.sending[1].done():
                item, future = post.sending
                post.sending, moved = None, True
                self._came(post, item, future.exception(), over)
            if post.sending is None and time.monotonic() >= post.not_before:
                moved |= self._send(post)
        self._recorded.clear()
        return moved

    def _came(self, post: _Post, item: Item, error: BaseException | None, over: bool) -> None:
        if error is None:
            post.failures = 0
            with self._state:
                if isinstance(item, Logged):
                    self._state.put_meta(f"{_STORED}{post.name}:{item.step}", item.digest())
                elif _place(item) not in post.waiting:
                    self._state.db.execute("DELETE FROM meta WHERE key = ?", (_key(post, item),))
            return
        post.failures += 1
        post.not_before = time.monotonic() + (0.5 if over else PAUSE)
        if isinstance(error, Unavailable) and post.failures < (LAST_TRIES if over else TRIES):
            post.waiting.setdefault(_place(item), item)
            return
        unforeseen = None if isinstance(error, (Refused, Unavailable)) else error
        what = "report on" if isinstance(item, StepReport) else "metrics of"
        _log.warning("%s did not take the %s step %d: %s", post.name, what, item.step, error, exc_info=unforeseen)

    @property
    def busy(self) -> bool:
        """Return whether something waits to be sent."""
        return bool(self._recorded) or any(post.waiting or post.sending is not None for post in self._posts)

    def close(self) -> None:
        """Release all backends."""
        for post in self._posts:
            post.close()


def has_all_steps(state: State, name: str) -> bool:
    """Return whether ``name`` has all recorded numbers about steps."""
    return all(_has(state, name, Logged(*step)) for step in facts.read_steps(state).items())


def _has(state: State, name: str, logged: Logged) -> bool:
    return state.meta(f"{_STORED}{name}:{logged.step}") == logged.digest()


def _place(item: Item) -> Waiting:
    return item.step, type(item).__name__


def _key(post: _Post, report: StepReport) -> str:
    return f"{_KEY}{post.name}:{report.step}"
