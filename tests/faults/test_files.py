"""Files that are cut, damaged, hostile, or not meant for us."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console

from autotrace.cli.show import tree
from autotrace.run import layout
from autotrace.run.status import Status
from autotrace.ship.index import open_traces
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.sinks import registry
from autotrace.spool.reader import SegmentReader, decode, segments
from autotrace.spool.records import (
    MAGIC,
    Bind,
    Close,
    Counters,
    Define,
    Fact,
    Header,
    NewTokens,
    Open,
    Record,
    Report,
    Seal,
)
from autotrace.spool.segment import frame
from tests.cases import examples, some
from tests.faults.conftest import ROOT, Start
from tests.faults.outcome import Outcome, outcome
from tests.ship.spools import ANSWER, FINAL, TOOL, Process, new_run, trajectory
from tests.waiting import DEADLINE


def _read(run: Path, name: str) -> tuple[int, SegmentReader]:
    reader = SegmentReader(run, name)
    count = 0
    while records := reader.read():
        count += len(records)
    return count, reader


def test_a_segment_cut_anywhere(run: Path, start: Start, note: Callable[..., None], tmp_path: Path) -> None:
    """1,000 random lengths of a real segment: every complete record is recovered, and where it is torn is said."""
    assert start("some", 40).wait(DEADLINE) == 0
    (file,) = segments(run)
    data = (run / layout.SPOOL / file.name).read_bytes()
    ends = [len(MAGIC)]
    reader = SegmentReader(run, file.name)
    offsets = [located.offset for located in _all(reader)]
    ends = [*offsets[1:], len(data)]
    cut = new_run(tmp_path, "cut")
    path = cut / layout.SPOOL / file.name
    chance = random.Random(1)
    torn = 0
    for _ in range(1_000):
        length = chance.randrange(len(data) + 1)
        path.write_bytes(data[:length])
        count, reader = _read(cut, file.name)
        whole = sum(end <= length for end in ends)
        assert count == whole, length
        left = length - (ends[whole - 1] if whole else 0)
        if left and length > 0:
            assert (reader.incomplete is not None and reader.incomplete.offset == length - left) or not whole
            torn += left
    note("cut at 1,000 places", Outcome(1_000, delivered=1_000, torn=torn // 1_000), "segments; torn on average")


def _all(reader: SegmentReader) -> list[object]:
    found: list[object] = []
    while records := reader.read():
        found += records
    return found


def test_a_flipped_byte_ends_the_segment_there(run: Path, start: Start) -> None:
    assert start("some", 20).wait(DEADLINE) == 0
    (file,) = segments(run)
    path = run / layout.SPOOL / file.name
    data = bytearray(path.read_bytes())
    total, _ = _read(run, file.name)
    for place in random.Random(2).sample(range(len(MAGIC), len(data)), 100):
        data[place] ^= 0x40
        path.write_bytes(data)
        count, reader = _read(run, file.name)
        assert count < total
        assert reader.incomplete is not None or reader.unusable is not None or count == total - 1
        data[place] ^= 0x40


def test_clock_set_back_an_hour(run: Path, start: Start, note: Callable[..., None]) -> None:
    assert start("clock").wait(DEADLINE) == 0
    found = outcome(run)
    assert found.row() == (160, 160, 0, 0, 0)
    for line in (run / "trajectories.jsonl").read_text().splitlines():
        spans = msgspec.json.decode(line)["spans"]
        assert all(span["start_ns"] <= span["end_ns"] < span["start_ns"] + 10_000_000_000 for span in spans)
    note("clock set back an hour", found, "durations unharmed")


NO_PLANS = (b"", b"{", b"\x00\xff" * 100, b'{"version": 99}', b'{"version": 1, "targets": [7], "settings": {}}', b"[]")


@pytest.mark.parametrize("content", some(NO_PLANS, b"{", b'{"version": 99}'))
def test_corrupted_plan(run: Path, start: Start, note: Callable[..., None], content: bytes) -> None:
    plan = run / layout.PLAN_JSON
    plan.write_bytes(content)
    environ = {
        "AUTOTRACE": "1",
        "AUTOTRACE_PLAN": str(plan),
        "AUTOTRACE_RUN_FOLDER": str(run),
        "AUTOTRACE_RUN_ID": "run",
        "AUTOTRACE_MODULES": "json",
    }
    process = start("from_environment", env=environ)
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0 and out == '{"a": 1}\n'
    assert "Traceback" not in err
    note(f"plan file: {content[:12]!r}", Outcome(0), "host unaffected, nothing recorded")


def test_nobody_else_may_read_the_run(tmp_path: Path) -> None:
    """Folder 0700 and files 0600, whatever the umask says."""
    command = [sys.executable, "-m", "tests.faults.program", str(tmp_path / "own" / "run"), "some", "3"]
    done = subprocess.run(
        ["bash", "-c", f"umask 000; exec {' '.join(command)}"],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LEDGER": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    spool = tmp_path / "own" / "run" / layout.SPOOL
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in spool.iterdir()} == {0o600}


def test_a_link_in_the_place_of_a_segment_is_not_followed(run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(MAGIC)
    (run / layout.SPOOL / "host-1-aa-0.seg").symlink_to(secret)
    os.mkfifo(run / layout.SPOOL / "host-2-bb-0.seg")
    assert segments(run) == []
    with pytest.raises(OSError):
        SegmentReader(run, "host-1-aa-0.seg").read()
    assert ship(run, once=True).state == "done"


# -- records that want to do harm ------------------------------------------------------------------------------------

_texts = st.text(max_size=20) | st.sampled_from(
    [
        "../../etc/passwd",
        "/etc/passwd",
        "\x1b]0;title\x07",
        "<script>alert(1)</script>",
        "a\x00b",
        "\ud800",
        "x" * 5_000,
    ]
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | _texts | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=12,
)
_numbers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 1, 2**31, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
"""What msgpack can hold."""
_small = st.integers(-2, 12) | _numbers
_moments = st.integers(0, 2**60) | _numbers
_traces = st.sampled_from([b"\x01" * 16, b"\x02" * 16, b"", b"short", b"x" * 40])
_spans = st.sampled_from([0, 1, 2, 3, -1, 2**63 - 1, 2**64 - 1])
_tokens = st.none() | st.builds(
    NewTokens, _small, _small, st.binary(max_size=24), _small, st.binary(max_size=8), _small
)
_attributes = st.none() | st.dictionaries(_texts, _values, max_size=3)
_identity = st.fixed_dictionaries(
    {}, optional={name: _values for name in ("step", "rollout_n", "session_id", "uid", "validate", "request_id")}
)
_words = st.sampled_from(
    ["config", "mlflow", "wandb", "tokenizer", "verl_trace", "dataset", "reward", "token_level_score"]
)
_settings = st.dictionaries(
    st.sampled_from(["path", "revision", "project_name", "run_id", "backend", "entity", "logger", "score"]) | _texts,
    _values,
    max_size=4,
)
_records = st.one_of(
    st.builds(Open, _spans, _traces, _spans, _small, _moments, _values, _attributes | _identity, _tokens),
    st.builds(
        Close,
        _spans,
        _traces,
        _moments,
        _texts | st.just("OK"),
        _values,
        _attributes,
        st.none() | st.tuples(_texts, _texts, _texts),
        _tokens,
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=9),
        _small,
        _small,
        _small,
    ),
    st.builds(Fact, _traces, _attributes | _identity, _texts | _words, _values | _settings, _moments),
    st.builds(Bind, _texts | _words, _settings, _moments),
    st.builds(Report, _texts, _texts, _texts, _texts),
    st.builds(Counters, *[st.dictionaries(_texts, _numbers, max_size=3)] * 3, _moments),
    st.builds(Define, _small, _texts, _texts, _texts, _texts),
    st.builds(Seal, _texts, _moments),
)


def _encoded(record: object) -> bytes:
    try:
        return msgspec.msgpack.encode(record)
    except UnicodeEncodeError:
        return b"\x91\xa1O"


@settings(
    max_examples=examples(70),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking runs the shipper thousands of times
)
@given(st.lists(_records.map(_encoded) | st.binary(max_size=60) | _values.map(_encoded), max_size=25))
def test_hostile_records_harm_nobody(tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]) -> None:
    """Whatever stands in a segment: the honest trajectory beside it is delivered, and nothing is written elsewhere."""
    grace, open_traces.GRACE = open_traces.GRACE, 0.0  # everything there is stands in the segments already
    folder = tmp_path_factory.mktemp("hostile")
    run = new_run(folder)
    honest, hostile = Process(run), Process(run, "node-2-bb")
    trace = trajectory(honest, trace=b"\x01" * 16)
    for payload in payloads:
        hostile.raw(frame(payload))
    hostile.die()
    honest.exit()
    try:
        assert ship(run, once=True).state == "done"
    finally:
        open_traces.GRACE = grace
    assert Status.read(run).state == "done"
    lines = [msgspec.json.decode(line) for line in (run / "trajectories.jsonl").read_bytes().splitlines()]
    assert trace.hex() in {line["trace_id"] for line in lines}
    assert {path.name for path in folder.iterdir()} == {"run"}
    index = of_run(run)
    for row in index.select(roots=True):
        trajectory_of_theirs = index.load(row.trace_id)
        for backend in registry.names():  # none of them chokes on it
            assert registry.make(backend, index.run.info, run, {}).size(trajectory_of_theirs) >= 0
        shown = io.StringIO()
        Console(file=shown, width=200, highlight=False, markup=False).print(tree(trajectory_of_theirs, full=True))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown.getvalue()), "a terminal would obey"
    index.close()


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_break_the_decoder(payload: bytes) -> None:
    from autotrace.spool.reader import Undecodable

    with contextlib.suppress(Undecodable):
        decode(payload)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_break_the_reader(run: Path, data: bytes, with_magic: bool) -> None:
    path = run / layout.SPOOL / "host-1-aa-0.seg"
    path.write_bytes((MAGIC if with_magic else b"") + data)
    _read(run, path.name)


def test_a_length_of_a_gigabyte_allocates_nothing(run: Path) -> None:
    process = Process(run)
    process.raw((1 << 30).to_bytes(4, "little") + b"\x00" * 4 + b"abc")
    process.die()
    (file,) = segments(run)
    count, reader = _read(run, file.name)
    assert count > 1 and reader.incomplete is not None and reader.incomplete.damaged


def test_deep_nesting_is_refused(run: Path) -> None:
    process = Process(run)
    process.raw(frame(b"\x91" * 100_000 + b"\x00"))
    trace = trajectory(process)
    process.exit()
    assert ship(run, once=True).state == "done"
    assert trace.hex() in (run / "trajectories.jsonl").read_text()


# -- segments of other releases --------------------------------------------------------------------------------------

RECORDED = Path(__file__).parent / "segments"
"""Segments as releases wrote them, one a format: never made anew. ``tests.ship.spools.trajectory``, and counters."""


def _shipped(run: Path) -> dict[str, object]:
    assert ship(run, once=True).state == "done"
    (line,) = (run / "trajectories.jsonl").read_bytes().splitlines()
    found: dict[str, object] = msgspec.json.decode(line)
    return found


def _changed(data: bytes, change: Callable[[list[object]], list[object]]) -> bytes:
    """The segment ``data`` with every record changed."""
    payloads, at = [], len(MAGIC)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        payloads.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    changed = [change(msgspec.msgpack.decode(payload)) for payload in payloads]
    return MAGIC + b"".join(frame(msgspec.msgpack.encode(record)) for record in changed)


_LEAST = {"H": 10, "D": 5, "O": 6, "C": 5, "N": 5, "F": 6, "R": 4, "S": 3}
"""Fields of each record that have no default, its tag included."""


def _older(record: list[object]) -> list[object]:
    """Without the fields that have a default and say nothing else: written before there were such fields."""
    least = _LEAST[str(record[0])]
    while len(record) > least and record[-1] in (None, 0, ""):
        record.pop()
    return record


def _newer(record: list[object]) -> list[object]:
    """With every field that there is now, and more."""
    known = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record)
    return [*msgspec.msgpack.decode(msgspec.msgpack.encode(known)), {"a": "field"}, 7]


@pytest.mark.parametrize("change", [list, _older, _newer])
@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.seg")), ids=lambda path: path.stem)
def test_a_segment_written_by_another_release(
    tmp_path: Path, note: Callable[..., None], path: Path, change: Callable[[list[object]], list[object]]
) -> None:
    run = new_run(tmp_path)
    before = path.read_bytes()
    data = _changed(before, change)
    assert (data == before) == (change is list)
    (run / layout.SPOOL / "node-1-aa-0.seg").write_bytes(data)
    line = _shipped(run)
    (note_of_drops,) = line["notes"]
    assert line["facts"] == {"reward": 1.0} and "3 records lost: the run folder" in note_of_drops
    spans = line["spans"]
    assert isinstance(spans, list)
    assert [span["role"] for span in spans] == ["trajectory", "agent", "llm", "parser", "tool", "llm"]
    assert spans[1]["response_ids"] == ANSWER + TOOL + FINAL and spans[5]["new_prompt_ids"] == TOOL
    status = Status.read(run)
    assert (status.drops, status.skipped, status.torn) == ({"drop:disk": 3}, {}, 0)
    note(f"segment of {path.stem}: {change.__name__.strip('_')}", Outcome(6, delivered=len(spans)), "calls")


def test_a_segment_of_another_format_is_said_not_guessed(run: Path) -> None:
    path = run / layout.SPOOL / "host-1-aa-0.seg"
    header = Header(2, "run", "host", 1, "boot", "python", "", 0, 0)
    path.write_bytes(MAGIC + frame(msgspec.msgpack.encode(header)))
    reader = SegmentReader(run, path.name)
    assert reader.read() == [] and "format 1" in (reader.unusable or "")
