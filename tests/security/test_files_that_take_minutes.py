"""Files of some MB and less whose reading took minutes: each cost more than in proportion to its bytes."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb
import pytest

from tests.cases import some
from tests.security import reading

MOST = 1 << 30
"""Bytes that reading one of the files may take, with the libraries."""
A_BYTE = 24
"""Bytes that reading may take for each byte of a file of metrics."""
FILES: dict[str, Callable[[Path], None]] = {}


def file(make: Callable[[Path], None]) -> Callable[[Path], None]:
    FILES[make.__name__] = make
    return make


def _dump(folder: Path, output: str) -> None:
    row = {"input": "user\nhi\nassistant\n", "output": output, "score": 1.0, "step": 1}
    (folder / "1.jsonl").write_text(json.dumps(row) + "\n")


@file
def answers_of_tools_that_begin_without_an_end(folder: Path) -> None:
    _dump(folder, "\nuser\n<tool_response>" * 50_000)


@file
def answers_of_tools_that_nobody_reads(folder: Path) -> None:
    _dump(folder, "<tool_response>\nuser\n<tool_response></tool_response>" * 30_000)


def _number(value: int) -> bytes:
    """A number of protocol buffers."""
    return bytes([value & 127 | (128 if value > 127 else 0)]) + (_number(value >> 7) if value > 127 else b"")


def _log(folder: Path, parts: Iterable[tuple[int, bytes]]) -> None:
    """A log of W&B: kind (2 begins a record, 3 goes on, 4 ends the record) and bytes of each part, in blocks."""
    log = bytearray(7)
    for kind, data in parts:
        while data:
            if (left := 32768 - len(log) % 32768) <= 7:
                log += bytes(left)
                left = 32768
            piece, data = data[: left - 7], data[left - 7 :]
            log += struct.pack("<IHB", 0, len(piece), 3 if kind == 4 and data else kind) + piece
            kind = max(kind, 3)
    (folder / "run-1.wandb").write_bytes(log)


@file
def a_record_in_a_million_parts(folder: Path) -> None:
    _log(folder, [(2, b"\1"), *[(3, b"\1")] * 1_000_000, (4, b"\1")])


@file
def a_record_that_ends_again_and_again(folder: Path) -> None:
    head = b"\x0a" + _number(30_000_000)  # a single field
    _log(folder, [(2, head), *[(3, bytes(30_000))] * 1_000, *[(4, b"\x08\0")] * 60_000])


@file
def a_table_of_short_rows_below_many_names(folder: Path) -> None:
    (folder / "metrics.csv").write_text(",".join(["a"] * 400_000) + ",step\n" + "1\n" * 20_000)


@file
def a_long_name_above_many_names(folder: Path) -> None:
    below = {str(number): number for number in range(200_000)}
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "data": {"n" * 4_000_000: below}}) + "\n")


@file
def equal_rows_without_number(folder: Path) -> None:
    rows = "SELECT 1 AS step, 'p' AS prompt, 'c' AS completion, 1.0 AS reward FROM range(200000)"
    duckdb.sql(f"COPY ({rows}) TO '{folder / 'completions_1.parquet'}'")


@file
def arrays_of_equal_numbers(folder: Path) -> None:
    session = folder / "step_1" / "session-sample-0-rollout-0-x"
    session.mkdir(parents=True)
    count = 60_000_000
    head = f"{{'descr': '|i1', 'fortran_order': False, 'shape': ({count},), }}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(session / "trajectory.npz", "w") as archive:
        for name in ("prompt_ids", "response_ids"):
            member = zipfile.ZipInfo(f"traj0_{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + b"\1" * count)
        archive.writestr("rest.npy", os.urandom(2_000_000))


@pytest.mark.parametrize("name", some(FILES, "answers_of_tools_that_nobody_reads", "arrays_of_equal_numbers"))
def test_reading_takes_no_minutes(name: str, tmp_path: Path) -> None:
    here, mine, theirs = (tmp_path / folder for folder in ("here", "mine", "theirs"))
    for folder in (here, mine, theirs):
        folder.mkdir()
    FILES[name](theirs)
    answers = reading.run([["open", str(theirs)], ["steps", str(theirs)]], here, mine)
    assert not reading.faults(answers)
    assert sum(answer["seconds"] for answer in answers) < reading.SECONDS / 2
    assert max(answer["peak"] for answer in answers) < MOST


@pytest.mark.long
def test_fields_of_metrics_take_memory_in_proportion_to_their_bytes(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    peaks = []
    for count in (1, 3_000_000):
        (theirs := tmp_path / str(count)).mkdir()
        record = b"\x12" + _number(2 * count) + b"\x08\0" * count
        _log(theirs, [(2, record[:1]), (4, record[1:])])
        (answer,) = reading.run([["open", str(theirs)]], here, tmp_path / "mine")
        assert not reading.faults([answer])
        peaks.append(answer["peak"])
    assert peaks[1] - peaks[0] < A_BYTE * 6_000_000, peaks


@pytest.mark.long
@pytest.mark.parametrize("words", [["show", "ab"], ["grep", "text"]], ids=" ".join)
def test_twice_the_calls_take_twice_the_time(words: list[str], tmp_path: Path) -> None:
    """Of failed calls in each other, the tree prints some, and the error once."""
    took = []
    for count in (20_000, 40_000):
        here, mine = tmp_path / f"here{count}", tmp_path / f"mine{count}"
        here.mkdir()
        mine.mkdir()
        failed = {"name": "f", "role": "tool", "key": "k", "start_ns": 1, "end_ns": 2, "status": "ERROR",
                  "error": ["ValueError", "the cause", ""], "inputs": {}, "output": None, "attributes": {}, "host": "h",
                  "pid": 1}  # fmt: skip
        parents = (number - 1 if number % 100 else 0 for number in range(count))
        role = {"role": "llm"} if words[0] == "grep" else {}
        spans = [{**failed, **(role if n % 2 else {}), "span_id": f"{n:x}", "parent_id": f"{p:x}" if n else None}
                 for n, p in enumerate(parents)]  # fmt: skip
        (here / "stored.jsonl").write_text(json.dumps({"trace_id": "ab" * 16, "run_id": "r", "spans": spans}) + "\n")
        (shown,) = reading.run([[*words, "stored.jsonl"]], here, mine)
        took.append(shown["seconds"])
        assert not reading.faults([shown]) and shown["peak"] < MOST, shown["peak"]
        if words[0] == "show":
            assert f"and {count - 2_000:,} more calls" in shown["out"] and shown["out"].count("the cause") < 5
    assert took[1] < 2.5 * took[0], took
