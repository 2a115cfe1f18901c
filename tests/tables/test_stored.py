"""Trajectories that stand in files are read as those of the run folder they come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

import autotrace
from autotrace.export import jsonl, parquet
from autotrace.ship.readers import of_run, stored_places
from autotrace.tables import line_files
from autotrace.tables.conditions import condition
from autotrace.tables.errors import Gone, QueryError
from autotrace.tables.reader import LINE
from autotrace.trajectory.model import Trajectory
from autotrace.view.app import application
from tests.run_folder import recorded
from tests.view.conftest import unpacked

NAME = "20261121-064412-3f9c1a"


def of(folder: Path) -> Iterator[Trajectory]:
    reader = of_run(folder)
    yield from (reader.load(row.trace_id) for row in reader.select())


@pytest.fixture(params=["lines", "tables"])
def stored(request: pytest.FixtureRequest, run: Path, tmp_path: Path) -> Path:
    """A finished export of ``run``."""
    out = tmp_path / ("finished.jsonl" if request.param == "lines" else "finished")
    (jsonl if request.param == "lines" else parquet).write(of(run), str(out))
    return out


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return recorded(tmp_path / "runs", NAME)


def test_the_lines_about_them_are_those_of_the_run(stored: Path, run: Path) -> None:
    reader = of_run(stored)
    assert reader.run.info.run_id == NAME
    assert reader.select(columns=(*LINE, "attributes", "decode_s")) == (
        of_run(run).select(columns=(*LINE, "attributes", "decode_s"))
    )
    facts = [[json.loads(row.facts) for row in one.select(columns=("facts",))] for one in (reader, of_run(run))]
    assert facts[0] == facts[1] and len(facts[0]) == 8
    assert len(reader.select(condition("truncated and reward < 0.5"))) == 2


def test_a_trajectory_is_what_it_was(stored: Path, run: Path) -> None:
    reader = of_run(stored)
    for before in of(run):
        after = reader.load(before.trace_id)
        assert (after.status, after.facts) == (before.status, before.facts)
        assert [values(span) for span in after.spans] == [values(span) for span in before.spans]


def values(span: Any) -> list[Any]:
    names = ("span_id", "parent_id", "name", "title", "role", "key", "start_ns", "end_ns", "status", "inputs", "output")
    names += ("attributes", "error", "host", "pid")
    if span.role == "llm":  # the tables have each token once
        names += ("prompt_ids", "new_prompt_ids", "response_ids", "prompt_tokens", "response_tokens")
    return [getattr(span, name) for name in names] + [span.logprobs and [round(value, 5) for value in span.logprobs]]


def test_every_page_has_them(stored: Path) -> None:
    with TestClient(application(stored), raise_server_exceptions=False) as client:
        (listed,) = client.get("/api/runs").json()["runs"]
        assert (listed["run"], listed["state"]) == (NAME, "stored")
        state = client.get(f"/api/runs/{NAME}").json()
        assert (state["trajectories"], state["live"], state["state"]) == (8, False, "stored")
        header, arrays = unpacked(client.get(f"/api/runs/{NAME}/columns?names=reward").content)
        digits = bytes(arrays["trace_id"]).hex()
        ids = [digits[at : at + 32] for at in range(0, len(digits), 32)]
        assert header["count"] == len(ids) == 8
        detail = client.get(f"/api/runs/{NAME}/traces/{ids[1]}").json()
        roles = ["prompt", "assistant", "tool", "prompt", "assistant"]
        assert [item["role"] for item in detail["conversation"]] == roles
        assert {finding["code"] for finding in detail["findings"]} >= {"AT-TRUNCATED"}
        header, arrays = unpacked(client.get(f"/api/runs/{NAME}/traces/{ids[0]}/tokens").content)
        assert [part["count"] for part in header["parts"]] == [4, 3, 2, 4]
        for part in (
            "columns?names=queue_s,facts.reward_extra_info.acc",
            "names",
            "where?q=reward+%3E+0",
            f"group?ids={','.join(ids)}",
            f"traces/{ids[0]}/perfetto",
            "search?q=answer",
        ):
            assert client.get(f"/api/runs/{NAME}/{part}").status_code == 200


def test_a_file_that_grows_is_read_again_and_a_line_without_its_end_waits(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "finished.jsonl"
    jsonl.write(of(run), str(out))
    whole = out.read_bytes()
    first = whole.index(b"\n") + 1
    out.write_bytes(whole[: first + 100])
    with TestClient(application(out)) as client:
        assert client.get(f"/api/runs/{NAME}").json()["trajectories"] == 1
        out.write_bytes(whole)
        assert client.get(f"/api/runs/{NAME}").json()["trajectories"] == 8


def test_the_last_line_of_a_trajectory_counts(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "finished.jsonl"
    jsonl.write(of(run), str(out))
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join([*lines, lines[0].replace(b'"reward":1.0', b'"reward":7.5')]))
    assert [row.reward for row in of_run(out).select(condition("reward > 2"))] == [7.5]


@pytest.mark.parametrize("line", [b"{}", b"[1]", b"no json", b'{"trace_id":"x","run_id":"r","spans":[]}', b"\xff\xfe"])
def test_a_file_of_something_else_is_said_with_its_line(line: bytes, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "finished.jsonl"
    jsonl.write(of(run), str(out))
    out.write_bytes(out.read_bytes() + line + b"\n")
    with pytest.raises(QueryError, match=r"finished\.jsonl, line 9: this is no trajectory"):
        of_run(out)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'{"trace_id":"', b'{"trace_id":"<b>', "is no id of a trajectory"),
        (b'"start_ns":1', b'"start_ns":9999999999999999999991', "line 1: this is no trajectory|too large"),
        (b'"start_ns":17', b'"start_ns":99999999999', "too large|line 1"),
    ],
)
def test_values_that_nobody_wrote_are_refused_in_one_sentence(
    old: bytes, new: bytes, words: str, run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "finished.jsonl"
    jsonl.write(of(run), str(out))
    out.write_bytes(out.read_bytes().replace(old, new, 1))
    with pytest.raises(QueryError, match=words):
        of_run(out)


def test_calls_whose_prompts_begin_with_each_other_end(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "finished.jsonl"
    jsonl.write(of(run), str(out))
    first = msgspec.json.decode(out.read_bytes().splitlines()[0])
    turns = [span for span in first["spans"] if span["role"] == "llm"]
    turns[0]["prompt_base"], turns[1]["prompt_base"] = turns[1]["span_id"], turns[0]["span_id"]
    out.write_bytes(msgspec.json.encode(first) + b"\n")
    trajectory = of_run(out).load(first["trace_id"])
    assert all(len(span.prompt_ids or ()) < 100 for span in trajectory.llm_spans)


def test_what_went_away_is_said(stored: Path) -> None:
    reader = of_run(stored)
    (row, *_) = reader.select()
    for file in [stored] if stored.is_file() else list(stored.rglob("*.parquet")):
        file.write_bytes(b"") if stored.is_file() else file.unlink()
    with pytest.raises((Gone, QueryError), match=r"is gone from|cannot be read"):
        reader.load(row.trace_id)


def test_run_folders_are_no_such_places(run: Path, tmp_path: Path) -> None:
    assert stored_places(run) == stored_places(run.parent) == stored_places(tmp_path / "missing") == []


def test_what_was_appended_while_the_file_was_read_is_there_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file is known by is looked at before it is read."""
    lines = tmp_path / "stored.jsonl"
    span = {"span_id": "1", "parent_id": None, "name": "x", "role": "trajectory", "key": "k", "start_ns": 1}
    line = json.dumps({"trace_id": "%s", "run_id": "r", "spans": [span]}) + "\n"
    lines.write_text(line % ("a" * 32))
    read = line_files._read

    def slowly(path: Path) -> Iterator[tuple[int, Trajectory]]:
        yield from read(path)
        with lines.open("a") as file:
            file.write(line % ("b" * 32))

    monkeypatch.setattr(line_files, "_read", slowly)
    runs = autotrace.open(lines)
    monkeypatch.undo()
    assert len(runs.trajectories()) == 2
