"""Rollouts of one prompt beside each other."""

from __future__ import annotations

from typing import Any

from autotrace.trajectory.model import Trajectory
from autotrace.view.detail import NOT_RUN, beside
from tests.insight.made import SECOND, span, trajectory


def asked(*calls: str) -> list[dict[str, Any]]:
    written = [
        {"type": "function", "function": {"name": "stock", "arguments": f'{{"item": "{item}"}}'}} for item in calls
    ]
    return [
        {"role": "system", "content": "count"},
        {"role": "user", "content": "How many apples and pears?"},
        {"role": "assistant", "content": "", **({"tool_calls": written} if written else {})},
    ]


def made(*, tools: int, over: bool = True, turns: int = 1) -> Trajectory:
    """Two calls are written in the first turn; so many are made."""
    root = span("trajectory", None, end_ns=9 * SECOND if over else None)
    first = span("llm", root.span_id, 1, messages=asked("apples", "pears"))
    ran = [span("tool", root.span_id, 2 + at, title="stock", inputs={"item": "apples"}) for at in range(tools)]
    rest = [span("llm", root.span_id, 5, messages=asked())] if turns > 1 else []
    return trajectory(first, *ran, *rest, root=root)


def statuses(one: Trajectory) -> list[str]:
    (rollout,) = beside([one])["rollouts"]
    return [call["status"] for call in rollout["turns"][0]["calls"]]


def test_a_call_that_was_written_and_not_run_is_shown_as_such() -> None:
    assert statuses(made(tools=1)) == ["OK", NOT_RUN]
    assert statuses(made(tools=2)) == ["OK", "OK"]


def test_it_may_still_run_while_its_turn_is_the_last_of_a_trajectory_that_goes_on() -> None:
    assert statuses(made(tools=1, over=False)) == ["OK"]
    assert statuses(made(tools=1, over=False, turns=2)) == ["OK", NOT_RUN]


def test_where_no_tool_is_recorded_nothing_is_said_of_them() -> None:
    assert statuses(made(tools=0)) == []


def test_what_was_asked_stands_above() -> None:
    assert beside([made(tools=1)])["asked"] == "How many apples and pears?"
