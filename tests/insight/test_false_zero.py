"""Failures that became rewards, and their twins."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.insight.examine import examine
from autotrace.insight.profile import Mark
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.model import Span, Trajectory
from tests.insight.made import diagnose, llm, record, span, step, trajectory

NOTE = {"error": "TimeoutError", "message": "no answer", "at": "judge (r.py:12)", "caught": "score (r.py:31)"}


def rollout(role: str = "reward", start: int = 3, seconds: float = 0.5, turn: int = 1, **note: Any) -> Trajectory:
    """One turn, and a call that noted a failure ``seconds`` after it began."""
    root = span("trajectory", None)
    notes = [{**NOTE, "times": 1, "seconds": seconds, **note}]
    noting = span(role, root.span_id, start, output=0.0, attributes={"swallowed": notes})
    return trajectory(llm(root.span_id, turn, [1], [2]), noting, root=root)


def found(one: Trajectory) -> list[Mark]:
    return [mark for mark in examine(one, TrainerSettings()).marks if mark.code == "AT-FALSE-ZERO"]


@pytest.mark.parametrize("note", [
    {}, {"error": "httpx.ConnectError"}, {"error": "RuntimeError"}, {"error": "KeyError", "message": "CHF"},
    {"error": "AttributeError", "message": "'Judge' object has no attribute 'ask'"}, {"error": "openai.APIError"},
])  # fmt: skip
def test_a_failure_of_a_reward_is_named(note: dict[str, Any]) -> None:
    (mark,) = found(rollout(**note))
    assert mark.kind == f"{note.get('error', 'TimeoutError')} in judge (r.py:12), caught in score (r.py:31)"
    assert mark.turn == 1


@pytest.mark.parametrize("note", [
    {"error": "ValueError", "message": "could not convert string to float: 'one'"},
    {"error": "json.decoder.JSONDecodeError"}, {"error": "KeyError", "at": "parse_answer (r.py:3)"},
    {"error": "TypeError", "message": "'NoneType' object is not subscriptable"}, {"error": "ZeroDivisionError"},
    {"error": "sympy.SympifyError", "at": "extract (r.py:8)"}, {"error": "pydantic_core.ValidationError"},
])  # fmt: skip
def test_an_answer_that_cannot_be_read_is_no_failure(note: dict[str, Any]) -> None:
    assert found(rollout(**note)) == []


@pytest.mark.parametrize("role", ["trajectory", "agent", "tool", "env"])
def test_what_the_model_could_be_told_is_no_failure_of_the_reward(role: str) -> None:
    assert found(rollout(role, start=0, seconds=0.5, turn=2)) == []
    assert len(found(rollout(role, start=0, seconds=4.0, turn=2))) == 1, "after the last turn"


def _calls(*statuses: str) -> Trajectory:
    root = span("trajectory", None)
    reward = span("reward", root.span_id, 3, output=0.0)
    error = ("ConnectionError", "refused", "")
    calls: list[Span] = [
        span(
            "engine", reward.span_id, at, name="Sandbox.run", status=status, error=error if status == "ERROR" else None
        )
        for at, status in enumerate(statuses, 3)
    ]
    return trajectory(llm(root.span_id, 1, [1], [2]), reward, *calls, root=root)


def test_a_recorded_call_inside_of_a_reward_that_failed() -> None:
    (mark,) = found(_calls("OK", "ERROR"))
    assert mark.kind == "ConnectionError in Sandbox.run, caught in reward.call"
    assert found(_calls("ERROR", "OK")) == [], "another try went well"
    assert found(_calls("OK", "CANCELLED")) == []


def _findings(failed: list[float], others: list[float], **facts: Any) -> list[tuple[str, int, str]]:
    marks = [Mark("AT-FALSE-ZERO", 1, None, "TimeoutError: no answer", "TimeoutError in judge")]
    rows = [record(at, f"1/{at}", reward=score, marks=marks, facts=facts) for at, score in enumerate(failed)]
    rows += [record(100 + at, f"1/{100 + at}", reward=score) for at, score in enumerate(others)]
    one = [finding for finding in diagnose([step(rows)]) if finding.code == "AT-FALSE-ZERO"]
    return [(finding.code, finding.trajectories, finding.places[0].note) for finding in one]


def test_the_lowest_reward_the_highest_and_what_was_taught() -> None:
    assert _findings([0.0] * 3, [1.0, 0.0, 1.0]) == [
        ("AT-FALSE-ZERO", 3, "reward 0 (the lowest): TimeoutError: no answer")
    ]
    assert _findings([1.0] * 3, [1.0, 0.0, 0.0])[0][2].startswith("reward 1 (the highest)")
    assert _findings([0.2, 0.3], [1.0, 0.0, 1.0])[0][1] == 2, "a part of the reward is missing"
    ((_, _, note),) = _findings([0.0] * 2, [1.0], advantage=-0.5, trained_in_step=1)
    assert note.startswith("reward 0 (the lowest), trained on, advantage -0.5 x 10 tokens: ")


def test_rewards_as_those_of_others_and_a_single_failure_say_nothing() -> None:
    assert _findings([0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]) == [], "a fallback that judges as well"
    assert _findings([0.0], [1.0, 0.0, 1.0]) == []


JSON_ANSWER = '{"result": 12}'


@pytest.mark.parametrize(("said", "note", "is_named"), [
    ("It is 12.", {"error": "json.decoder.JSONDecodeError", "message": "Expecting value: line 1 column 1 (char 0)",
                   "at": "grade (r.py:4)"}, False),
    (JSON_ANSWER, {"error": "KeyError", "message": "'answer'", "at": "grade (r.py:5)"}, False),
    ("It is 12.", {"error": "KeyError", "message": "'choices'", "at": "judge (r.py:5)"}, True),
    (JSON_ANSWER, {"error": "KeyError", "message": "'choices'", "at": "ask_judge (r.py:5)"}, True),
    ("It is 12.", {"error": "ValueError", "message": "could not convert string to float: 'It is 12.'",
                   "at": "grade (r.py:4)"}, False),
    ("x", {"error": "ValueError", "message": "could not convert string to float: 'error 503'", "at": "f (r.py:4)"},
     False),
    ("x", {"error": "TypeError", "message": "float() argument must be a string or a real number, not 'list'",
           "at": "grade (r.py:4)"}, False),
    ("x", {"error": "AttributeError", "message": "'NoneType' object has no attribute 'group'"}, False),
    ("x", {"error": "re.error", "message": "unterminated character set at position 0", "at": "grade (r.py:4)"}, False),
    ("x", {"error": "IndexError", "message": "list index out of range", "at": "grade (api_reward.py:4)"}, False),
    ("x", {"error": "sympy.core.sympify.SympifyError", "message": "", "at": "is_equal (r.py:4)"}, False),
    ("x", {"error": "subprocess.CalledProcessError", "message": "Command '['python', '-c', 'x']' returned non-zero "
           "exit status 1.", "at": "grade (r.py:4)"}, False),
    ("x", {"error": "NameError", "message": "name 'solve' is not defined", "at": "run_tests (r.py:4)"}, False),
    ("x", {"error": "TypeError", "message": "score() got an unexpected keyword argument 'task'"}, True),
    ("x", {"error": "TimeoutError", "message": "", "at": "run_tests (r.py:4)"}, True),
    ("x", {"error": "RuntimeError", "message": "sandbox timed out after 30s", "at": "run_code (r.py:4)"}, True),
    ("x", {"error": "ValueError", "message": "sandbox not ready", "at": "run_code (r.py:4)"}, True),
    ("x", {"error": "httpx.HTTPStatusError", "message": "Server error '503 Service Unavailable' for url 'http://j/v1'"},
     True),
    ("x", {"error": "ValueError", "message": "judge returned 503"}, True),
    ("x", {"error": "AssertionError", "message": "status 503"}, True),
    ("x", {"error": "urllib.error.HTTPError", "message": "HTTP Error 503: Service Unavailable", "at": "f (r.py:4)"},
     True),
    ("x", {"error": "requests.exceptions.JSONDecodeError", "message": "Expecting value: line 1 column 1 (char 0)"},
     True),
    ("x", {"error": "json.decoder.JSONDecodeError", "message": "Expecting", "at": "fetch_verdict (r.py:4)"}, True),
    ("x", {"error": "FileNotFoundError", "message": "[Errno 2] No such file or directory: 'tests.json'"}, True),
])  # fmt: skip
def test_failures_of_the_field_are_named_unless_the_answer_is_to_blame(
    said: str, note: dict[str, Any], is_named: bool
) -> None:
    root = span("trajectory", None)
    notes = [{**NOTE, "times": 1, "seconds": 0.5, **note}]
    turn = llm(root.span_id, 1, [1], [2])
    turn.messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}]
    reward = span("reward", root.span_id, 3, output=0.0, attributes={"swallowed": notes})
    assert bool(found(trajectory(turn, reward, root=root))) == is_named
