"""Recording uses clocks, waits, locks and threads that nobody has replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotrace.spool.records import Close, Header, Open
from tests.conformance.processes import Ran, run

BUSY = "def episode(n):\n    return [act(number) for number in range(n)]\n\ndef act(x):\n    return x\n"
SPEC = "- {target: busy.episode, role: trajectory}\n- {target: busy.act, role: tool}\n"

MOCKED = """
import contextlib, time
from unittest.mock import patch

pause, clock = time.sleep, time.perf_counter
names = ("time", "monotonic", "monotonic_ns", "time_ns", "sleep", "perf_counter", "perf_counter_ns", "clock_gettime")
names = [*(f"time.{name}" for name in names), "_thread.start_new_thread",
         "threading.Lock", "threading.Thread", "socket.gethostname"]
with contextlib.ExitStack() as stack:
    mocks = {name: stack.enter_context(patch(name)) for name in names}
    import busy
    busy.episode(3_000)
    pause(0.6)
    called = {name: len(mock.mock_calls) for name, mock in mocks.items() if mock.mock_calls}
print(called)
"""
REPLACED = """
import time
time.sleep = lambda seconds: None
time.time = time.monotonic = lambda: 5.0
time.time_ns = time.monotonic_ns = lambda: 5
import busy
busy.episode(3)
"""
FREEZEGUN = """
import time, busy
from freezegun import freeze_time
busy.episode(3)
with freeze_time("2012-01-14"):
    busy.episode(3)
busy.episode(3)
"""
FREEZEGUN_FIRST = """
from freezegun import freeze_time
with freeze_time("2012-01-14"):
    import busy
    busy.episode(9)
"""
TIME_MACHINE = """
import time_machine
with time_machine.travel("2012-01-14", tick=False):
    import busy
    busy.episode(9)
"""
GEVENT = """
from gevent import monkey
monkey.patch_all()
import os, gevent, busy

def work(x):
    for _ in range(3):
        busy.act(x)
        gevent.sleep(0.001)

gevent.joinall([gevent.spawn(work, number) for number in range(3)])
from autotrace.record import own_thread
from autotrace.record.backlog import backlog
print(own_thread.alive <= {int(name) for name in os.listdir("/proc/self/task")} - {os.getpid()})
pause = monkey.get_original("time", "sleep")
for _ in range(100):  # the hub stands still, and the flusher writes
    pause(0.05)
    if not backlog.queue:
        break
print(len(backlog.queue))
"""


def traced(folder: Path, program: str) -> Ran:
    (folder / "busy.py").write_text(BUSY)
    (folder / "program.py").write_text(program)
    return run(folder, SPEC, str(folder / "program.py"))


def records(ran: Ran, kind: type) -> list[Any]:
    return [record for segment in ran.segments for record in segment if isinstance(record, kind)]


def test_mocks_of_the_host_see_no_call(tmp_path: Path) -> None:
    ran = traced(tmp_path, MOCKED)
    assert ran.stdout == "{}\n"
    assert len(ran.calls()) == 3_001


@pytest.mark.parametrize("program", [REPLACED, FREEZEGUN, FREEZEGUN_FIRST, TIME_MACHINE])
def test_records_have_true_times(tmp_path: Path, program: str) -> None:
    ran = traced(tmp_path, program)
    assert len(ran.calls()) >= 4
    run_json = next(tmp_path.glob("*/run.json")).stat().st_mtime_ns
    (header,) = records(ran, Header)
    assert abs(header.wall_ns - run_json) < 300e9
    for record in [*records(ran, Open), *records(ran, Close)]:
        assert abs(record.at - header.mono_ns) < 300e9


def test_the_flusher_is_a_thread_of_the_system_under_gevent(tmp_path: Path) -> None:
    ran = traced(tmp_path, GEVENT)
    assert ran.stdout == "True\n0\n"
    assert len(ran.calls()) == 9
