"""What waits is counted right, whatever ends a call half way."""

from __future__ import annotations

from autotrace.record.backlog import Backlog, Weighted


def test_what_was_charged_and_never_came_is_forgotten() -> None:
    backlog = Backlog()
    for _ in range(3):
        backlog.charge(1000)
        backlog.append(Weighted(None, 1000))
    backlog.charge(500)  # the host's timeout came here
    while backlog.queue:
        backlog.take()
    backlog.settle()
    assert backlog.waiting() == 500, "it may be on its way"
    backlog.charge(70)
    backlog.settle()
    assert backlog.waiting() == 70, "that one came in between"
    backlog.append(Weighted(None, 70))
    backlog.take()
    for _ in range(3):
        backlog.settle()
    assert backlog.waiting() == 0


def test_what_is_on_its_way_is_not_forgotten() -> None:
    backlog = Backlog()
    for weight in (300, 200, 100):
        backlog.charge(weight)
        backlog.settle()
        backlog.append(Weighted(None, weight))
        backlog.settle()
        assert backlog.waiting() > weight
        backlog.take()
        assert backlog.waiting() == 0
        backlog.settle()


def test_nobody_charges_after_the_last() -> None:
    backlog = Backlog()
    backlog.charge(500)
    backlog.settle(last=True)
    assert backlog.waiting() == 0
