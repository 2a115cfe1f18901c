"""A thread, a greenlet or work for a pool that starts inside a recorded call belongs to that call."""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import multiprocessing.pool
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import greenlet
import pytest

from autotrace.adapters import greenlets, threads
from autotrace.config.plan import Plan, Settings
from autotrace.patch import adapting, engine
from autotrace.record import context, faults
from autotrace.spool.records import Open
from tests.cases import some
from tests.record.conftest import Recorder, recorder
from tests.waiting import DEADLINE

__all__ = ["recorder"]

Work = Callable[[int], int]
EARLY, LATE = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
POOL = multiprocessing.pool.ThreadPool(1)


@pytest.fixture(autouse=True)
def _following() -> Iterator[None]:
    assert engine.engine is None
    EARLY.submit(int).result()  # its thread runs already
    threads.install()
    greenlets.install()
    yield
    adapting.stop()


def leaf(number: int) -> int:
    return number


class Solver(threading.Thread):
    """A subclass that has a ``run`` of its own, and slots."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work

    def run(self) -> None:
        self.work(1)


def _thread_of(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


def _low_level(work: Work) -> None:
    over = _thread.allocate_lock()
    over.acquire()
    _thread.start_new_thread(lambda: (work(1), over.release()), ())
    over.acquire()


def _in_a_loop(work: Work) -> None:
    async def once() -> None:
        work(1)

    _thread_of(threading.Thread(target=asyncio.run, args=(once(),)))


def _threadsafe(work: Work) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def once() -> None:
        work(1)

    asyncio.run_coroutine_threadsafe(once(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def _nested(work: Work) -> None:
    inner = threading.Thread(target=work, args=(1,))
    _thread_of(threading.Thread(target=lambda: EARLY.submit(_thread_of, inner).result()))


def _called_back(work: Work) -> None:
    over = threading.Event()
    POOL.apply_async(func=int, callback=lambda _: (work(1), over.set()))
    over.wait()


WAYS: dict[str, Callable[[Work], Any]] = {
    "thread": lambda work: _thread_of(threading.Thread(target=work, args=(1,), daemon=True)),
    "subclass": lambda work: _thread_of(Solver(work)),
    "timer": lambda work: _thread_of(threading.Timer(0, work, [1])),
    "start_new_thread": _low_level,
    "event loop in a thread": _in_a_loop,
    "coroutine for a loop elsewhere": _threadsafe,
    "thread in a pool's in a thread": _nested,
    "submit": lambda work: EARLY.submit(work, 1).result(),
    "map": lambda work: list(LATE.map(work, [1])),
    "pool.map": lambda work: POOL.map(work, [1]),
    "pool.apply": lambda work: POOL.apply(work, (1,)),
    "pool.apply_async": lambda work: POOL.apply_async(args=(1,), func=work).get(),
    "pool.imap": lambda work: list(POOL.imap(work, [1])),
    "pool.imap_unordered": lambda work: list(POOL.imap_unordered(work, [1])),
    "pool.starmap": lambda work: POOL.starmap(work, [(1,)]),
    "callback of a pool": _called_back,
    "greenlet": lambda work: greenlet.greenlet(work).switch(1),
}


def parents(recorder: Recorder) -> list[tuple[str, str]]:
    """Targets of each call and of the call that it is in."""
    names, spans = recorder.names(), {record.span: record for record in recorder.records(Open)}

    def name(span: int) -> str:
        return names[spans[span].target].rpartition(".")[2] if span else ""

    return [(name(one.span), name(one.parent)) for one in spans.values()]


@pytest.mark.parametrize("way", WAYS)
def test_what_it_calls_is_in_the_call(recorder: Recorder, way: str) -> None:
    start = WAYS[way]
    work = recorder.wrap(leaf)

    def rollout() -> None:
        start(work)

    recorder.wrap(rollout, role="trajectory")()
    assert parents(recorder) == [("rollout", ""), ("leaf", "rollout")]


@pytest.mark.parametrize("way", WAYS)
def test_outside_of_a_call_it_is_in_none(recorder: Recorder, way: str) -> None:
    work = recorder.wrap(leaf)
    recorder.wrap(lambda: [LATE.submit(int).result(), POOL.apply(int)], key="rollout", role="trajectory")()
    WAYS[way](work)
    assert parents(recorder)[1:] == [("leaf", "")]


def test_a_thread_that_outlives_the_trajectory_is_in_it_no_longer(recorder: Recorder) -> None:
    work, over = recorder.wrap(leaf), threading.Event()

    def rollout() -> threading.Thread:
        thread = threading.Thread(target=lambda: (work(1), begun.set(), over.wait(), work(2)))
        thread.start()
        begun.wait()
        return thread

    begun = threading.Event()
    thread = recorder.wrap(rollout, role="trajectory")()
    over.set()
    thread.join()
    assert parents(recorder) == [("rollout", ""), ("leaf", "rollout"), ("leaf", "")]


def test_the_call_travels_alone_and_the_thread_is_the_hosts_own(recorder: Recorder) -> None:
    of_the_host = contextvars.ContextVar("of_the_host", default="nothing")
    seen: dict[str, Any] = {}

    class Mine(threading.Thread):
        def run(self) -> None:
            seen["value"] = of_the_host.get()
            seen["stack"] = [frame.f_code.co_filename for frame in _frames()]
            seen["attributes"] = sorted(vars(self))
            super().run()

    def failing() -> None:
        raise KeyError("mine")

    def rollout() -> None:
        of_the_host.set("of the rollout")
        thread = Mine(target=failing)
        _thread_of(thread)
        assert not hasattr(thread, "_target")  # ``Thread.run`` has deleted it

    hook, threading.excepthook = threading.excepthook, lambda args: seen.setdefault("raised", args)
    try:
        recorder.wrap(rollout, role="trajectory")()
    finally:
        threading.excepthook = hook
    assert seen["value"] == "nothing" and seen["raised"].exc_type is KeyError
    assert not [name for name in seen["stack"] if "autotrace" in name and "tests" not in name]


def _frames() -> Iterator[Any]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def test_what_cannot_be_called_is_refused_as_ever(recorder: Recorder) -> None:
    def rollout() -> None:
        for start in (lambda: _thread.start_new_thread(1, ()), lambda: EARLY.submit(), lambda: POOL.apply_async()):
            with pytest.raises(TypeError):
                start()
        with pytest.raises(TypeError):
            EARLY.submit(1).result()

    recorder.wrap(rollout, role="trajectory")()


def test_a_fault_of_ours_starts_the_thread_and_the_work_all_the_same(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise LookupError

    monkeypatch.setattr(threads, "current_call", broken)
    ran: list[int] = []
    thread = threading.Thread(target=ran.append, args=(1,))
    thread.start()
    thread.join()
    LATE.submit(ran.append, 2).result()
    assert ran == [1, 2]
    assert faults.counts["fault:thread start"] and faults.counts["fault:thread pool"]
    faults.counts.clear()


def test_it_can_be_switched_off(recorder: Recorder, tmp_path: Path) -> None:
    adapting.stop()
    engine.start(Plan((), Settings(follow_threads=False)), str(tmp_path), "run-1")
    try:
        threads.install()
        greenlets.install()
        work = recorder.wrap(leaf)
        recorder.wrap(lambda: _thread_of(threading.Thread(target=work, args=(1,))), key="rollout", role="trajectory")()
        assert context.of_the_parent is None and "builtin" in type(_thread.start_new_thread).__name__
        assert [parent for _, parent in parents(recorder)] == ["", ""]
    finally:
        engine.stop()


GEVENT = """
from gevent import monkey
if patched == "early": monkey.patch_all()
import contextvars, pathlib, sys, threading
from concurrent.futures import ThreadPoolExecutor
from autotrace.adapters import greenlets, threads
from autotrace.spool.records import Define, Open
from tests.record.conftest import Recorder
import gevent, gevent.pool, gevent.threadpool
recorder = Recorder(pathlib.Path(sys.argv[1]))
threads.install(), greenlets.install()
if patched == "late": monkey.patch_all()
host = contextvars.ContextVar("host", default="nothing")

