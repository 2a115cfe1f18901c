"""Records that were read are handed over once, if they are all there is, within a bound."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

import pytest

from autotrace.ship.assembly import loader, recent
from autotrace.ship.assembly.recent import OVERHEAD_BYTES, KeptRecords
from autotrace.ship.shipper import ship
from autotrace.sinks.jsonl.sink import FILE
from autotrace.spool.reader import Located
from autotrace.spool.records import Close
from tests.ship.spools import Process, new_run


def record(offset: int) -> Located:
    return Located(offset, Close(1, b"t" * 16, 1, "OK"), 10)


def keep(kept: KeptRecords, trace_id: str, segment: int, *offsets: int) -> None:
    for offset in offsets:
        if (records := kept.of(trace_id, segment)) is not None:
            records.append(record(offset))
            kept.added(1, 10)


def test_they_are_handed_over_once_and_only_if_nothing_is_missing() -> None:
    kept = KeptRecords()
    keep(kept, "a", 1, 8, 20)
    keep(kept, "a", 2, 8)
    taken = kept.take("a", {1: [8, 20], 2: [8]})
    assert taken is not None and [located.offset for located in taken[1]] == [8, 20]
    assert kept.take("a", {1: [8, 20], 2: [8]}) is None
    keep(kept, "a", 1, 20)  # read by an earlier shipper: 8
    assert kept.take("a", {1: [8, 20]}) is None and kept.take("a", {1: [20]}) is None
    assert kept.take("never read", {}) is None


def test_what_was_begun_last_makes_room_and_is_not_begun_again() -> None:
    kept = KeptRecords(room=3 * (OVERHEAD_BYTES + 20))
    for trace_id in "abcd":
        keep(kept, trace_id, 1, 8)
    keep(kept, "d", 1, 20)
    assert [kept.take(trace_id, {1: [8]}) is not None for trace_id in "abc"] == [True] * 3
    keep(kept, "d", 1, 30)
    assert kept.take("d", {1: [30]}) is None
    keep(kept, "d", 1, 40)  # taken: what comes now is another version
    assert kept.take("d", {1: [40]}) is not None


@pytest.mark.parametrize("room", [0, 3000])
def test_what_is_delivered_is_the_same_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Also of a trace of whose segments one is kept and one is not."""
    lines = []
    run = new_run(tmp_path)
    first, other = Process(run), Process(run, "node-2-bb")
    for number in range(8):
        trace = os.urandom(16)
        root = first.open(trace, "trajectory", inputs={"number": number})
        for process in (other, first):
            process.close(trace, process.open(trace, "tool", root, inputs={"query": "x" * 50}), output="y" * 100)
        first.close(trace, root)
    first.exit()
    other.exit()
    for name, bytes_kept in (("with", recent.ROOM), ("without", room)):
        copy = tmp_path / name
        shutil.copytree(run, copy)
        monkeypatch.setattr(loader, "KeptRecords", functools.partial(KeptRecords, bytes_kept))
        assert ship(copy, once=True).state == "done"
        lines.append(sorted((copy / FILE).read_bytes().splitlines()))
    assert len(lines[0]) == 8 and lines[0] == lines[1]
