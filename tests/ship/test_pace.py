"""Delivery that falls behind is said, with what the numbers are and what would help."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from autotrace.run.status import BackendStatus, Status
from autotrace.ship.pace import Pace, warnings


def watched(
    *, made: float, taken: float, seconds: int = 60, spool: float = 0.0, unread: float = 0.0, state: str = "ok",
    whole: str = "running",
) -> Status:  # fmt: skip
    """The status after so many seconds at these rates a second; ``spool``, ``unread``: bytes a second."""
    pace = Pace()
    status = Status(whole, "run")
    for second in range(seconds + 1):
        delivered, read = int(taken * second), int((made - (unread / 1e6)) * second)
        status = Status(
            whole,
            "run",
            traces=read,
            unread_bytes=int(unread * second),
            read_bytes=int((spool - unread) * second),
        )
        backend = BackendStatus("mlflow", state, delivered=delivered, pending=read - delivered)
        status.backends["mlflow"] = backend
        pace.look(status, now=1000.0 + second)
    return status


def test_within_a_minute_it_is_said_with_both_rates(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "autotrace.ship"):
        (text,) = warnings(watched(made=27.0, taken=6.0))
    assert "the run makes 27 traces a second, mlflow takes 6, 21 a second wait" in text
    assert "--sample-rate 0.22" in text and "--keep" in text and "--backend" in text
    assert [record.getMessage() for record in caplog.records].count(text) <= 1 and len(caplog.records) == 1


def test_what_the_shipper_has_not_read_counts() -> None:
    """It may be the reading that does not keep up: then no queue grows."""
    status = watched(made=20.0, taken=10.0, spool=2e7, unread=1e7)  # a trace is a megabyte
    assert status.backends["mlflow"].pending == 0
    assert "makes 20 traces a second, mlflow takes 10" in warnings(status)[0]


def test_what_keeps_up_or_has_another_reason_is_not_said() -> None:
    assert not warnings(watched(made=27.0, taken=26.0))
    assert not warnings(watched(made=27.0, taken=6.0, seconds=15))  # too short to say
    assert not warnings(watched(made=0.0, taken=0.0))
    assert not warnings(watched(made=27.0, taken=0.0, state="waiting"))  # says so itself
    assert not warnings(watched(made=27.0, taken=6.0, whole="draining"))


def told(made: Callable[[int], int], taken: Callable[[int], int], seconds: int = 180) -> list[int]:
    """The seconds at which a run is said not to be kept up with, of which so much was made and taken by each second."""
    pace, said = Pace(), []
    for second in range(seconds + 1):
        status = Status("running", "run", traces=made(second))
        pending = made(second) - taken(second)
        status.backends["mlflow"] = BackendStatus("mlflow", delivered=taken(second), pending=pending)
        pace.look(status, now=1000.0 + second)
        said += [second] if warnings(status) else []
    return said


def test_what_waits_for_the_start_of_a_backend_does_not_count() -> None:
    assert not told(made=lambda second: 1 if second > 5 else 0, taken=lambda second: 1 if second > 45 else 0)
    late = range(40, 181)  # its library is imported; then it takes 12 a second until nothing waits
    assert not told(made=lambda second: 10 * second, taken=lambda second: min(10 * second, 12 * len(range(40, second))))
    assert told(made=lambda second: 10 * second, taken=lambda second: 6 * len(range(40, second)))[0] in late


def test_a_backlog_that_is_worked_off_does_not_count() -> None:
    assert not told(made=lambda second: second // 60, taken=lambda second: max(0, second - 40) // 60)  # of one

    def made(second: int) -> int:  # a step a minute, whose trajectories end together
        return 600 * (1 + second // 60)

    assert not told(made, taken=lambda second: 600 * (second // 60) + min(600, 15 * (second % 60)))
    assert told(made, taken=lambda second: 5 * second)
