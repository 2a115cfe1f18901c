"""Segments are read as far as they are whole, whoever wrote them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotrace.run import layout
from autotrace.spool.reader import Budget, SegmentReader, opened, records_at, segments, unreadable, writer_alive
from autotrace.spool.records import MAGIC, Close, Fact, Header, Open, Seal
from autotrace.spool.segment import frame
from tests.cases import examples
from tests.ship.spools import Process, new_run, trajectory


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path)


def only(run: Path) -> SegmentReader:
    (file,) = segments(run)
    return SegmentReader(run, file.name)


def test_what_is_appended_is_read_once(run: Path) -> None:
    process = Process(run)
    reader = only(run)
    assert isinstance(reader.read()[0].record, Header)
    assert reader.read() == []
    trace = trajectory(process)
    read = reader.read()
    assert sum(isinstance(found.record, Open) for found in read) == 6
    assert {found.record.trace for found in read if isinstance(found.record, Close)} == {trace}
    process.exit()
    assert isinstance(reader.read()[-1].record, Seal)
    assert reader.sealed == "exit"


def test_records_are_found_again_by_their_offsets(run: Path) -> None:
    process = Process(run)
    trajectory(process)
    reader = only(run)
    read = reader.read()
    with opened(run, reader.name) as fd:
        again = list(records_at(fd, [found.offset for found in read[3:9]], Budget()))
        assert again == read[3:9]
        assert list(records_at(fd, [read[3].offset + 1, 10**9], Budget())) == []


@pytest.mark.parametrize("gone", ["a segment", "the folder"])
def test_what_the_shipper_removes_meanwhile_is_not_unreadable(
    run: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Process(run).path

    def asked_late(asked: str, mode: int, of: Callable[[str, int], bool] = os.access) -> bool:
        if gone == "the folder" or asked == str(path):
            path.unlink(missing_ok=True)
        if gone == "the folder" and path.parent.exists():
            path.parent.rmdir()
        return of(asked, mode)

    monkeypatch.setattr(os, "access", asked_late)
    assert unreadable(run) is None


def test_links_folders_and_pipes_are_no_segments(run: Path, tmp_path: Path) -> None:
    process = Process(run)
    process.exit()
    spool = run / layout.SPOOL
    (spool / "link-1-a-0.seg").symlink_to(process.path)
    (spool / "folder-1-a-0.seg").mkdir()
    os.mkfifo(spool / "pipe-1-a-0.seg")
    assert [file.name for file in segments(run)] == [process.path.name]
    with pytest.raises(OSError):
        SegmentReader(run, "link-1-a-0.seg").read()


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1",
        msgspec.msgpack.encode(["Z", 1]),
        msgspec.msgpack.encode(["O", "no", "numbers"]),
        b"\x91" * 5000,
        msgspec.msgpack.encode(["C", 1, b"x" * 16, 1, "OK"])[:-1] + b"\xa2\xff\xfe",
        msgspec.msgpack.encode({"a": 1}),
    ],
)
def test_a_hostile_record_is_counted_and_passed_over(run: Path, payload: bytes) -> None:
    process = Process(run)
    process.raw(frame(payload))
    trace = trajectory(process)
    reader = only(run)
    read = reader.read()
    assert sum(reader.skipped.values()) == 1
    assert sum(isinstance(found.record, Fact) and found.record.trace == trace for found in read) == 1


@pytest.mark.parametrize("head", [b"not a segment at all", MAGIC + frame(b"\xc1"), MAGIC + frame(b"\x91\xa1S")])
def test_a_file_that_does_not_begin_as_a_segment_is_unusable(run: Path, head: bytes) -> None:
    (run / layout.SPOOL / "h-1-a-0.seg").write_bytes(head)
    reader = only(run)
    assert reader.read() == []
    assert reader.unusable or reader.incomplete


def test_a_torn_tail_is_waited_for_while_the_writer_lives(run: Path) -> None:
    process = Process(run)
    reader = only(run)
    reader.read()
    whole = frame(msgspec.msgpack.encode(Seal("exit", 5)))
    process.raw(whole[:7])
    assert reader.read() == [] and reader.incomplete is not None
    assert writer_alive(run, reader.name)
    process.raw(whole[7:])
    assert len(reader.read()) == 1 and reader.incomplete is None
    process.die()
    assert not writer_alive(run, reader.name)


def test_a_gigabyte_length_prefix_allocates_nothing(run: Path) -> None:
    process = Process(run)
    reader = only(run)
    reader.read()
    process.raw((1 << 30).to_bytes(4, "little") + bytes(20))
    assert reader.read() == [] and reader.incomplete is not None and reader.incomplete.damaged


def test_a_frame_that_is_too_large_is_damage(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotrace.spool.segment.MAX_FRAME", 10_000)
    process = Process(run)
    process.raw(frame(bytes(20_000)))
    reader = only(run)
    assert len(reader.read()) > 0 and reader.incomplete is not None and reader.incomplete.damaged


def test_a_batch_that_was_cut_off_and_written_again_is_read_once_more(run: Path) -> None:
    """On a full disk the writer cuts a half-written batch off; by the next look the file may have grown past it."""
    process = Process(run)
    reader = only(run)
    reader.read()
    size = process.path.stat().st_size
    process.fact("a", "x" * 50)
    process.fact("b", 1)
    assert len(reader.read()) == 2
    os.truncate(process.path, size)
    for number in range(9):
        process.fact("c", number)
    names = [found.record.name for _ in range(3) for found in reader.read() if isinstance(found.record, Fact)]
    assert names == ["c"] * 9


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(min_value=0, max_value=6000))
def test_wherever_a_segment_is_cut_all_whole_records_are_recovered(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    run = new_run(tmp_path_factory.mktemp("cut"))
    process = Process(run)
    for _ in range(4):
        trajectory(process)
    process.die()
    whole = only(run).read()
    ends = [found.offset for found in whole[1:]] + [process.path.stat().st_size]
    os.truncate(process.path, min(cut, process.path.stat().st_size))
    reader = only(run)
    assert reader.read() == whole[: sum(end <= cut for end in ends)]
    assert (reader.incomplete is not None) == (cut not in (0, len(MAGIC), *ends) and cut < ends[-1])
