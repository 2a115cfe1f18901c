"""Run folders written by older code are still read: ``folders/before_layers`` (version 0.1.0, before the state had
numbered migrations). ``NAME.delivered.jsonl`` is what the code of that time made of them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call, call, runs

FOLDERS = Path(__file__).parent / "folders" / "before_layers"
KEPT = ("name", "role", "key", "start_ns", "end_ns", "status", "inputs", "output", "prompt_ids", "response_ids",
        "response_text", "messages", "parent_id", "span_id")  # fmt: skip
__all__ = ["call", "runs"]


@pytest.fixture(params=["plain_asyncio", "verl_agent", "verl_agent without state.db"])
def folder(request: pytest.FixtureRequest, runs: Path) -> Path:
    """A copy of one of them; one has a ``state.db`` of its time, the others have none."""
    name, _, without = request.param.partition(" ")
    copied = runs / name
    shutil.copytree(FOLDERS / name, copied)
    if without:
        (copied / "state.db").unlink()
    return copied


def delivered(name: str) -> dict[str, dict[str, Any]]:
    """What the code of that time delivered, by trace id."""
    lines = (FOLDERS / f"{name}.delivered.jsonl").read_text().splitlines()
    return {trace["trace_id"]: trace for trace in map(json.loads, lines)}


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
    """Also where the old state says that all was: then to a backend that has nothing of it yet."""
    if (folder / "state.db").exists():
        again = call("ship", folder)
        assert again.exit_code == 0 and "3 delivered, 0 left" in again.output, again.output
        assert not (folder / "trajectories.jsonl").exists(), "its state says that all of it was delivered"
        (folder / "state.db").unlink()
    shipped = call("ship", folder)
    assert shipped.exit_code == 0, shipped.output
    now = {trace["trace_id"]: trace for trace in map(json.loads, (folder / "trajectories.jsonl").open())}
    before = delivered(folder.name)
    assert set(now) == set(before)
    for id, trace in before.items():
        assert essence(now[id]) == essence(trace)
        assert now[id]["facts"] == trace["facts"]
