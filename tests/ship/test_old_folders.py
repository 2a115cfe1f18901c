"""Run folders without tables or state are read: ``folders/before_layers`` (``NAME.delivered.jsonl`` is what was
delivered of them) and ``folders/COMMIT.tar.xz``, as two commits left them with ``--backend jsonl``: two groups of two
rollouts over two turns, with tokens, a tool that fails in half of them, and rewards.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call, call, runs

FOLDERS = Path(__file__).parent / "folders"
COMMITS = ("f44a4d6", "211d765")
KEPT = ("name", "role", "key", "start_ns", "end_ns", "status", "inputs", "output", "prompt_ids", "response_ids",
        "response_text", "messages", "parent_id", "span_id")  # fmt: skip
__all__ = ["call", "runs"]


@pytest.fixture(params=["plain_asyncio", "verl_agent", *COMMITS])
def folder(request: pytest.FixtureRequest, runs: Path) -> Path:
    """A copy of one of them."""
    name = request.param
    copied = runs / name
    if name in COMMITS:
        unpacked(name, runs)
        (copied / "trajectories.jsonl").unlink()
    else:
        shutil.copytree(FOLDERS / "before_layers" / name, copied)
    return copied


def unpacked(commit: str, parent: Path) -> None:
    """The run folder ``commit`` in ``parent``."""
    with tarfile.open(FOLDERS / f"{commit}.tar.xz") as archive:
        archive.extractall(parent, filter="data")


def delivered(name: str) -> dict[str, dict[str, Any]]:
    """What the code of that time delivered, by trace id."""
    if name in COMMITS:
        with tarfile.open(FOLDERS / f"{name}.tar.xz") as archive:
            file = archive.extractfile(f"{name}/trajectories.jsonl")
            assert file is not None
            text = file.read().decode()
    else:
        text = (FOLDERS / "before_layers" / f"{name}.delivered.jsonl").read_text()
    return {trace["trace_id"]: trace for trace in map(json.loads, text.splitlines())}


def essence(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """What of a delivered trace must be the same for ever."""
    return [{name: span.get(name) for name in KEPT} for span in trace["spans"]]


def test_its_trajectories_are_listed(call: Call, folder: Path) -> None:
    listed = call("ls", folder, "--json")
    assert listed.exit_code == 0, listed.output
    rows = {row["trace_id"]: row for row in map(json.loads, listed.output.splitlines())}
    expected = {id: trace for id, trace in delivered(folder.name).items() if trace["spans"][0]["role"] == "trajectory"}
    assert {id: row["status"] for id, row in rows.items()} == {
        id: trace["spans"][0]["status"] for id, trace in expected.items()
    }
    for id, trace in expected.items():
        assert rows[id]["spans"] == len(trace["spans"])
        assert rows[id]["reward"] == trace["facts"].get("reward")


def test_each_is_shown(call: Call, folder: Path) -> None:
    for trace_id, trace in delivered(folder.name).items():
        shown = call("show", trace_id[:12], folder)
        assert shown.exit_code == 0, shown.output
        for span in trace["spans"]:
            assert span["name"] in shown.output


def test_all_of_it_can_be_delivered(call: Call, folder: Path) -> None:
    (folder / "state.db").unlink(missing_ok=True)
    shipped = call("ship", folder)
    assert shipped.exit_code == 0, shipped.output
    now = {trace["trace_id"]: trace for trace in map(json.loads, (folder / "trajectories.jsonl").open())}
    before = delivered(folder.name)
    assert set(now) == set(before)
    for id, trace in before.items():
        assert essence(now[id]) == essence(trace)
        assert now[id]["facts"] == trace["facts"]


@pytest.mark.parametrize("commit", COMMITS)
def test_every_question_is_answered(call: Call, runs: Path, commit: str) -> None:
    """Of a folder without tables."""
    unpacked(commit, runs)
    folder = runs / commit

    def said(*words: str) -> str:
        answer = call(*words, folder)
        assert answer.exit_code == 0, answer.output
        return answer.output

    sql = "SELECT step, uid, rollout_n, reward, llm_calls, prompt_tokens, response_tokens FROM trajectories"
    lines = said("sql", f"{sql} ORDER BY step, rollout_n", "--json").splitlines()
    rows = [[*json.loads(line).values()] for line in lines]
    assert rows == [[step, f"u{step}", n, 1.0 - n, 2, 3, 6] for step in (1, 2) for n in (0, 1)]
    turns = [json.loads(line) for line in said("sql", "SELECT * FROM turns WHERE turn = 2", "--json").splitlines()]
    assert [turn["response_ids"] for turn in turns] == [[47, 41, 2]] * 4
    assert [turn["prompt_keep"] for turn in turns] == [6] * 4
    assert [json.loads(line)["reward_mean"] for line in said("steps", "--json").splitlines()] == [0.5, 0.5]
    assert "AT-TOOL-RAISES" in said("diagnose")
    assert "2 places in 2 trajectories" in said("grep", "cannot add 4")
    assert not (folder / "tables").exists(), "reading writes nothing"
