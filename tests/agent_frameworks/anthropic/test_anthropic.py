"""The shipped spec of anthropic against the client itself: what is recorded of each way to ask a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.resources import Resource

from autotrace.cli.main import main
from autotrace.sinks.mlflow.info import previews
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.otlp.spans import otel_span
from autotrace.sinks.weave.calls import WeaveCalls
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.anthropic.program import WAYS
from tests.agent_frameworks.tracing import by_way, run_ways

ARGUMENTS = '{"a": 2, "b": 2}'
TEXT = "It is 4."
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
ANSWER = {"role": "assistant", "content": TEXT}
CALL = {"id": "toolu_1", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}
CALLED = {"role": "assistant", "content": None, "reasoning_content": "Two and two.", "tool_calls": [CALL]}
TOLD = {"role": "tool", "content": "4", "tool_call_id": "toolu_1"}
PLAIN = [[*ASKED, ANSWER]]
WITH_TOOLS = [[*ASKED, CALLED], [*ASKED, CALLED, TOLD, ANSWER]]
EXPECTED: dict[str, list[list[dict[str, Any]]]] = {
    **{way: PLAIN for way in WAYS},
    "messages": WITH_TOOLS,
    "messages_async": WITH_TOOLS,
    "helper": WITH_TOOLS,
    "stopped": [*PLAIN, [*ASKED, {"role": "assistant", "content": "It "}], ASKED],
    "structured": [[*ASKED, {"role": "assistant", "content": '{"sum": 4}'}]],
    # the second request has what is new alone
    "runner": [[*ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}], [TOLD, ANSWER]],
    "failing": [ASKED, ASKED],
}
STREAMS = ("stream", "stream_async", "helper", "helper_async", "raw_stream", "beta_helper")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_ways("anthropic", tmp_path_factory.mktemp("anthropic"), WAYS)


@pytest.fixture(scope="module")
def trajectories(run: Path) -> dict[str, Trajectory]:
    return by_way(run)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_a_chat_with_its_tool_calls(trajectories: dict[str, Trajectory], way: str) -> None:
    assert [span.messages for span in trajectories[way].llm_spans] == EXPECTED[way]


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("failing", "stopped")])
def test_usage_is_counted_with_what_the_cache_had(trajectories: dict[str, Trajectory], way: str) -> None:
    for span in trajectories[way].llm_spans:
        assert (span.prompt_tokens, span.response_tokens, span.attributes["cached_tokens"]) == (7, 5, 3)
        assert span.attributes["model"] == "tiny-1" and span.attributes["finish_reason"] in ("end_turn", "tool_use")


@pytest.mark.parametrize("way", STREAMS)
def test_a_stream_has_its_items_its_first_item_and_its_end(trajectories: dict[str, Trajectory], way: str) -> None:
    for span in trajectories[way].llm_spans:
        assert span.status == "OK" and span.items > 1 and span.first_item_ns is not None and span.end_ns is not None
        assert span.start_ns <= span.first_item_ns <= span.end_ns


def test_a_stream_that_was_left_before_its_end_says_so(trajectories: dict[str, Trajectory]) -> None:
    said, left, never = trajectories["stopped"].llm_spans
    assert (said.status, said.attributes["finish_reason"]) == ("OK", "end_turn")
    assert (left.status, left.attributes["outcome"]) == ("CANCELLED", "dropped")
    assert (never.status, never.items) == ("CANCELLED", 0)
    for failed in trajectories["failing"].llm_spans:
        assert failed.status == "ERROR" and failed.error is not None and "no such model" in failed.error[1]


def test_tools_and_turns_have_names(
    trajectories: dict[str, Trajectory], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for way in ("messages", "runner"):
        assert [span.title for span in trajectories[way].spans] == [None, "turn 1", "add", "turn 2"]
    monkeypatch.chdir(run)
    trace_id = trajectories["messages"].trace_id
    shown = CliRunner().invoke(main, ["show", trace_id, str(run)], catch_exceptions=False).output
    assert f"< add({ARGUMENTS})" in shown and "> tool: 4" in shown and f"< {TEXT}" in shown
    assert "~ Two and two." in shown


@pytest.mark.parametrize("way", ["messages", "helper"])
def test_mlflow_weave_and_otlp_are_given_the_chat(trajectories: dict[str, Trajectory], way: str) -> None:
    trajectory = trajectories[way]
    first = trajectory.llm_spans[0]
    (span, _) = [span for span in encode(trajectory) if span.name.startswith("turn")]
    given = {name: str(value) for name, value in span.attributes.items()}
    message = json.loads(given["mlflow.spanOutputs"])["choices"][0]["message"]
    assert given["mlflow.spanType"] == "CHAT_MODEL" and json.loads(given["mlflow.spanInputs"])["messages"] == ASKED
    assert message["tool_calls"] == [CALL] and message["reasoning_content"] == "Two and two."
    assert json.loads(given["mlflow.chat.tokenUsage"]) == {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
    call = WeaveCalls(trajectory, "entity/project", None).of(first)
    assert call["inputs"]["messages"] == ASKED and call["output"]["choices"][0]["message"]["tool_calls"] == [CALL]
    assert call["summary"]["usage"]["tiny-1"]["prompt_tokens"] == 7
    attributes = dict(otel_span(trajectory, first, Resource({})).attributes or {})
    assert '"tool_call","id":"toolu_1","name":"add","arguments":{"a":2,"b":2}' in str(
        attributes["gen_ai.output.messages"]
    )
    assert previews(trajectory) == ("2+2?", TEXT)
