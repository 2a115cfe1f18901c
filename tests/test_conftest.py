"""Tests start processes as a terminal does, however the tests themselves were started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, subprocess, sys
numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM]
for number in numbers:
    signal.signal(number, signal.SIG_IGN)
import tests.conftest
sleep = [sys.executable, "-c", "import signal, time; print('up', flush=True); time.sleep(600)"]
for number in numbers:
    os.kill(os.getpid(), number)
    child = subprocess.Popen(sleep, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    child.stdout.readline()
    child.send_signal(number)
    print(child.wait())
print(os.environ.get("PYTHONDONTWRITEBYTECODE"))
"""


def test_processes_are_started_with_default_signals_and_keep_what_they_compile() -> None:
    """As under ``nohup make test &`` in a container whose image sets ``PYTHONDONTWRITEBYTECODE``."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, cwd=Path(__file__).parents[1],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    ended = [-signal.SIGHUP, -signal.SIGINT, -signal.SIGQUIT, -signal.SIGTERM]
    assert done.stdout.split() == [*map(str, map(int, ended)), "None"], done.stderr


def test_a_command_changes_the_variables() -> None:
    os.environ["AUTOTRACE"] = "0"
    os.environ["AUTOTRACE_MORE"] = "1"


def test_the_next_test_does_not_see_the_change() -> None:
    assert os.environ.get("AUTOTRACE") != "0" and "AUTOTRACE_MORE" not in os.environ
