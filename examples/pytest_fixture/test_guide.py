"""Tests of what the agent does on the way to its answer."""

from __future__ import annotations

import guide
from conftest import Trajectories


def test_it_asks_the_right_tool_once_for_each_city(trajectories: Trajectories) -> None:
    assert guide.answer("How warm are Aachen and Celle?") == "Aachen: 17 degrees, Celle: 16 degrees"
    (trajectory,) = trajectories()
    tools = [span for span in trajectory["spans"] if span["role"] == "tool"]
    assert [(span["name"], span["inputs"]["city"], span["output"]) for span in tools] == [
        ("temperature", "Aachen", 17),
        ("temperature", "Celle", 16),
    ]


def test_it_asks_no_tool_without_need(trajectories: Trajectories) -> None:
    assert guide.answer("Where is the nearest airport?") == ""
    (trajectory,) = trajectories()
    assert [span["role"] for span in trajectory["spans"]] == ["trajectory"]
