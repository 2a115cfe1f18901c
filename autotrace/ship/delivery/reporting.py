"""Reports about whole steps, beside the trainer's own metrics: to the backends that have a place for them, each from a
thread of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run.info import RunInfo
from autotrace.ship.store.state import Memory, State
from autotrace.sinks import registry
from autotrace.sinks.protocol import Refused, Reporter, Unavailable

_log = logging.getLogger("autotrace.ship")
_KEY = "report:"

PAUSE = 10.0
"""Seconds until a report that failed is tried again."""
TRIES = 30
"""Of a report; after the end of the run ``LAST_TRIES``."""
LAST_TRIES = 2


class Report(msgspec.Struct):
    """About one step of training."""

    step: int
    metrics: dict[str, float]
    page: str


class _Post:
    """One backend's: what waits for it, by step, and what is on its way."""

    def __init__(self, name: str, reporter: Reporter) -> None:
        self.name = name
        self.reporter = reporter
        self.waiting: dict[int, Report] = {}
        self.sending: tuple[Report, Future[None]] | None = None
        self.failures = 0
        self.not_before = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"report-{name}")

    def send(self) -> None:
        """Hand the next report over."""
        report = self.waiting.pop(min(self.waiting))
        self.sending = (report, self._thread.submit(self.reporter.report, report.step, report.metrics, report.page))

    def close(self) -> None:
        """Let go; what is on its way is left alone."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self.sending is None:
            self.reporter.close()


class Reporting:
    """Of one run. What was not taken when the shipper ends is reported by the next one of the run."""

    def __init__(self, state: State, run_folder: Path, info: RunInfo, backends: Iterable[str]) -> None:
        self._state = state
        self._run_folder = run_folder
        self._info = info
        self._binds: list[tuple[str, Mapping[str, Any]]] = []
        self._posts = self._made(backends)
        for post in self._posts:
            for text in state.metas(f"{_KEY}{post.name}:").values():
                report = msgspec.json.decode(text, type=Report)
                post.waiting[report.step] = report

    def _made(self, backends: Iterable[str]) -> list[_Post]:
        posts = []
        for name in backends:
            memory = Memory(self._state, f"backend:{name}:")
            try:
                reporter = registry.usable(name).reporter(self._info, self._run_folder, memory)
            except (registry.BackendError, ImportError):  # said where the sink is made
                continue
            if reporter is not None:
                posts.append(_Post(name, reporter))
        return posts

    def replace(self, backends: Iterable[str]) -> None:
        """Report to ``backends`` from now on."""
        self.close()
        self._posts = self._made(backends)
        for name, value in self._binds:
            self.bind(name, value, known=True)

    def bind(self, name: str, value: Mapping[str, Any], known: bool = False) -> None:
        """Hand something about the run to all."""
        if not known:
            self._binds.append((name, value))
        for post in self._posts:
            post.reporter.bind(name, value)

    def add(self, report: Report) -> None:
        """Report this about its step, instead of what waits about it."""
        for post in self._posts:
            post.waiting[report.step] = report
            with self._state:
                self._state.put_meta(_key(post, report), msgspec.json.encode(report).decode())

    def deliver(self, over: bool) -> bool:
        """Store what came of earlier reports and hand over the next ones; True when something moved."""
        moved = False
        for post in self._posts:
            if post.sending is not None and post.sending[1].done():
                report, future = post.sending
                post.sending, moved = None, True
                self._came(post, report, future.exception(), over)
            if post.sending is None and post.waiting and time.monotonic() >= post.not_before:
                post.send()
                moved = True
        return moved

    def _came(self, post: _Post, report: Report, error: BaseException | None, over: bool) -> None:
        if error is None:
            post.failures = 0
            if report.step not in post.waiting:
                with self._state:
                    self._state.db.execute("DELETE FROM meta WHERE key = ?", (_key(post, report),))
            return
        post.failures += 1
        post.not_before = time.monotonic() + (0.5 if over else PAUSE)
        if isinstance(error, Unavailable) and post.failures < (LAST_TRIES if over else TRIES):
            post.waiting.setdefault(report.step, report)
            return
        unforeseen = None if isinstance(error, (Refused, Unavailable)) else error
        _log.warning("%s did not take the report on step %d: %s", post.name, report.step, error, exc_info=unforeseen)

    @property
    def busy(self) -> bool:
        """Something is to be reported."""
        return any(post.waiting or post.sending is not None for post in self._posts)

    def close(self) -> None:
        """Let go."""
        for post in self._posts:
            post.close()


def _key(post: _Post, report: Report) -> str:
    return f"{_KEY}{post.name}:{report.step}"
