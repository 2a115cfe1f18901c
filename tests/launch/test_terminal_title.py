"""The counts of a run in the title of its terminal: nothing of them in the lines, nothing left at the end."""

from __future__ import annotations

import os
import re
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotrace.ship.process import RESTORE_TITLE, SAVE_TITLE, TerminalTitle
from tests.places import Place
from tests.waiting import DEADLINE

PROGRAM = """
import json, os, sys, time
def solve(): print("solved", file=sys.stderr)
for _ in range(3): solve()
status = os.environ["AUTOTRACE_RUN_FOLDER"] + "/status.json"
while not os.path.exists(status) or json.load(open(status))["trajectories"] < 3: time.sleep(0.01)
"""
TITLE = re.compile(rb"\x1b\]2;([^\a]*)\a")
SEQUENCE = re.compile(rb"\x1b\]2;[^\a]*\a|\x1b\[2[23];2t")


def on_a_terminal(place: Place, *options: str, term: str) -> bytes:
    """All that a terminal gets that is the stderr of a run."""
    master, slave = os.openpty()
    place.write("prog.py", PROGRAM)
    place.write("own.yaml", "- {target: prog.solve, role: trajectory}\n")
    words = place.command(["python", "prog.py"], ["--spec", "own.yaml", *options])
    environ = place.environ(TERM=term, AUTOTRACE_DRAIN_TIMEOUT=str(DEADLINE))
    started = subprocess.Popen(words, cwd=place.cwd, env=environ, stdin=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    got = b"".join(iter(lambda: available(master), b""))  # ends when nobody has the terminal open
    assert started.wait(DEADLINE) == 0
    os.close(master)
    return got


def available(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:
        return b""


def test_the_counts_are_in_the_title_until_the_program_ends(place: Place) -> None:
    got = on_a_terminal(place, term="xterm-256color")
    assert got.count(SAVE_TITLE) == got.count(RESTORE_TITLE) == 1
    *shown, empty = TITLE.findall(got)
    assert shown[-1] == b"autotrace; trajectories: 3 complete, 0 open; calls: 3" and empty == b""
    assert got.index(SAVE_TITLE) < got.index(shown[0]) < got.index(RESTORE_TITLE) < got.index(b"saved 3 trajectories")
    lines = SEQUENCE.sub(b"", got).split(b"\r\n")
    assert lines[0].startswith(b"autotrace: run folder") and lines[1:4] == [b"solved"] * 3


@pytest.mark.parametrize(("term", "options"), [("dumb", ()), ("linux", ()), ("", ()), ("xterm", ("--quiet",))])
def test_no_title(place: Place, term: str, options: tuple[str, ...]) -> None:
    got = on_a_terminal(place, *options, term=term)
    assert b"solved" in got and b"\x1b]" not in got and SAVE_TITLE not in got


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int, int]]:
    """A terminal's two ends, and the id of a process whose stderr it is."""
    monkeypatch.setenv("TERM", "tmux")
    master, slave = os.openpty()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stderr=slave) as process:
        yield master, slave, process.pid
        assert process.stdin is not None
        process.stdin.close()
    os.close(slave)


def test_a_stopped_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (master, slave, pid):
        title = TerminalTitle(pid, is_first=True)
        termios.tcflow(slave, termios.TCOOFF)
        title.show("1")
        title.show("2")
        termios.tcflow(slave, termios.TCOON)
        title.show("2")
        title.show("2")
        title.show("a\x1b]0;b\ac\u2028")
        title.close()
        title.show("3")
        got = b""
        while not got.endswith(RESTORE_TITLE):
            got += os.read(master, 999)
        assert got == SAVE_TITLE + b"\x1b]2;2\a" + b"\x1b]2;a]0;bc\a" + RESTORE_TITLE
        assert os.get_blocking(slave)
        os.close(master)


def test_a_terminal_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (master, _, pid):
        title = TerminalTitle(pid, is_first=False)
        os.close(master)
        title.show("1")
        title.close()
    TerminalTitle(pid, is_first=True).show("of a process that is gone")
