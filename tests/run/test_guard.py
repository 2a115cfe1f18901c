"""A shipper that is killed is started again, one that ends is not, and the guard goes when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotrace.run import layout
from tests.waiting import DEADLINE, until


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / layout.SPOOL).mkdir()
    return tmp_path


def start(run: Path, code: str, **how: Any) -> subprocess.Popen[str]:
    """The guard over ``charge.py``; each of its lives adds its pid to ``lives``."""
    (run / "charge.py").write_text(f"import os, sys, time\nprint(os.getpid(), file=open('lives', 'a'))\n{code}\n")
    words = [sys.executable, "-m", "autotrace.run.guard", "charge", str(run), "0"]
    environ = {**os.environ, "PYTHONPATH": f"{run}:{Path(__file__).parents[2]}", "AUTOTRACE": "0"}
    return subprocess.Popen(words, cwd=run, env=environ, stderr=subprocess.PIPE, text=True, **how)


def lives(run: Path) -> list[int]:
    path = run / "lives"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_killed_one_is_started_again_until_it_ends_by_itself(run: Path) -> None:
    guard = start(run, "time.sleep(600) if sum(1 for _ in open('lives')) < 4 else sys.exit(1)")
    for number in range(1, 4):
        until(lambda number=number: len(lives(run)) == number)
        os.kill(lives(run)[-1], signal.SIGKILL)
    assert guard.wait(timeout=DEADLINE) == 1
    assert len(lives(run)) == 4
    assert (run / layout.SHIPPER_LOG).read_text().count("charge was killed by signal 9; it is started again") == 3


def test_one_that_breaks_down_is_started_again(run: Path) -> None:
    guard = start(run, "sys.exit(70 if sum(1 for _ in open('lives')) < 2 else 0)")
    assert guard.wait(timeout=DEADLINE) == 0
    assert len(lives(run)) == 2


def test_the_guard_passes_sigterm_on_and_ends(run: Path) -> None:
    guard = start(
        run,
        "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); open('on', 'w')\n"
        "while True: time.sleep(0.05)",
    )
    until((run / "on").exists)
    guard.terminate()
    assert guard.wait(timeout=DEADLINE) == 0
    assert len(lives(run)) == 1


def test_it_takes_signals_where_its_starter_takes_none(run: Path) -> None:
    guard = start(
        run,
        "open('on', 'w'); time.sleep(600)",
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()),
    )
    until((run / "on").exists)
    guard.terminate()
    assert guard.wait(timeout=DEADLINE) == 0


def test_without_its_run_folder_nothing_is_started_again(run: Path) -> None:
    guard = start(run, "time.sleep(600)")
    until(lambda: len(lives(run)) == 1)
    (run / layout.SPOOL).rmdir()
    os.kill(lives(run)[0], signal.SIGKILL)
    assert guard.wait(timeout=DEADLINE) == 1
    assert len(lives(run)) == 1


def test_nobody_waits_for_its_stderr(run: Path) -> None:
    guard = start(run, "print('at the start', file=sys.stderr); os.close(2); open('on', 'w'); time.sleep(600)")
    assert guard.stderr is not None
    assert guard.stderr.read() == "at the start\n"
    assert guard.poll() is None
    guard.terminate()
    guard.wait(timeout=DEADLINE)


def test_one_that_is_killed_is_started_again_where_the_parent_ignores_sigchld(run: Path) -> None:
    guard = start(
        run,
        "time.sleep(600) if sum(1 for _ in open('lives')) < 2 else sys.exit(3)",
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    until(lambda: len(lives(run)) == 1)
    os.kill(lives(run)[0], signal.SIGKILL)
    assert guard.wait(timeout=DEADLINE) == 3
    assert len(lives(run)) == 2


def test_sigterm_ends_the_wait_for_the_next_start(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, threading\n"
        "from autotrace.run import guard\n"
        "guard.FIRST_DELAY = 3600.0\n"
        "guard.sys.stderr = type('Told', (), {'write': lambda self, text: os.kill(os.getpid(), signal.SIGTERM),"
        " 'flush': lambda self: None})()\n"
        "guard._let_go = lambda run_folder: None\n"
        "guard.layout.spool_of = lambda run_folder: '/'\n"
        "sys.exit(guard.guard([sys.executable, '-c', 'import sys; sys.exit(70)'], sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=DEADLINE, cwd=Path(__file__).parents[2])
    assert done.returncode == 0
