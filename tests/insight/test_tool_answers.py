"""Answers of tools: which are errors by their structure or heading, and which are the same for different questions."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.insight.diagnose import hits
from autotrace.insight.families.tools import error_of
from autotrace.insight.profile import Trait
from tests.insight.made import History, ToolUse, record, step

ERRORS = [
    '{"message":"Bad credentials","documentation_url":"https://docs.example.org","status":"401"}',
    '{"title":"An error occurred while processing your request.","status":500,"traceId":"00-1"}',
    '{"success": false, "data": null, "msg": "token expired"}',
    '{"content":[{"type":"text","text":"Could not reach the weather service"}],"isError":true}',
    '{"status":"SandboxError","message":"failed to start container"}',
    '{"errors": [{"message": "Field x does not exist on type Query"}]}',
    {"error": True, "code": "TABLE_NOT_FOUND", "message": "table 'foo' is not there"},
    [{"isError": True, "content": "city must be a string"}, 0.0, {}],
    {"message": "not here", "status": "404"},
    [{"text": '{"status": "error", "message": "quota exceeded"}'}, 0.0, {}],
    "HTTP Error 403: Forbidden",
    "requests.exceptions.HTTPError: 503 Server Error",
    "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\nKeyError: 'id'",
    "Error executing tool search: invalid token",
    "Tool call failed: connection reset by peer",
    "An unexpected error occurred while searching. Please try again.",
]
ANSWERS = [
    "450",
    "404",
    "503.2",
    "500 Days of Summer (2009)",
    "Standard error: 0.4",
    "Connection Machine: a series of supercomputers",
    "Forbidden City: a palace complex in Beijing",
    "Error analysis is the study of kind and quantity of error.",
    "HTTP 404 Not Found is a response code which indicates that the server could not find what was requested.",
    "a1b2c3d Fix error when connection refused\nd4e5f6a Handle timeout errors",
    "errors.py:3: def error_handler(request, exc):",
    "def load(path):\n    try:\n        return open(path)\n    except FileNotFoundError:\n        return None",
    "12 passed, 0 failed",
    "BUILD SUCCESS: 0 errors, 0 warnings",
    '{"result": 4, "error": null}',
    '{"mean": 3.0, "error": 0.02}',
    '{"errors": 0, "warnings": 2}',
    '{"stdout":"3","stderr":"","exit_code":0,"timed_out":false}',
    '{"id": 3, "status": "failed", "message": "payment declined"}',
    "Killed in action: 12 soldiers of the regiment are listed.",
    "timeout: 30s",
    "Error: 0.4",
    "Understanding TypeError: a guide to the errors of Python, with examples of failures",
    '{"type": 3, "description": "a lake"}',
    '{"status": "\u00b2", "message": "a digit that is no number"}',
    "",
]


@pytest.mark.parametrize("answer", ERRORS)
def test_an_error_is_known_by_its_structure_or_its_heading(answer: Any) -> None:
    assert error_of(answer) == "AT-TOOL-ERROR-TEXT"


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_speaks_of_errors_is_an_answer(answer: str) -> None:
    assert error_of(answer) is None


def test_an_object_that_is_no_json_is_a_text_and_a_status_may_be_long() -> None:
    assert error_of("{x: 3}") is error_of({"message": "not here", "status": "4" * 5000}) is None


def told(answers: list[list[str]]) -> list[str]:
    """The codes of a step in which rollout by rollout ``search`` gave these answers, each group asking for its own."""
    records = [
        record(
            number,
            f"1/g{number // 2}",
            tools=[ToolUse("search", len(texts))],
            traits=[Trait("fixed_answers", f'search answers "{text}"') for text in texts],
        )
        for number, texts in enumerate(answers)
    ]
    return [hit.code for hit in hits(step(records), History())]


OUTAGE = "Servicio no disponible"


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        ([[OUTAGE]] * 8 + [["#"]] * 8, 8),  # in any language, beside numbers
        ([[OUTAGE]] * 8 + [[f"page {chr(97 + number)}"] for number in range(8)], 8),
        ([[OUTAGE, f"page {chr(97 + number)}"] for number in range(8)] + [["#"]] * 8, 8),
        ([["#"]] * 16, 0),  # a calculator
        ([["The sum is #."]] * 16, 0),
        ([["saved"]] * 10 + [["ok"]] * 6, 0),  # a tool that answers little
        ([["not yet, # s", "#"]] * 16, 0),  # a tool that is asked until it is done
        ([[OUTAGE]] * 2 + [["#"]] * 14, 0),  # now and then
    ],
)
def test_one_answer_to_different_questions(answers: list[list[str]], count: int) -> None:
    assert told(answers).count("AT-TOOL-ONE-ANSWER") == count
