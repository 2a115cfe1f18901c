"""Harbor's trajectory format: a step a turn, tokens, what the tools said. ``make harbor`` asks its own package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Call
from tests.export.chatml import TOOLS


def exported(call: Call, *words: str) -> list[dict[str, Any]]:
    done = call("export", "--format", "atif", "--out", "there", *words)
    assert done.exit_code == 0, done.output
    return [json.loads(path.read_text()) for path in sorted(Path("there").rglob("*.json"))]


def test_steps_are_messages_turns_and_results(call: Call, run: Path) -> None:
    (whole,) = exported(call, "--where", "reward = 0")
    assert (whole["schema_version"], whole["session_id"]) == ("ATIF-v1.7", run.name)
    assert Path("there", "1", f"{whole['trajectory_id']}.json").exists()
    assert whole["agent"]["tool_definitions"] == TOOLS and whole["agent"]["name"] == "ToolAgentLoop.run"
    steps = whole["steps"]
    assert [step["step_id"] for step in steps] == [1, 2, 3, 4, 5]
    assert [step["source"] for step in steps] == ["system", "user", "agent", "agent", "agent"]
    assert [step["message"] for step in steps] == [
        "Be brief.", "Where is Köln?", "Let me see.", "", "Köln is on the Rhine.",
    ]  # fmt: skip
    first, second, last = steps[2:]
    assert first["tool_calls"] == [
        {"tool_call_id": "call_1_0", "function_name": "search", "arguments": {"query": "Köln ü"}}
    ]
    assert first["observation"] == {"results": [{"source_call_id": "call_1_0", "content": "a page about Köln"}]}
    assert second["observation"] == {"results": [{"source_call_id": "call_2_0", "content": "On the Rhine."}]}
    assert "observation" not in last
    assert whole["final_metrics"]["extra"] == {"reward": 0.0}
    assert whole["extra"]["step"] == 1 and whole["extra"]["status"] == "OK"


def test_every_turn_has_its_tokens(call: Call, run: Path) -> None:
    (whole,) = exported(call, "--where", "reward = 0")
    calls = [step["metrics"] for step in whole["steps"] if step["source"] == "agent"]
    for metrics in calls:
        assert len(metrics["prompt_token_ids"]) == metrics["prompt_tokens"]
        assert len(metrics["completion_token_ids"]) == metrics["completion_tokens"]
    first, second = calls[:2]
    so_far = first["prompt_token_ids"] + first["completion_token_ids"]
    assert second["prompt_token_ids"][: len(so_far)] == so_far
    assert whole["final_metrics"]["total_completion_tokens"] == sum(one["completion_tokens"] for one in calls)


def test_one_file_of_lines_if_a_file_is_named(call: Call, run: Path) -> None:
    assert call("export", "--format", "atif", "--out", "all.jsonl").exit_code == 0
    assert len([json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]) == 3