def leaf(way):
    assert host.get() == "nothing", way

work = recorder.wrap(leaf)
busy = gevent.spawn(lambda: (asked.wait(), work("outside")))
asked = gevent.event.Event()
native = gevent.get_hub().threadpool

def thread(target, *args):
    started = threading.Thread(target=target, args=args)
    started.start(), started.join()

def rollout():
    host.set("the rollout's")
    gevent.spawn(work, "spawn").get()
    gevent.spawn_later(0.001, work, "later").get()
    gevent.pool.Pool(2).map(work, ["map"])
    list(gevent.pool.Pool(2).imap_unordered(work, ["imap"]))
    gevent.pool.Group().apply_async(work, ("apply",)).get()
    gevent.spawn(lambda: gevent.spawn(work, "nested").get()).get()
    native.apply(work, ("native",))
    thread(work, "thread")
    with ThreadPoolExecutor(1) as pool: pool.submit(work, "submit").result()
    asked.set()
    busy.get()

recorder.wrap(rollout, role="trajectory")()
native.apply(work, ("outside, native",))
gevent.spawn(work, "outside, spawned").get()
print(*["%s=%s" % (one.inputs["way"], bool(one.parent)) for one in recorder.records(Open)[1:]], sep=";")
"""


@pytest.mark.parametrize("patched", some(["never", "early", "late"], "early"))
def test_gevents_greenlets_and_pools(tmp_path: Path, patched: str) -> None:
    program = f"patched = {patched!r}\n{GEVENT}"
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    found = dict(pair.split("=") for pair in done.stdout.strip().split(";"))
    assert found.pop("thread") == found.pop("submit") == "True"
    inside = {"spawn", "later", "map", "imap", "apply", "nested", "native"}
    assert {way for way, is_inner in found.items() if is_inner == "True"} == inside
    assert {way for way, is_inner in found.items() if is_inner == "False"} == {
        "outside", "outside, native", "outside, spawned",
    }  # fmt: skip


IMPORTED_LATE = """
import pathlib, sys
from autotrace.adapters import registry
from autotrace.config.plan import Plan, Settings
from autotrace.spool.records import Open
from tests.record.conftest import Recorder
folder = pathlib.Path(sys.argv[1])
registry.start(Plan((), Settings()), str(folder), "run-1")
recorder = Recorder(folder)
work = recorder.wrap(lambda way: None)

def rollout():
    import {library}
    {call}

recorder.wrap(rollout, role="trajectory")()
print([bool(one.parent) for one in recorder.records(Open)])
"""


GREENLET = "greenlet", "greenlet.greenlet(work).switch(1)"
THREADS = "concurrent.futures", "concurrent.futures.ThreadPoolExecutor(1).submit(work, 1).result()"


@pytest.mark.parametrize(
    ("library", "call"),
    some(
        [
            GREENLET,
            ("gevent", "gevent.spawn(work, 1).get()"),
            ("gevent.pool", "gevent.pool.Pool(1).map(work, [1])"),
            ("gevent.threadpool", "gevent.threadpool.ThreadPool(1).spawn(work, 1).get()"),
            ("multiprocessing.pool", "multiprocessing.pool.ThreadPool(1).apply(work, (1,))"),
            THREADS,
        ],
        GREENLET,
        THREADS,
    ),
)
def test_a_library_may_be_imported_within_a_rollout(tmp_path: Path, library: str, call: str) -> None:
    program = IMPORTED_LATE.replace("{library}", library).replace("{call}", call)
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.stdout, done.returncode) == ("[False, True]\n", 0), done.stderr
