"""The shipped spec of openai against the client itself: what is recorded of each way to ask a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.resources import Resource

from autotrace.cli.main import main
from autotrace.export.conversation import conversation
from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.sinks.mlflow.info import previews
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.otlp.spans import otel_span
from autotrace.sinks.weave.calls import WeaveCalls
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.openai.program import WAYS
from tests.agent_frameworks.server import ARGUMENTS, TEXT
from tests.agent_frameworks.tracing import by_way, run_ways

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
FUNCTION = {"name": "add", "arguments": ARGUMENTS}
ANSWER = {"role": "assistant", "content": TEXT}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD = {"role": "tool", "content": "4", "tool_call_id": "call_1"}
WITH_TOOLS = [[*ASKED, CALLED], [*ASKED, CALLED, TOLD, ANSWER]]
PLAIN = [[*ASKED, ANSWER]]
BEGUN = {"role": "assistant", "content": "It "}
STREAMS = ("stream", "stream_async", "stopped", "helper", "helpers_left", "raw_stream", "responses_stream", "text")
USER = {"role": "user", "content": "2+2?"}
EXPECTED: dict[str, list[list[dict[str, Any]]]] = {
    "chat": WITH_TOOLS,
    "chat_async": WITH_TOOLS,
    "stream": [WITH_TOOLS[0], [*ASKED, {**CALLED}, TOLD, ANSWER]],
    "stream_async": PLAIN,
    "stopped": [*PLAIN, *[[*ASKED, BEGUN]] * 2],
    "helper": PLAIN,
    "helpers_left": [[*ASKED, BEGUN], [USER, BEGUN]] * 2 + [[USER, ANSWER]],
    "structured": [[*ASKED, {"role": "assistant", "content": '{"sum": 4}', "parsed": {"type": "Sum", "sum": 4}}]],
    "raw": PLAIN,
    "raw_stream": PLAIN,
    "raw_async": [*PLAIN, *PLAIN, ASKED],
    "responses": [[*ASKED, CALLED], [USER, CALLED, TOLD, ANSWER]],
    "responses_stream": [[USER, ANSWER]],
    "cut": [[USER, ANSWER]] * 2,
    "text": [[{"role": "user", "content": "2+2? "}, ANSWER]],
    "embeddings": [],
    "failing": [ASKED],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_ways("openai", tmp_path_factory.mktemp("openai"), WAYS)


@pytest.fixture(scope="module")
def trajectories(run: Path) -> dict[str, Trajectory]:
    return by_way(run)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_a_chat_with_its_tool_calls(trajectories: dict[str, Trajectory], way: str) -> None:
    assert [span.messages for span in trajectories[way].llm_spans] == EXPECTED[way]


@pytest.mark.parametrize("way", [way for way in WAYS if way not in STREAMS])
def test_usage_is_counted_where_the_server_says_it(trajectories: dict[str, Trajectory], way: str) -> None:
    for span in trajectories[way].llm_spans:
        if span.status == "OK" and not span.items:
            assert (span.prompt_tokens, span.response_tokens, span.attributes["cached_tokens"]) == (7, 5, 3)
            assert span.attributes["model"] == "tiny-1"


@pytest.mark.parametrize("way", STREAMS)
def test_a_stream_has_its_items_its_first_item_and_its_end(trajectories: dict[str, Trajectory], way: str) -> None:
    for span in trajectories[way].llm_spans:
        assert span.items > 1 and span.first_item_ns is not None and span.end_ns is not None
        assert span.start_ns <= span.first_item_ns <= span.end_ns


def test_usage_that_a_stream_ends_with_is_counted(trajectories: dict[str, Trajectory]) -> None:
    for span in (trajectories["stream"].llm_spans[0], *trajectories["responses_stream"].llm_spans):
        assert (span.prompt_tokens, span.response_tokens, span.attributes["cached_tokens"]) == (7, 5, 3)


def test_a_stream_that_was_left_before_its_end_says_so(trajectories: dict[str, Trajectory]) -> None:
    said, left, closed = trajectories["stopped"].llm_spans
    assert (said.status, said.attributes["finish_reason"]) == ("OK", "stop")
    for span in (left, closed):
        assert (span.status, span.attributes["outcome"]) == ("CANCELLED", "dropped")
    *helpers, whole = trajectories["helpers_left"].llm_spans
    assert [(span.status, span.attributes.get("outcome")) for span in helpers] == [("CANCELLED", "dropped")] * 4
    assert (whole.status, whole.response_tokens) == ("OK", 5)
    (failed,) = trajectories["failing"].llm_spans
    assert failed.status == "ERROR" and failed.error is not None and "no such model" in failed.error[1]


def test_a_response_that_was_cut_is_a_cut_answer(trajectories: dict[str, Trajectory]) -> None:
    trajectory = trajectories["cut"]
    for span in trajectory.llm_spans:
        assert (span.status, span.attributes["finish_reason"]) == ("OK", "length")
    assert [mark.code for mark in examine(trajectory, TrainerSettings()).marks] == ["AT-TRUNCATED"]
    (answered,) = trajectories["responses_stream"].llm_spans
    assert "finish_reason" not in answered.attributes


def test_tools_and_turns_have_names_and_embeddings_are_no_turn(
    trajectories: dict[str, Trajectory], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [span.title for span in trajectories["chat"].spans] == [None, "turn 1", "add", "turn 2"]
    (embeddings,) = trajectories["embeddings"].spans[1:]
    assert (embeddings.role, embeddings.attributes["prompt_tokens"], embeddings.output) == ("span", 4, None)
    monkeypatch.chdir(run)
    tree = CliRunner().invoke(main, ["ls", str(run), "--tree"], catch_exceptions=False).output
    assert "turn 1  7 + 5 tokens" in tree and "add  " in tree and "call_tool" not in tree
    shown = CliRunner().invoke(main, ["show", trajectories["chat"].trace_id, str(run)], catch_exceptions=False).output
    assert f"< add({ARGUMENTS})" in shown and "> tool: 4" in shown and f"< {TEXT}" in shown


def test_mlflow_is_given_the_chat_as_its_own_tracing_gives_it(trajectories: dict[str, Trajectory]) -> None:
    for way in ("chat", "stream", "responses", "raw"):
        spans = [span for span in encode(trajectories[way]) if span.name.startswith("turn")]
        first = {name: str(value) for name, value in spans[0].attributes.items()}
        inputs, outputs = json.loads(first["mlflow.spanInputs"]), json.loads(first["mlflow.spanOutputs"])
        assert first["mlflow.spanType"] == "CHAT_MODEL" and inputs["messages"] == ASKED[: len(inputs["messages"])]
        message = outputs["choices"][0]["message"]
        assert message["content"] == (TEXT if way == "raw" else None)
        assert way == "raw" or message["tool_calls"][0]["function"] == FUNCTION
        assert json.loads(first["mlflow.chat.tokenUsage"]) == {
            "input_tokens": 7, "output_tokens": 5, "total_tokens": 12,
        }  # fmt: skip


def test_weave_and_otlp_are_given_the_chat_too(trajectories: dict[str, Trajectory]) -> None:
    trajectory = trajectories["stream"]
    first = trajectory.llm_spans[0]
    call = WeaveCalls(trajectory, "entity/project", None).of(first)
    assert (call["display_name"], call["inputs"]["messages"]) == ("turn 1", ASKED)
    assert call["output"]["choices"] == [{"index": 0, "message": CALLED, "finish_reason": "tool_calls"}]
    assert call["summary"]["usage"]["tiny-1"]["prompt_tokens"] == 7
    attributes = dict(otel_span(trajectory, first, Resource({})).attributes or {})
    assert '"tool_call","id":"call_1","name":"add","arguments":{"a":2,"b":2}' in str(
        attributes["gen_ai.output.messages"]
    )
    assert attributes["gen_ai.usage.input_tokens"] == 7 and "gen_ai.response.time_to_first_chunk" in attributes


def test_previews_are_what_was_asked_and_what_was_answered(trajectories: dict[str, Trajectory]) -> None:
    assert [previews(trajectories[way]) for way in ("chat", "responses")] == [("2+2?", TEXT)] * 2
    number = trajectories["embeddings"].root.inputs["number"]
    assert previews(trajectories["embeddings"]) == (f'{{"way": "embeddings", "number": {number}}}', TEXT)


def test_a_conversation_can_be_exported(trajectories: dict[str, Trajectory]) -> None:
    said = conversation(trajectories["stream"])
    assert not isinstance(said, str)
    assert [message["role"] for message in said.messages] == ["system", "user", "assistant", "tool", "assistant"]
