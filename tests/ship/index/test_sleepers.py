"""Many open traces: those that only their process can end are lines of the state, and not in memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotrace.run.info import RunInfo
from autotrace.ship.assembly import loader as loading
from autotrace.ship.assembly.recent import OVERHEAD_BYTES
from autotrace.ship.index import indexer as indexing
from autotrace.ship.index import open_traces, traces
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.index.open_traces import OpenTrace
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.ship.store.state import State
from autotrace.spool import reader
from autotrace.spool.records import Fact
from tests.ship.index.test_indexer import Queue
from tests.ship.spools import Process, new_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(traces, "AWAKE", 4)
    monkeypatch.setattr(open_traces, "GRACE", 0.0)
    return new_run(tmp_path, main_pid=os.getpid())


def reading(run: Path) -> Indexer:
    """What reads the run, and has read all of it."""
    made = Indexer(State.of_run(run), run, RunInfo.read(run), [Queue()], 1 << 20)
    read(made)
    return made


def read(indexer: Indexer) -> None:
    while indexer.round():
        pass


def begun(process: Process, count: int) -> list[tuple[bytes, int]]:
    """Traces of one call each, which runs."""
    ids = [os.urandom(16) for _ in range(count)]
    return [(trace, process.open(trace, "span")) for trace in ids]


def settle(indexer: Indexer, over: bool = False) -> None:
    indexer.hurry()
    while indexer.settle(over):
        pass


def in_memory(indexer: Indexer) -> int:
    return len(indexer.open_steps())


def complete(run: Path) -> dict[str, str]:
    """Id -> how it ended."""
    return {row.trace_id: row.status for row in State.of_run(run).rows("complete = 1")}


def test_few_of_many_are_in_memory_and_all_are_open(run: Path) -> None:
    process = Process(run)
    begun(process, 20)
    indexer = reading(run)
    assert indexer.open_traces == 20 and in_memory(indexer) <= 4
    assert indexer.settle(over=False) == 0 and not complete(run)


def test_the_end_of_a_call_completes_its_trace(run: Path) -> None:
    process = Process(run)
    calls = begun(process, 20)
    indexer = reading(run)
    for trace, span in calls[:3]:
        process.close(trace, span, output=1)
    read(indexer)
    settle(indexer)
    assert complete(run) == {trace.hex(): "OK" for trace, _ in calls[:3]} and indexer.open_traces == 17


def test_more_calls_of_a_trace_keep_it_open(run: Path) -> None:
    process = Process(run)
    calls = begun(process, 20)
    indexer = reading(run)
    trace, span = calls[0]
    inner = process.open(trace, "tool", span)
    read(indexer)
    process.close(trace, inner)
    process.write(Fact(calls[1][0], None, "reward", 0.5, process.tick()))
    read(indexer)
    assert indexer.settle(over=False) == 0 and indexer.open_traces == 20
    process.close(trace, span)
    read(indexer)
    settle(indexer)
    assert complete(run) == {trace.hex(): "OK"} and indexer.open_traces == 19


def test_a_late_call_is_late_for_what_slept_too(run: Path) -> None:
    process = Process(run)
    trace, span = begun(process, 20)[0]
    indexer = reading(run)
    process.close(trace, span)
    process.open(trace, "tool", span)
    read(indexer)
    indexer.look_at_locks()
    process.exit()
    read(indexer)
    settle(indexer)
    assert {row.trace_id: row.late_spans for row in State.of_run(run).rows("late_spans")} == {trace.hex(): 1}


def test_what_cannot_be_read_for_a_moment_does_not_complete(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(run)
    trace, span = begun(process, 20)[0]
    indexer = reading(run)
    process.fact("reward", 0.5, trace)
    with monkeypatch.context() as broken:
        broken.setattr(loading, "opened", raising(OSError(errno.EIO, "input/output error")))
        read(indexer)
        assert indexer.settle(over=False) == 0
    process.close(trace, span)
    read(indexer)
    settle(indexer)
    assert complete(run) == {trace.hex(): "OK"}


def raising(error: Exception) -> Callable[..., Any]:
    def raises(*_: object, **__: object) -> Any:
        raise error

    return raises


def test_what_cannot_be_completed_for_a_moment_holds_nothing_up(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are completed at once."""
    monkeypatch.setattr(indexing, "ONCE_PER_ROUND", 3)
    process = Process(run)
    calls = begun(process, 3)
    for trace, span in calls:
        process.close(trace, span)
    indexer = reading(run)
    with monkeypatch.context() as broken:
        broken.setattr(indexer.loader, "look", raising(OSError(errno.EIO, "input/output error")))
        indexer.settle(over=False)
        assert not indexer.behind and not complete(run)
    settle(indexer)
    assert complete(run) == {trace.hex(): "OK" for trace, _ in calls}


