"""Answers of tools: which are the text of an error, and which speak of errors."""

from __future__ import annotations

import pytest

from autotrace.insight.error_texts import kind

ERRORS = [
    '{"message":"Bad credentials","documentation_url":"https://docs.example.org","status":"401"}',
    '{"title":"An error occurred while processing your request.","status":500,"traceId":"00-1"}',
    '{"success": false, "data": null, "msg": "token expired"}',
    '{"content":[{"type":"text","text":"Could not reach the weather service"}],"isError":true}',
    '{"code":1113,"msg":"\u60a8\u7684\u8d26\u6237\u5df2\u6b20\u8d39"}',
    '{"status":"SandboxError","message":"failed to start container"}',
    '<?xml version="1.0"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>',
    "<html><head><title>Just a moment...</title></head><body>Verifying you are human.</body></html>",
    "no healthy upstream",
    'rpc error: code = Unavailable desc = "transport: Error while dialing"',
    "net::ERR_NAME_NOT_RESOLVED at https://example.org/",
    'relation "users" does not exist\nLINE 1: select * from users',
    "ORA-00942: table or view does not exist",
    "cat: /workspace/data.txt: No such file or directory",
    "bash: line 1: pip3: command not found",
    "Segmentation fault (core dumped)",
    "Killed",
    "thread 'main' panicked at src/server.rs:3:14",
    "Daily limit reached. Upgrade your plan to continue.",
    "Invalid API key provided: sk-abc",
    "<tool_response>\nTool execution failed with status 1\n</tool_response>",
    "\u274c Unable to fetch page",
    "'NoneType' object has no attribute 'text'",
    "This site can\u2019t be reached",
    "\u7cfb\u7edf\u7e41\u5fd9,\u8bf7\u7a0d\u540e\u518d\u8bd5",
    "Servicio no disponible",
    "HTTP Error 403: Forbidden",
    "requests.exceptions.HTTPError: 503 Server Error",
    "Fehler: Verbindung abgelehnt",
    "Erreur : service indisponible",
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
    '{"type": 3, "description": "a lake"}',
    '{"status": "\u00b2", "message": "a digit that is no number"}',
    "",
]


@pytest.mark.parametrize("answer", ERRORS)
def test_an_error_is_known_by_its_form(answer: str) -> None:
    assert kind(answer) == "error"


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_speaks_of_errors_is_an_answer(answer: str) -> None:
    assert kind(answer) is None


def test_of_what_executes_only_what_is_its_own_counts() -> None:
    assert kind("ZeroDivisionError: division by zero", executes=True) is None
    assert kind("cat: x: No such file or directory", executes=True) is None
    assert kind("docker: Error response from daemon: No such container: sbx1.", executes=True) == "error"
    assert kind("The sandbox was not found: it has expired", executes=True) == "error"


def test_an_object_that_is_none_is_a_text() -> None:
    assert kind('{"error": ' * 3000) == "error"
    assert kind("{x: 3}") is None
