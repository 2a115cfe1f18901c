"""Where the time went: the sum of what each request and call tells."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.trajectory.durations import Gap, Times, engine_phases, longest_gap, times
from autotrace.trajectory.model import Span, Trajectory


def span(id: str, parent: str | None, role: str, start: float, end: float | None, **attributes: Any) -> Span:
    made = Span(id, parent, id, role, id, int(start * 1e9), None if end is None else int(end * 1e9))
    made.attributes.update(attributes)
    return made


def trajectory(*spans: Span) -> Trajectory:
    return Trajectory("t", "r", list(spans))


REQUEST = {"ttft_s": 2.0, "dispatch_s": 0.5, "queue_s": 0.5, "prefill_s": 1.0, "decode_s": 6.0}


def test_a_turn_a_tool_and_a_reward() -> None:
    durations = times(
        trajectory(
            span("root", None, "trajectory", 0, 20),
            span("agent", "root", "agent", 1, 16),
            span("call", "agent", "llm", 1, 11),
            span("server", "call", "engine", 1.5, 10.5, ttft_s=2.5),
            span("request", "server", "engine", 2, 10, **REQUEST, preempted_s=1.0, preemptions=1),
            span("tool", "agent", "tool", 12, 15),
            span("inside", "tool", "tool", 12.5, 14),
            span("score", "root", "reward", 16, 17),
        )
    )
    assert durations == Times(2.0, 1.0, 5.0, 2.0, None, 3.0, 1.0, 6.0)
    assert sum(durations.measured().values()) == 20


def test_parallel_tools_count_once_and_parallel_requests_each() -> None:
    durations = times(
        trajectory(
            span("root", None, "trajectory", 0, 10),
            *(span(f"tool{number}", "root", "tool", 1, 4) for number in range(3)),
            *(span(f"call{number}", "root", "llm", 5, 9) for number in range(2)),
            *(
                span(f"request{number}", f"call{number}", "engine", 5, 9, ttft_s=1.0, decode_s=3.0)
                for number in range(2)
            ),
        )
    )
    assert (durations.tool_s, durations.prefill_s, durations.decode_s, durations.way_s, durations.other_s) == (
        3.0,
        2.0,
        6.0,
        0.0,
        3.0,
    )
    assert durations.queue_s is None


def test_an_engine_used_alone_and_a_trajectory_that_is_still_open() -> None:
    alone = times(trajectory(span("request", None, "llm", 0, 8, **REQUEST)))
    assert alone == Times(1.0, 1.0, 6.0, 0.0, None, None, None, 0.0)
    still = times(trajectory(span("root", None, "trajectory", 0, None), span("call", "root", "llm", 0, 1)))
    assert still == Times(llm_s=1.0)


def test_a_call_whose_engine_is_not_traced_is_the_models_time_and_no_way() -> None:
    durations = times(
        trajectory(
            span("root", None, "trajectory", 0, 12),
            span("far", "root", "llm", 0, 3),
            span("near", "root", "llm", 3, 6),
            span("request", "near", "engine", 3.5, 5.5, decode_s=2.0),
            span("tool", "root", "tool", 6, 10),
            span("judge", "tool", "llm", 7, 9),
        )
    )
    assert durations == Times(decode_s=2.0, way_s=1.0, llm_s=3.0, tool_s=4.0, other_s=2.0)


def test_the_longest_time_without_a_call_says_where_it_was() -> None:
    def of(*spans: Span) -> Gap | None:
        return longest_gap(trajectory(span("root", None, "trajectory", 0, 20), *spans))

    first, tool, second = (
        span("a", "root", "llm", 2, 6),
        span("look", "root", "tool", 7, 9),
        span("b", "root", "llm", 12, 19),
    )
    assert of(first, tool, second) == Gap(3.0, "before turn 2")
    assert of(second) == Gap(12.0, "before turn 1")
    assert of(first, span("look", "root", "tool", 10, 20)) == Gap(4.0, "before the tool look")
    assert of(first, span("b", "root", "llm", 3, 8), tool) == Gap(11.0, "after the tool look")
    inside = span("judge", "look", "llm", 7.5, 8)
    assert of(first, tool, inside) == Gap(11.0, "after the tool look")
    assert of(span("step", "root", "other", 3, 9)) is None
    assert longest_gap(trajectory(span("root", None, "trajectory", 0, None), first)) is None


@pytest.mark.parametrize("odd", ["soon", None, [1.0], {}, b"1", float("nan"), float("inf"), 10**400], ids=repr)
@pytest.mark.parametrize("name", [*REQUEST, "preempted_s"])
def test_what_an_engine_reports_may_be_anything(name: str, odd: Any) -> None:
    reported = REQUEST | {"preempted_s": 1.0}
    one = trajectory(
        span("root", None, "trajectory", 0, 10),
        span("call", "root", "llm", 0, 9),
        span("request", "call", "engine", 0, 9, **{**reported, name: odd}),
    )
    without = trajectory(*one.spans[:2], span("request", "call", "engine", 0, 9, **{**reported, name: None}))
    assert times(one) == times(without)
    assert [*engine_phases(one.spans[2])] == [*engine_phases(without.spans[2])]
