"""The shipped specs of httpx and httpx2: a model that is asked without a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.httpx.program import WAYS
from tests.agent_frameworks.server import ARGUMENTS, TEXT
from tests.agent_frameworks.tracing import by_way, run_ways

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
ANSWER = {"role": "assistant", "content": TEXT}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD = {"role": "tool", "content": "4", "tool_call_id": "call_1"}
PLAIN = [[*ASKED, ANSWER]]
EXPECTED: dict[str, list[list[dict[str, Any]]]] = {
    **{way: PLAIN for way in WAYS},
    "chat": [[*ASKED, CALLED], [*ASKED, CALLED, TOLD, ANSWER]],
    "sent": PLAIN * 2,
    "stream_read": PLAIN * 2,
    "stopped": [*PLAIN, ASKED],  # all of it came at once, but the second was not read
    "second": PLAIN * 2,
    "text": [[{"role": "user", "content": "2+2? "}, ANSWER]],
    "cut": [[{"role": "user", "content": "2+2?"}, ANSWER]] * 2,
    "failing": [ASKED, ASKED],
    "other": [],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_ways("httpx", tmp_path_factory.mktemp("httpx"), WAYS)


@pytest.fixture(scope="module")
def trajectories(run: Path) -> dict[str, Trajectory]:
    return by_way(run)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_a_chat_and_nothing_else_is_recorded(trajectories: dict[str, Trajectory], way: str) -> None:
    trajectory = trajectories[way]
    assert [span.messages for span in trajectory.llm_spans] == EXPECTED[way]
    assert {span.role for span in trajectory.spans} <= {"trajectory", "llm", "tool"}


@pytest.mark.parametrize("way", ("chat", "chat_async", "stream", "stream_async", "stream_raw", "second", "messages"))
def test_turns_have_usage_and_model(trajectories: dict[str, Trajectory], way: str) -> None:
    for span in trajectories[way].llm_spans:
        assert (span.prompt_tokens, span.response_tokens, span.status) == (7, 5, "OK")
        assert (span.attributes["model"], span.attributes["cached_tokens"]) == ("tiny-1", 3)


def test_a_stream_has_its_events_and_its_first(trajectories: dict[str, Trajectory]) -> None:
    for way in ("stream", "stream_async", "stream_raw"):
        (span,) = trajectories[way].llm_spans
        assert span.items == 6 and span.first_item_ns is not None and span.attributes["finish_reason"] == "stop"


def test_what_was_left_and_what_failed_says_so(trajectories: dict[str, Trajectory]) -> None:
    left, unread = trajectories["stopped"].llm_spans
    assert (unread.status, unread.attributes["outcome"]) == ("CANCELLED", "dropped")
    assert left.end_ns is not None
    refused, unreached = trajectories["failing"].llm_spans
    assert refused.status == "ERROR" and refused.error is not None and not refused.error[2]
    assert (refused.error_text or "").startswith('HTTP 400 Bad Request: {"error": {"message": "no such model"')
    assert unreached.status == "ERROR" and unreached.error is not None and "ConnectError" in unreached.error[0]


def test_a_response_that_was_cut_is_a_cut_answer(trajectories: dict[str, Trajectory]) -> None:
    assert [span.attributes["finish_reason"] for span in trajectories["cut"].llm_spans] == ["length", "length"]


def test_both_libraries_are_bound_and_called(run: Path) -> None:
    status = json.loads(CliRunner().invoke(main, ["status", str(run), "--json"], catch_exceptions=False).output)
    targets = [row for row in status["status"]["targets"] if row["key"].startswith("httpx")]
    assert len(targets) == 4
    for target in targets:
        assert (list(target["states"]), bool(target["calls"])) == (["bound"], True), target
    assert not status["status"].get("faults"), status["status"]["faults"]
