"""The shipped spec of litellm against the library itself: what is recorded of each way to ask a model."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.sinks.mlflow.spans import encode
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import by_way, run_ways

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
ANSWER = {"role": "assistant", "content": "It is 4."}
FUNCTION = {"name": "add", "arguments": '{"a": 2, "b": 2}'}
CALLED = {"role": "assistant", "content": None}
TOLD = {"role": "tool", "content": "4", "tool_call_id": "call_1"}
PLAIN = [[*ASKED, ANSWER]]
WITH_TOOLS = [[*ASKED, CALLED], [*ASKED, CALLED, TOLD, ANSWER]]
EXPECTED: dict[str, list[list[dict[str, Any]]]] = {
    "chat": WITH_TOOLS,
    "chat_async": WITH_TOOLS,
    "stream": PLAIN,
    "stream_async": PLAIN,
    # litellm's own chunk builder makes the message with an empty text
    "stream_tools": [WITH_TOOLS[0], [*ASKED, {**CALLED, "content": ""}, TOLD, ANSWER]],
    "stopped": [[*ASKED, {"role": "assistant", "content": "It "}]],
    "anthropic": PLAIN,
    "anthropic_stream": PLAIN,
    "responses": [[{"role": "user", "content": "2+2?"}, ANSWER]],
    "embeddings": [],
    "failing": [ASKED],
}


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trajectory]:
    """The trajectories by the way the model was asked."""
    return by_way(run_ways("litellm", tmp_path_factory.mktemp("litellm"), EXPECTED))


def essential(message: dict[str, Any]) -> dict[str, Any]:
    return {name: message.get(name) for name in ("role", "content", "tool_call_id") if name in message}


@pytest.mark.parametrize("way", EXPECTED)
def test_every_way_is_a_chat_once(trajectories: dict[str, Trajectory], way: str) -> None:
    turns = [[essential(message) for message in span.messages or []] for span in trajectories[way].llm_spans]
    assert turns == EXPECTED[way]


@pytest.mark.parametrize("way", ["chat", "chat_async", "stream_tools"])
def test_tool_calls_stand_in_the_turns(trajectories: dict[str, Trajectory], way: str) -> None:
    first, second = trajectories[way].llm_spans
    assert first.messages is not None and second.messages is not None
    for message in (first.messages[-1], second.messages[2]):
        assert [call["function"] for call in message["tool_calls"]] == [FUNCTION]
    shown = [span.title for span in trajectories[way].spans if span.role in ("llm", "tool")]
    assert shown == ["turn 1", "add", "turn 2"]


@pytest.mark.parametrize("way", ["chat", "chat_async", "stream", "anthropic", "responses"])
def test_usage_is_counted_once(trajectories: dict[str, Trajectory], way: str) -> None:
    for span in trajectories[way].llm_spans:
        assert (span.prompt_tokens, span.response_tokens) == (7, 5)
    tokens = [span for span in encode(trajectories[way]) if "mlflow.chat.tokenUsage" in dict(span.attributes)]
    assert len(tokens) == len(trajectories[way].llm_spans)


@pytest.mark.parametrize("way", ["stream", "stream_async", "stream_tools", "anthropic_stream"])
def test_a_stream_ends_with_its_last_chunk(trajectories: dict[str, Trajectory], way: str) -> None:
    span = trajectories[way].llm_spans[0]
    assert span.status == "OK" and span.items > 1 and span.first_item_ns is not None


def test_a_stream_that_was_left_and_a_request_that_failed_say_so(trajectories: dict[str, Trajectory]) -> None:
    (left,) = trajectories["stopped"].llm_spans
    assert (left.status, left.attributes["outcome"]) == ("CANCELLED", "dropped")
    (failed,) = trajectories["failing"].llm_spans
    assert failed.status == "ERROR" and failed.error is not None and "no such model" in failed.error[1]
    assert trajectories["embeddings"].spans[1].name == "embeddings"
