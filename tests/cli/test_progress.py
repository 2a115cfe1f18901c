"""How far a long command is, for who sits at a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from autotrace.cli import terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(terminal, "QUIET_FOR", -1.0)
    assert list(terminal.shown(range(2_000), "trajectories")) == list(range(2_000))
    assert "2,000 of 2,000 trajectories" in sys.stderr.getvalue()


def test_a_short_command_and_a_file_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for stderr in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert list(terminal.shown(["a", "b"], "trajectories")) == ["a", "b"]
        assert stderr.getvalue() == ""
    monkeypatch.setattr(terminal, "QUIET_FOR", -1.0)
    assert list(terminal.shown(["a", "b"], "trajectories")) == ["a", "b"] and sys.stderr.getvalue() == ""


def test_whoever_stops_early_leaves_a_clean_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(terminal, "QUIET_FOR", -1.0)
    items = terminal.shown(range(10), "trajectories")
    assert [next(items), next(items)] == [0, 1]
    items.close()  # type: ignore[attr-defined]
    assert sys.stderr.getvalue().endswith("\x1b[2K") or "\x1b[?25h" in sys.stderr.getvalue()


def test_delivery_counts_in_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with terminal.counting("delivered") as count:
        assert count is not None
        count(1_200, 40_000)
    assert "1,200 of 40,000 delivered" in sys.stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with terminal.counting("delivered") as count:
        assert count is None
    assert sys.stderr.getvalue() == ""
