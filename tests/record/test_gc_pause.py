"""No garbage collection starts in a thread of autotrace, and the host's thresholds stay the host's."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotrace.record import own_thread
from autotrace.run import gc_pause
from tests.conformance.processes import run
from tests.waiting import until

FINALIZERS = """
import collections, gc, sqlite3, threading
import busy

gc.set_threshold(30)
threads, failed = collections.Counter(), []

class Sandbox:
    def __init__(self):
        self.me = self
        self.database = sqlite3.connect(":memory:")  # only the thread that made it may use it

    def __del__(self):
        threads[threading.current_thread() is threading.main_thread()] += 1
        try:
            self.database.close()
        except sqlite3.ProgrammingError as error:
            failed.append(error)

for number in range(6_000):
    Sandbox()
    busy.act(number)
print(list(threads), len(failed))
"""


def test_finalizers_of_a_program_with_one_thread_run_in_that_thread(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text("def act(x):\n    return [x]\n")
    (tmp_path / "program.py").write_text(FINALIZERS)
    ran = run(tmp_path, "- {target: busy.act, role: tool}", str(tmp_path / "program.py"))
    assert ran.stdout == "[True] 0\n"
    assert len(ran.calls()) > 3_000


@pytest.fixture
def thresholds() -> Iterator[tuple[int, ...]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def held(steps: list[object], released: list[object]) -> None:
    """Run in a thread of autotrace: note the thresholds that hold there, and those that hold while it waits."""

    def body() -> None:
        steps.append(gc.get_threshold())
        gc_pause.released(released.append, 0)
        for _ in range(3):
            gc_pause.sleep(0.001)
        released.append(gc_pause.released(gc.get_threshold))
        steps.append(gc.get_threshold())

    own_thread.start(body)
    until(lambda: len(steps) == 2 and not own_thread.alive and gc.get_threshold() != gc_pause._ours())


def test_the_hosts_thresholds_hold_while_the_thread_waits_and_after_it_ended(thresholds: tuple[int, ...]) -> None:
    for hosts in ((701, 11, 12), (0, 10, 10), (701, 11, 12)):
        gc.set_threshold(*hosts)
        inside: list[object] = []
        outside: list[object] = []
        held(inside, outside)
        assert outside == [0, hosts] and gc.get_threshold() == hosts
        assert inside[0] == inside[1] and inside[0] > (1 << 30, 1 << 30, 1 << 30)  # type: ignore[operator]


def test_a_program_that_sets_a_threshold_again_that_it_read_in_between_sets_its_own(
    thresholds: tuple[int, ...],
) -> None:
    gc.set_threshold(702, 11, 12)
    read: list[object] = []
    held(read, [])
    gc.set_threshold(0, 10, 10)  # as a program that measures does
    held([], [])
    gc.set_threshold(*read[0])  # type: ignore[misc]
    held([], [])
    assert gc.get_threshold() == (702, 11, 12)


def test_a_forked_child_gets_the_hosts_thresholds(thresholds: tuple[int, ...]) -> None:
    gc.set_threshold(703, 11, 12)
    held([], [])
    gc.set_threshold(*gc_pause._ours())  # as if a thread of autotrace ran while the host forks
    child = os.fork()
    if child == 0:
        own_thread.after_fork_in_child()
        os._exit(gc.get_threshold() != (703, 11, 12))
    assert os.waitpid(child, 0)[1] == 0


def test_a_wait_that_raises_leaves_no_threshold_of_the_host_in_force(thresholds: tuple[int, ...]) -> None:
    found: list[object] = []

    def body() -> None:
        try:
            gc_pause.released(os.write, -1, b"")
        except OSError:
            found.append(gc.get_threshold() == gc_pause._ours())

    own_thread.start(body)
    until(lambda: found and not own_thread.alive)
    assert found == [True] and time.monotonic() > 0
