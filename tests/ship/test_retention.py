"""Segments go once everything of them is in the tables and delivered; what comes later finds the trajectory there."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autotrace.config.plan import Plan, Settings
from autotrace.run import layout
from autotrace.run.info import RunInfo
from autotrace.ship import retention
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery.into_tables import TablesSink
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import Shipper, ship
from autotrace.ship.store.state import State
from autotrace.sinks.protocol import Refused
from autotrace.spool.reader import Located, SegmentReader, segments
from autotrace.trajectory.model import Trajectory
from tests.cases import some
from tests.run_folder import recorded
from tests.ship.spools import Process, new_run, trajectory
from tests.ship.test_shipper import delivered
from tests.waiting import DEADLINE


def planned(folder: Path, **settings: Any) -> Path:
    (folder / layout.PLAN_JSON).write_text(Plan((), Settings(**settings)).dumps())
    return folder


def everything(folder: Path) -> dict[str, dict[str, Any]]:
    """All that a reader gets, in plain values."""
    reader = of_run(folder)
    found = {row.trace_id: reader.load(row.trace_id) for row in reader.select(roots=True)}
    reader.close()
    return {trace_id: plain(one) for trace_id, one in found.items()}


def plain(one: Trajectory) -> dict[str, Any]:
    fields = {field.name: getattr(one, field.name) for field in dataclasses.fields(one) if field.name != "spans"}
    spans = [{name: getattr(span, name) for name in SPAN} for span in one.spans]
    return fields | {"spans": spans}


SPAN = (
    "span_id", "parent_id", "name", "role", "status", "inputs", "output", "attributes", "error", "prompt_ids",
    "new_prompt_ids", "response_ids", "logprobs", "old_logprobs", "prompt_text", "response_text", "messages", "end_ns",
)  # fmt: skip


def assembled(folder: Path) -> dict[str, dict[str, Any]]:
    """What a backend is given."""
    with contextlib.closing(State.of_run(folder)) as state:
        loader = Loader(state, folder, RunInfo.read(folder))
        return {row.trace_id: plain(one) for row in state.rows() if (one := loader.load(row.trace_id)) is not None}


def test_segments_go_at_the_end_and_nothing_else_does(tmp_path: Path) -> None:
    kept, gone = recorded(tmp_path, "run"), tmp_path / "copy" / "run"
    planned(kept, keep_spool=True)
    shutil.copytree(kept, gone)
    planned(gone)
    assert ship(kept, once=True).state == ship(gone, once=True).state == "done"
    assert segments(kept) and not segments(gone)
    assert everything(kept) == everything(gone)
    assert assembled(kept) == assembled(gone)
    assert delivered(kept).keys() == delivered(gone).keys() == everything(gone).keys()


def test_a_fact_and_a_call_that_come_after_the_segment_is_gone(tmp_path: Path) -> None:
    folder = planned(new_run(tmp_path))
    process = Process(folder)
    trace = trajectory(process, reward=None)
    other = trajectory(process, reward=0.5)
    process.exit()
    assert ship(folder, once=True).state == "done"
    assert not segments(folder)
    before = everything(folder)
    late = Process(folder, "node-2-bb")
    late.at = process.at + 10**9
    late.fact("reward", 0.25, trace)
    root = int(before[trace.hex()]["spans"][0]["span_id"], 16)
    call = late.open(trace, "reward", root, inputs={"answer": "4"})
    late.close(trace, call, output=0.25)
    late.exit()
    assert ship(folder, once=True).state == "done"
    assert not segments(folder)
    after = everything(folder)
    assert after[other.hex()] == before[other.hex()]
    grown, was = after[trace.hex()], before[trace.hex()]
    assert grown["facts"]["reward"] == 0.25 and grown["late_spans"] == 1 and grown["version"] > was["version"]
    assert [span for span in grown["spans"] if span["role"] != "reward"] == was["spans"]
    assert [span["output"] for span in grown["spans"] if span["role"] == "reward"] == [0.25]
    assert delivered(folder)[trace.hex()]["facts"]["reward"] == 0.25


def test_a_backend_that_is_added_later_gets_what_the_tables_have(tmp_path: Path) -> None:
    folder = planned(recorded(tmp_path, "run", backends=[]))
    assert ship(folder, once=True).state == "done"
    assert not segments(folder) and not (folder / "trajectories.jsonl").exists()
    whole = everything(folder)
    info = RunInfo.read(folder)
    info.backends = ["jsonl"]
    info.write(folder)
    assert ship(folder, once=True).state == "done"
    assert delivered(folder).keys() == whole.keys()


def test_a_segment_that_goes_while_it_is_read(tmp_path: Path) -> None:
    folder = planned(recorded(tmp_path, "run"), keep_spool=True)
    assert ship(folder, once=True).state == "done"
    planned(folder)
    before = assembled(folder)
    with contextlib.closing(State.of_run(folder)) as state:
        loader = Loader(state, folder, RunInfo.read(folder))
        read = loader._read

        def late(name: str, offsets: Any, budget: Any) -> Any:
            room = retention.Retention(state, folder, lambda _: False)
            room.make_room(over=True)  # after it was found where the records lie
            return read(name, offsets, budget)

        loader._read = late  # type: ignore[method-assign]
        found = {trace_id: loader.load(trace_id) for trace_id in before}
        assert {trace_id: one and plain(one) for trace_id, one in found.items()} == before
    assert not segments(folder)


def test_a_lost_state_is_made_again_of_the_tables(tmp_path: Path) -> None:
    folder = planned(recorded(tmp_path, "run"))
    other = Process(folder, "node-2-bb", run_id=RunInfo.read(folder).run_id)
    other.report("my.target", "bound")
    other.count({"my.target": 5}, {"queue full": 3})
    other.exit()
    first = ship(folder, once=True)
    assert not segments(folder)
    before, lines = everything(folder), delivered(folder)
    for path in folder.glob("state.db*"):
        path.unlink()
    (folder / "trajectories.jsonl").unlink()
    assert everything(folder) == before
    after = ship(folder, once=True)
    told = [(each.state, each.processes, each.hosts, each.drops, each.targets) for each in (first, after)]
    assert told[0] == told[1] and first.state == "done" and first.drops and first.targets
    assert everything(folder) == before
    again = delivered(folder)
    assert {trace: one["facts"] for trace, one in again.items()} == {
        trace: one["facts"] for trace, one in lines.items()
    }
    assert again == lines


@pytest.mark.parametrize(
    "about",
    some([
        b"garbage", b"", msgspec.msgpack.encode({}),
        msgspec.msgpack.encode({"processes": [{}], "reports": [], "binds": []}),
        msgspec.msgpack.encode({"processes": [{"process": "a", "of_a_later_release": 1}], "reports": [], "binds": []}),
        msgspec.msgpack.encode({"processes": [], "reports": [], "binds": [{"id": 1, "name": "config", "value": b"?"}]}),
    ], b"garbage"),
    ids=range(6),
)  # fmt: skip
def test_trajectories_come_back_whatever_is_said_beside_them(tmp_path: Path, about: bytes) -> None:
    folder = planned(recorded(tmp_path, "run"))
    ship(folder, once=True)
    before = everything(folder)
    (folder / layout.ABOUT).write_bytes(about)
    for path in [*folder.glob("state.db*"), folder / "trajectories.jsonl"]:
        path.unlink()
    for _ in range(2):  # what was restored is restored once
        assert ship(folder, once=True).state == "done"
        assert everything(folder) == before and delivered(folder).keys() == before.keys()


def test_a_segment_stays_while_its_trajectories_are_not_in_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planned(recorded(tmp_path, "run"))

    def refuse(self: TablesSink, trajectories: object) -> None:
        raise Refused("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(TablesSink, "deliver", refuse)
        assert ship(folder, once=True).state == "blocked"
    assert segments(folder)
    assert ship(folder, once=True).state == "done"
    assert not segments(folder)


def test_killed_before_the_file_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planned(recorded(tmp_path, "run"))

    unlink = os.unlink

    def fail(path: Any, *given: Any, **more: Any) -> None:
        if str(path).endswith(layout.SEGMENT_SUFFIX):
            raise OSError(5, "Input/output error")
        unlink(path, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        assert ship(folder, once=True).state == "done"
    assert segments(folder), "the state says that it is removed"
    before, lines = everything(folder), delivered(folder)
    assert ship(folder, once=True).state == "done"
    assert not segments(folder)
    assert everything(folder) == before and delivered(folder) == lines


def test_segments_stay_as_long_as_more_is_likely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planned(recorded(tmp_path, "run"))
    planned(folder, keep_spool=True)
    assert ship(folder, once=True).state == "done"
    planned(folder)
    state = State.of_run(folder)
    room = retention.Retention(state, folder, lambda _: False)
    monkeypatch.setattr(room, "_every", 0.0)
    assert room.make_room() == 0, "written a moment ago"
    monkeypatch.setattr(retention, "HOLD", 0.0)
    size = sum(file.size for file in segments(folder))
    assert room.make_room() == size and not segments(folder)
    state.close()


def running(folder: Path) -> Shipper:
    """A shipper that removes whatever may go, at each look, in a run that goes on."""
    planned(folder, spool_limit=1)
    shipper = Shipper(folder)
    shipper._retention._every = 0.0
    return shipper


def rounds(shipper: Shipper, until: Callable[[], bool]) -> None:
    ends = time.monotonic() + DEADLINE
    while not until():
        assert time.monotonic() < ends
        shipper.step()
        time.sleep(0.01)


def test_a_segment_that_has_no_more_than_its_header_yet(tmp_path: Path) -> None:
    """It stays, though all others of its process are gone: the process may have been taken for ended then."""
    folder = new_run(tmp_path, main_pid=os.getpid())
    with contextlib.closing(running(folder)) as shipper:
        process = Process(folder)
        first = trajectory(process)
        process.end("rotate")
        rounds(shipper, lambda: not segments(folder))
        shipper.step()  # no segment is left
        process.begin_next()
        for _ in range(3):
            shipper.step()
        second = trajectory(process)
        process.exit()
        rounds(shipper, lambda: not segments(folder))
    assert delivered(folder).keys() == {first.hex(), second.hex()}


def test_a_segment_of_an_ended_process_that_could_not_be_read_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_run(tmp_path, main_pid=os.getpid())
    with contextlib.closing(running(folder)) as shipper:
        process = Process(folder)
        first = trajectory(process)
        shipper.step()
        second, unread = trajectory(process), process.path.name
        process.rotate()
        process.exit()
        read = SegmentReader.read

        def fail(self: SegmentReader, limit: int = 0) -> list[Located]:
            if self.name == unread:
                raise OSError(24, "Too many open files")
            return read(self, limit)

        with monkeypatch.context() as patch:
            patch.setattr(SegmentReader, "read", fail)
            rounds(shipper, (folder / "trajectories.jsonl").exists)
            rounds(shipper, lambda: not shipper._state.count("SELECT count(*) FROM queue"))
            shipper.step()
            assert [file.name for file in segments(folder)] == [unread]
        rounds(shipper, lambda: not segments(folder))
    assert delivered(folder).keys() == {first.hex(), second.hex()}
