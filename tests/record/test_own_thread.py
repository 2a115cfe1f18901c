"""A thread that is started in the middle of a call of the host's: nothing waits for it, nothing is lost in it."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from autotrace.record import own_thread


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
        go.wait(30)
        ran.set()

    own_thread.start(run)
    assert not ran.is_set()
    go.set()
    assert ran.wait(30)


def test_a_timeout_that_hits_the_new_thread_reaches_its_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Python 3.11 a new thread has the number of its starter until it runs."""
    start_new_thread = own_thread.start_new_thread
    own = threading.get_ident()

    def at_once(function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
        ident = start_new_thread(function, arguments)
        raise_in(own)
        return ident

    monkeypatch.setattr(own_thread, "start_new_thread", at_once)
    for _ in range(50):
        ran = threading.Event()
        with pytest.raises(Timeout):
            own_thread.start(ran.set)
            work()
        assert ran.wait(30)


def test_where_there_can_be_no_thread_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[int] = []
    monkeypatch.setattr(own_thread, "start_new_thread", refused)
    with pytest.raises(RuntimeError):
        own_thread.start(lambda: ran.append(1))
    assert not ran
