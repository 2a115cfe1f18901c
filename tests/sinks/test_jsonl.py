"""JSON lines: what stands on a line, and how often the file is written while late rewards replace lines."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from autotrace.sinks.jsonl import sink as module
from autotrace.sinks.jsonl.sink import FILE, JsonlSink, encoded, line_of
from autotrace.trajectory.model import Trajectory
from tests.sinks.rollouts import trajectory


def lines(folder: Path) -> list[dict[str, Any]]:
    """What the file holds."""
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def rewards(folder: Path) -> dict[str, float]:
    """The reward on the last line of each trajectory."""
    return {line["trace_id"]: line["facts"]["reward"] for line in lines(folder)}


def rewarded(number: int, reward: float) -> Trajectory:
    return trajectory(sample=number, reward=reward)


def test_log_probabilities_that_are_not_finite_are_text() -> None:
    one = trajectory()
    (first, *_) = one.llm_spans
    assert first.logprobs is not None
    for value, written in ((-math.inf, "-inf"), (math.inf, "inf"), (math.nan, "nan")):
        first.logprobs = [-0.5, value, *first.logprobs]
        line = json.loads(encoded(one))
        span = next(span for span in line["spans"] if span["span_id"] == first.span_id)
        assert span["logprobs"][:2] == [-0.5, written]
        assert len(span["logprobs"]) == len(first.logprobs)


@pytest.mark.parametrize("value", [{"a": object()}, "\ud800", [1 << 70], {("a", 1): b"x"}], ids=repr)
def test_a_value_that_json_cannot_hold_costs_itself_alone(value: Any) -> None:
    """A trajectory may come from elsewhere than our assembly."""
    one = trajectory()
    one.spans[1].inputs = {"odd": value, "even": 2}
    line = json.loads(encoded(one))
    assert line["spans"][1]["inputs"]["even"] == 2
    assert len(line["spans"]) == len(one.spans)


def test_a_line_is_what_export_writes() -> None:
    one = trajectory(reward=1.0)
    assert json.loads(encoded(one)) == json.loads(json.dumps(line_of(one)))


def test_a_line_of_a_small_file_is_replaced_at_once(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path, {})
    sink.deliver([rewarded(number, 0.0) for number in range(5)])
    sink.deliver([rewarded(2, 1.0)])
    assert [line["facts"]["reward"] for line in lines(tmp_path)] == [0.0] * 4 + [1.0]


def test_a_late_fact_replaces_the_line_without_the_calls_and_keeps_every_other_field(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path, {})
    whole = [rewarded(number, 0.0) for number in range(5)]
    sink.deliver(whole[:4])
    known = rewarded(2, 1.0)
    known.spans, known.notes = known.spans[:1], []
    following = JsonlSink(tmp_path, {})
    following.facts([known])
    assert [line["trace_id"] for line in lines(tmp_path)] == [whole[number].trace_id for number in (0, 1, 3, 2)]
    assert lines(tmp_path)[-1] == {**json.loads(encoded(whole[2])), "facts": json.loads(encoded(known))["facts"]}
    gone = rewarded(4, 1.0)
    gone.spans = gone.spans[:1]
    following.facts([gone])
    assert len(lines(tmp_path)) == 4, "a line that is not in the file stays away"


def test_a_line_that_somebody_broke_stays_as_it_is(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path, {})
    sink.deliver([rewarded(number, 0.0) for number in range(2)])
    broken = (tmp_path / FILE).read_bytes().replace(b'"status":', b'"status" ', 1)
    (tmp_path / FILE).write_bytes(broken)
    JsonlSink(tmp_path, {}).facts([rewarded(0, 1.0)])
    assert (tmp_path / FILE).read_bytes() == broken


def test_a_file_that_somebody_sorts_keeps_every_line(tmp_path: Path) -> None:
    """The bytes stay as many."""
    sink = JsonlSink(tmp_path, {})
    whole = [rewarded(number, 0.0) for number in range(3)]
    whole[1].notes = ["a longer line"]
    sink.deliver(whole)
    written = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    with (tmp_path / FILE).open("wb") as file:
        file.writelines(reversed(written))
    sink.facts([rewarded(0, 1.0)])
    assert rewards(tmp_path) == {one.trace_id: float(one is whole[0]) for one in whole}
    assert len(lines(tmp_path)) == 3


def test_what_is_written_for_late_rewards_grows_with_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SMALL", 0)
    rewritten = set()
    sink = JsonlSink(tmp_path, {})
    for number in range(64):
        sink.deliver([rewarded(number, 0.0)])
    before = (tmp_path / FILE).stat().st_size
    for number in range(64):
        sink.deliver([rewarded(number, 1.0)])
        assert rewards(tmp_path)[rewarded(number, 1.0).trace_id] == 1.0, "the last line counts"
        assert (tmp_path / FILE).stat().st_size <= 2.1 * before
        rewritten.add((tmp_path / FILE).stat().st_ino)
    assert len(rewritten) <= 3, "rewritten once for as many new bytes as it holds"
    sink.close()
    assert len(lines(tmp_path)) == 64
    assert set(rewards(tmp_path).values()) == {1.0}


def test_who_comes_after_a_killed_writer_takes_out_what_that_one_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SMALL", 0)
    killed = JsonlSink(tmp_path, {})
    killed.deliver([rewarded(number, 0.0) for number in range(8)])
    killed.deliver([rewarded(number, 1.0) for number in range(3)])
    assert len(lines(tmp_path)) == 11
    following = JsonlSink(tmp_path, {})
    following.deliver([rewarded(8, 1.0)])
    following.close()
    assert len(lines(tmp_path)) == 9
    assert sorted(rewards(tmp_path).values()) == [0.0] * 5 + [1.0] * 4


def test_a_line_that_was_cut_off_and_one_of_somebody_else_end_in_no_other(tmp_path: Path) -> None:
    killed = JsonlSink(tmp_path, {})
    killed.deliver([rewarded(number, 0.0) for number in range(3)])
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"mine": 1}\n' + encoded(rewarded(3, 0.0))[:-100])
    for sink, number in ((killed, 4), (JsonlSink(tmp_path, {}), 1)):
        sink.deliver([rewarded(number, 1.0)])
    (mine,) = [line for line in lines(tmp_path) if "mine" in line]
    assert mine == {"mine": 1}
    assert sorted(line["facts"]["reward"] for line in lines(tmp_path) if line != mine) == [0.0, 0.0, 1.0, 1.0]
