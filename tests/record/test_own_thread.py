"""A thread that is started in the middle of a call of the host's: nothing waits for it, nothing is lost in it."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from autotrace.record import flusher, origin, own_thread
from tests.waiting import DEADLINE


class Timeout(Exception):
    """Set from another thread."""


def raise_in(thread: int) -> None:
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Timeout)) == 1


def work() -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        pass


def test_it_runs_and_is_not_waited_for() -> None:
    go, ran = threading.Event(), threading.Event()

    def run() -> None:
        go.wait(DEADLINE)
        ran.set()

    own_thread.start(run)
    assert not ran.is_set()
    go.set()
    assert ran.wait(DEADLINE)


def test_it_takes_no_signal_from_a_program_that_waits_for_one() -> None:
    """The program blocks it only then, so the thread did not inherit that."""
    child = os.fork()
    if child == 0:
        go = threading.Event()
        own_thread.start(lambda: go.wait(DEADLINE) and None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        os.kill(os.getpid(), signal.SIGUSR1)
        os._exit(0 if signal.sigtimedwait({signal.SIGUSR1}, DEADLINE) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_its_starter_takes_the_signals_that_it_took() -> None:
    go = threading.Event()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        own_thread.start(lambda: go.wait(DEADLINE) and None)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before | {signal.SIGUSR2}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        go.set()


def test_a_timeout_that_hits_the_new_thread_reaches_its_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Python 3.11 a new thread has the number of its starter until it runs."""
    start_new_thread = own_thread.thread.start_new_thread
    own = threading.get_ident()

    def at_once(function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
        ident = start_new_thread(function, arguments)
        raise_in(own)
        return ident

    monkeypatch.setattr(own_thread.thread, "start_new_thread", at_once)
    for _ in range(50):
        ran = threading.Event()
        with pytest.raises(Timeout):
            own_thread.start(ran.set)
            work()
        assert ran.wait(DEADLINE)


def test_where_there_can_be_no_thread_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[int] = []
    monkeypatch.setattr(own_thread.thread, "start_new_thread", refused)
    with pytest.raises(RuntimeError):
        own_thread.start(lambda: ran.append(1))
    assert not ran


def asked_in_a_new_thread() -> bool:
    """Whether what is raised in a thread of the host's is the host's."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(origin.is_hosts(SystemExit())))
    thread.start()
    thread.join(DEADLINE)
    return answers[0]


def test_a_thread_of_the_hosts_that_gets_the_number_of_one_of_ours_is_the_hosts() -> None:
    """A forked child has none of our threads, but the memory of their stacks, and with it their numbers."""
    marked, go = threading.Event(), threading.Event()

    def run() -> None:
        origin.own_thread()
        marked.set()
        go.wait(DEADLINE)
        marked.set()

    own_thread.start(run)
    assert marked.wait(DEADLINE)
    child = os.fork()
    if child == 0:
        flusher.after_fork_in_child()
        os._exit(0 if asked_in_a_new_thread() else 1)
    assert os.waitpid(child, 0)[1] == 0
    marked.clear()
    go.set()
    assert marked.wait(DEADLINE)
    assert all(asked_in_a_new_thread() for _ in range(20))