def test_what_is_complete_goes_before_more_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And meanwhile silence means nothing: what came last does not complete."""
    monkeypatch.setattr(indexing, "ONCE_PER_ROUND", 2)
    process = Process(run)
    calls = begun(process, 4)
    for trace, span in calls:
        process.close(trace, span)
    indexer = Indexer(State.of_run(run), run, RunInfo.read(run), [Queue()])
    read(indexer)
    assert (indexer.settle(over=False), indexer.behind) == (2, True)
    for trace in indexer._traces.open.values():
        trace.touch()
    assert (indexer.settle(over=False), indexer.behind) == (0, False)
    assert (indexer.settle(over=False), indexer.settle(over=False)) == (2, 0)


def test_a_round_counts_records_too(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "AWAKE", 10_000)
    process = Process(run)
    begun(process, 1_000)
    monkeypatch.setattr(indexing, "ROUND_BYTES", OVERHEAD_BYTES * 100)
    indexer = Indexer(State.of_run(run), run, RunInfo.read(run), [Queue()], 1 << 20)
    indexer.round()
    before = indexer.open_traces
    indexer.round()
    assert before < indexer.open_traces <= before + 150


def test_many_that_cannot_sleep_cost_no_look_each_round(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(run)
    for _ in range(20):
        trace = os.urandom(16)
        process.open(trace, "tool", process.open(trace, "agent"))
    looked: list[OpenTrace] = []
    waits = OpenTrace.waits_for.fget
    monkeypatch.setattr(OpenTrace, "waits_for", property(lambda trace: looked.append(trace) or waits(trace)))
    indexer = reading(run)
    for number in range(20):
        process.fact("step", number)
        read(indexer)
    assert in_memory(indexer) == 20 and len(looked) <= 60, "20 at 5, then at 10, then at 20"
    looked.clear()
    assert in_memory(reading(run)) == 20 and len(looked) <= 60


def test_steps_stay_in_memory(run: Path) -> None:
    process = Process(run)
    for _ in range(20):
        process.open(os.urandom(16), "agent", attributes={"step": 1})
    assert in_memory(reading(run)) == 20


@pytest.mark.parametrize("started_anew", [False, True])
def test_the_end_of_a_process_completes_its_traces_and_no_others(run: Path, started_anew: bool) -> None:
    process, other = Process(run), Process(run, "node-2-aa")
    ended, _ = begun(process, 20), begun(other, 20)
    indexer = reading(run)
    process.exit()
    if started_anew:
        indexer = reading(run)
    read(indexer)
    indexer.look_at_locks()
    read(indexer)
    indexer.hurry()
    while indexer.settle(over=False):
        assert in_memory(indexer) <= 300
    assert complete(run) == {trace.hex(): "INTERRUPTED" for trace, _ in ended} and indexer.open_traces == 20


def test_the_end_of_the_run_completes_them_all(run: Path) -> None:
    process = Process(run)
    calls = begun(process, 20)
    indexer = reading(run)
    settle(indexer, over=True)
    assert complete(run) == {trace.hex(): "INTERRUPTED" for trace, _ in calls} and indexer.open_traces == 0


def test_rollouts_stay_in_memory(run: Path) -> None:
    process = Process(run)
    for number in range(20):
        process.open(os.urandom(16), "trajectory", attributes={"uid": f"u{number}"})
    assert in_memory(reading(run)) == 20


def test_nothing_is_done_while_something_is_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record a round: after most rounds no trace is open."""
    monkeypatch.setattr(indexing, "ROUND_BYTES", 1)
    monkeypatch.setattr(indexing, "LEAST_BYTES", 1)
    run = new_run(tmp_path)
    process = Process(run)
    trace, span = begun(process, 1)[0]
    process.close(trace, span)
    process.exit()
    assert ship(run, once=True).state == "done"
    assert [row.status for row in of_run(run).select(roots=True)] == ["OK"]


def test_a_segment_that_cannot_be_read_holds_no_end_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path)
    process, other = Process(run), Process(run, "node-2-aa")
    for each in (process, other):
        trace, span = begun(each, 1)[0]
        each.close(trace, span)
        each.exit()
    real = reader.opened

    def failing(folder: str | Path, name: str) -> Any:
        if name == other.path.name:
            raise OSError(errno.EIO, "input/output error")
        return real(folder, name)

    monkeypatch.setattr(reader, "opened", failing)
    assert ship(run, once=True).state == "done"
    assert [row.status for row in of_run(run).select(roots=True)] == ["OK"]
