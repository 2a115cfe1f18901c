"""What is asked of a trajectory has one answer, in the tables, on the page and in every backend."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource

from autotrace.sinks.mlflow.info import session_of
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.otlp.spans import otel_span
from autotrace.sinks.weave.calls import WeaveCalls
from autotrace.tables.rollout import Rollout
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.tool_calls import entitle, tool_calls
from autotrace.view.detail import conversation
from tests.sinks.rollouts import hex_id, trajectory


def served(reason: str, **said: Any) -> Trajectory:
    """The engine says why the last answer ended; ``said``: the attributes of the agent's call."""
    made = trajectory()
    call = made.spans[-1]
    call.attributes = said
    engine = Span(hex_id("engine"), call.span_id, "generate", "engine", "vllm.generate", call.start_ns, call.end_ns)
    engine.status, engine.attributes = "OK", {"finish_reason": reason}
    made.spans.append(engine)
    return made


@pytest.mark.parametrize("said", [{}, {"stop_reason": "completed"}], ids=["call says nothing", "call says completed"])
@pytest.mark.parametrize("reason", ["length", "stop", "abort"])
def test_an_ending_is_what_the_engine_says(reason: str, said: dict[str, str]) -> None:
    one = served(reason, **said)
    call = one.llm_spans[-1]
    shown = [item for item in conversation(one) if item.get("span") == call.span_id and "finish" in item]
    outputs = next(span for span in encode(one) if span.span_id == call.span_id).attributes["mlflow.spanOutputs"]
    assert Rollout(one).finish_reasons[-1] == reason
    assert [item["finish"] for item in shown] == [reason]
    assert json.loads(str(outputs))["choices"][0]["finish_reason"] == reason
    exported = otel_span(one, call, Resource({})).attributes
    assert exported is not None and exported["gen_ai.response.finish_reasons"] == [reason]
    assert WeaveCalls(one, "team/project", None).of(call)["output"]["choices"][0]["finish_reason"] == reason


def identified(**known: Any) -> Trajectory:
    made = trajectory()
    made.attributes = {"step": 3, "sample_index": 7, "experiment_name": "grpo", **known}
    return made


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"data_source": "a"}, {"data_source": "b"}, False),
        ({"validate": True}, {"validate": False}, False),
        ({"step": 3}, {"step": 4}, False),
        ({"uid": "u", "rollout_n": 1}, {"uid": "u", "rollout_n": 2}, True),
        ({"rollout_n": 0}, {"rollout_n": 1}, True),
    ],
    ids=str,
)
def test_a_group_is_the_same_for_all(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    def names(known: dict[str, Any]) -> list[Any]:
        made = identified(**known)
        exported = otel_span(made, made.root, Resource({})).attributes
        assert exported is not None
        thread = WeaveCalls(made, "team/project", None).of(made.root)["thread_id"]
        return [Rollout(made).group_id, session_of(made), thread, exported["autotrace.group"]]

    assert [a == b for a, b in zip(names(one), names(other), strict=True)] == [same] * 4


def test_without_a_prompt_there_is_no_group() -> None:
    made = identified(sample_index=None)
    assert session_of(made) is None and "thread_id" not in WeaveCalls(made, "team/project", None).of(made.root)
    assert Rollout(made).group_id == made.trace_id


def test_a_tool_call_has_its_title_where_it_is_counted() -> None:
    """A tool's own method, one below a span inside of it, and a tool that a reward calls are not the agent's calls."""
    made = trajectory()
    agent, tool = made.spans[1], made.spans[3]

    def below(parent: Span, role: str, name: str) -> Span:
        span = Span(hex_id(name), parent.span_id, name, role, f"m.{name}", tool.start_ns, tool.end_ns, "OK")
        made.spans.append(span)
        return span

    below(tool, "tool", "Multiply.execute")
    below(below(tool, "span", "retry"), "tool", "Multiply.parse")
    below(below(agent, "reward", "score"), "tool", "judge_search")
    entitle(made.spans)
    calls = tool_calls(made)
    assert [call.span for call in calls] == [tool] and len(calls[0].inner) == 2
    assert [span.span_id for span in made.spans if span.role == "tool" and span.title is not None] == [tool.span_id]
