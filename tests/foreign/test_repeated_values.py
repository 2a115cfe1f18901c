"""Each turn of a stranger's conversation repeats the whole prompt, and many rollouts may share a value: memory and
exports stay in proportion to the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import autotrace
from autotrace.export.format import FORMATS, get
from autotrace.foreign import whole_prompts
from autotrace.insight.profile import codes, decode
from autotrace.trajectory.model import Trajectory
from tests.security import reading

LONG = "x" * 100_000
COUNT = 40
ANSWER = {"role": "assistant", "content": "a"}


def chat(turns: int, size: int) -> dict[str, Any]:
    said = [
        {"role": role, "content": f"{turn} " + role[0] * size}
        for turn in range(turns)
        for role in ("user", "assistant")
    ]
    return {"messages": said, "reward": 1.0}


def written(place: Path, *rows: Any, name: str = "rows.jsonl") -> Path:
    (place / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place / name


def opened(path: Path) -> list[Trajectory]:
    (run,) = autotrace.open(path)
    return list(run.trajectories())


def test_exported_prompts_are_bounded(tmp_path: Path) -> None:
    """400 turns of 10 kB would be 810 MB of JSON."""
    here, mine = tmp_path / "here", tmp_path / "mine"
    here.mkdir()
    rows = written(tmp_path, chat(400, 5_000))
    (done,) = reading.run([["export", str(rows), "--format", "jsonl", "--out", "x.jsonl"]], here, mine, memory=8 << 30)
    assert not reading.faults([done]) and done["code"] == 0, done
    assert (here / "x.jsonl").stat().st_size < whole_prompts.CHARACTERS + (16 << 20)
    assert done["peak"] < 1 << 30, done["peak"]


def test_tables_of_many_prompts_are_written_in_parts(tmp_path: Path) -> None:
    here, mine = tmp_path / "here", tmp_path / "mine"
    here.mkdir()
    rows = written(tmp_path, *(chat(200, 500) for _ in range(40)))
    words = ["export", str(rows), "--format", "parquet", "--out", "tables"]
    (done,) = reading.run([words], here, mine, memory=8 << 30)
    assert not reading.faults([done]) and done["code"] == 0, done
    assert done["peak"] < 1 << 30, done["peak"]


def test_a_conversation_over_the_limit_stays_one_conversation(tmp_path: Path, monkeypatch: Any) -> None:
    row = chat(30, 100)
    rows = written(tmp_path, row)
    (whole,) = opened(rows)
    monkeypatch.setattr(whole_prompts, "CHARACTERS", 20_000)
    (cut,) = opened(rows)
    assert whole_prompts.CUT in cut.notes and whole_prompts.CUT not in whole.notes
    assert cut.turns == whole.turns == 30
    assert len(cut.llm_spans[-2].messages or ()) == 2 and cut.llm_spans[-1].messages == row["messages"]
    assert codes(decode(cut.profile)) == codes(decode(whole.profile))
    (tmp_path / "out").mkdir()
    get("sft")([cut], str(tmp_path / "out"))
    (line,) = (tmp_path / "out" / "train.jsonl").read_text().splitlines()
    assert json.loads(line)["messages"] == row["messages"]


def test_an_honest_conversation_of_hundreds_of_turns_is_whole(tmp_path: Path) -> None:
    (read,) = opened(written(tmp_path, chat(300, 1_000)))
    assert not read.notes and len(read.llm_spans[-1].messages or ()) == 600


def test_prompts_of_few_long_messages_are_bounded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(whole_prompts, "CHARACTERS", 1 << 20)
    said = [{"role": "user", "content": LONG}, *[ANSWER] * 500]
    (read,) = opened(written(tmp_path, {"messages": said}))
    told = sum(len(str(message)) for span in read.llm_spans for message in span.messages or ())
    assert read.turns == 500 and told < (1 << 20) + 2 * len(LONG)


def episode(**more: Any) -> dict[str, Any]:
    traces = [{"id": str(number), "nodes": [{"message": ANSWER}]} for number in range(COUNT)]
    return {"task": {}, "traces": traces, **more}


def observations(**more: Any) -> dict[str, Any]:
    seen = {"type": "GENERATION", "startTime": "2026-01-01T00:00:00Z", "input": "q", "output": "a"}
    return {
        "timestamp": "t",
        "observations": [{**seen, "id": f"o{n}", "traceId": f"t{n}"} for n in range(COUNT)],
        **more,
    }


def log(**more: Any) -> dict[str, Any]:
    return {"version": 2, "status": "success", "plan": {}, "samples": [{"messages": [ANSWER]}] * COUNT, **more}


SHARING = {
    "the group of an episode": episode(group={"id": [LONG]}),
    "the environment of an episode": episode(env={"id": {"a": LONG}}),
    "the versions of an episode": episode(run={"work": {"policy": {"start": [LONG], "end": LONG}, "step": [LONG]}}),
    "the error of an episode": episode(errors=[{"type": LONG, "message": LONG, "traceback": LONG}]),
    "the scores of a trace": observations(scores=[{"name": str(n), "value": LONG[:2_000]} for n in range(50)]),
    "the names of a trace": observations(metadata={"uid": [LONG], "autotrace.step": {"a": LONG}}, sessionId=[LONG]),
    "the task of a log": log(eval={"task": [LONG], "model": {"a": LONG}}),
    "the model of a conversation": {"messages": [ANSWER] * COUNT, "model": LONG},
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("row", SHARING.values(), ids=list(SHARING))
def test_a_value_that_many_rollouts_share_is_exported_few_times(row: Any, form: str, tmp_path: Path) -> None:
    name = "log.json" if "samples" in row else "rows.jsonl"
    path = written(tmp_path, row, name=name)
    read = opened(path)
    assert len(read) == COUNT or read[0].turns == COUNT
    (tmp_path / "out").mkdir()
    get(form)(read, str(tmp_path / "out"))
    size = sum(file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert size < 20 * path.stat().st_size, size / path.stat().st_size
