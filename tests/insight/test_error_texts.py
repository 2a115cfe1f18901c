"""Answers of tools: which are the text of an error, and which speak of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotrace.insight import error_texts
from autotrace.insight.error_texts import kind
from autotrace.insight.examine import examine
from autotrace.insight.settings import Settings
from tests.insight import made

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
    "HTTP Error 403: Forbidden",
    "requests.exceptions.HTTPError: 503 Server Error",
    "Fehler: Verbindung abgelehnt",
    "Erreur : service indisponible",
]
UNSEEN = [
    "The search backend did not answer within 30 seconds.",
    "Request failed with status code 502",
    "I couldn't fetch that page: the host never replied.",
    "Sorry, we hit a snag while running your query.",
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443): Max retries exceeded",
    "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\nKeyError: 'id'",
    "HTTP 500 Internal Server Error",
    "Error executing tool search: invalid token",
    "Tool call failed: connection reset by peer",
    "API rate limit exceeded for this key",
    "You have exceeded your monthly allowance of searches.",
    "Your subscription has lapsed; renew it to continue.",
    "psycopg2.OperationalError: could not connect to server",
    "upstream connect error or disconnect/reset before headers",
    "fatal: not a git repository (or any of the parent directories): .git",
    "ls: cannot access '/data': No such file or directory",
    "Permission denied (publickey).",
    "Element #submit is not visible on the page",
    "Timeout 30000ms exceeded while waiting for selector",
    "The page you requested could not be loaded.",
    "Exception: no route matched",
    "Command exited with status 2",
    "No connection could be made because the target machine actively refused it",
    "OSError: [Errno 28] No space left on device",
    "The vector store is empty or was never initialised.",
    "Lookup aborted: shard 3 missing",
    "index 'docs' is missing",
    "Access to this resource on the server is denied!",
    "The remote end hung up before sending a reply",
    "Something broke on our side. Try once more in a minute.",
    "Failed to parse response from weather API",
    "openai.RateLimitError: Error code: 429",
    "Query cancelled after 60 s",
    "SSL: CERTIFICATE_VERIFY_FAILED",
    "Could not find a document with id 17",
    "the browser crashed",
    "502 Bad Gateway",
    "Unable to locate credentials",
    "Internal error, please contact support",
    "maximum context of the tool reached, output discarded",
]
"""Written for the measurement, before the forms were: not to be looked at when a form is added."""
PUBLIC = [
    "The following error occurred: no such column: shipping_address",
    "Tool error: Please check your input and try again. (bad date)",
    "The following errors occurred during tool execution: city unknown",
    "Failed to get weather for Paris: 404",
    "Failed to fetch stock price: API rate limit exceeded for symbol 'X'",
    "Redirect to tracking service detected",
    "Page loaded but contains error content",
    "Browser automation failed",
    "Input queries must be all capitals",
    "table 'foo' not found in schema registry. Run refresh_schema() after creating tables.",
    "entity 'User' does not exist",
    "Tool not found: search",
    "tool.handler is not a function",
    "Request failed with status code 500",
    "Tool execution failed",
    "Error generating response",
    "Invalid input.",
    "Web server is returning an unknown error",
    "invalid aliases parameter",
]
"""What tools of public agents say, as a search for such tools found them once the forms were written."""
STRUCTURED: list[Any] = [
    {"error": True, "code": "TABLE_NOT_FOUND", "message": "table 'foo' is not there"},
    {"isError": True, "content": [{"type": "text", "text": "city must be a string"}]},
    [{"isError": True, "content": "city must be a string"}, 0.0, {}],
    '{"status": 503, "detail": "upstream gone"}',
    '{"error": "no results backend"}',
    '{"ok": false, "description": "chat not found"}',
    '{"statusCode": 429, "message": "slow down"}',
    '{"exit_code": 137, "stdout": ""}',
    '{"returncode": -9, "stderr": "", "stdout": "..."}',
    '{"errors": [{"message": "Field x does not exist on type Query"}]}',
    '{"status": "error", "data": null, "message": "bad cursor"}',
    '{"success": false, "reason": "stock market closed"}',
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


@pytest.mark.parametrize("output", STRUCTURED)
def test_what_has_the_structure_of_an_error_needs_no_words(output: Any) -> None:
    assert kind(output) == "error"


def test_the_recall_of_unseen_wordings_is_what_the_page_says() -> None:
    page = " ".join(Path(__file__).parents[2].joinpath("docs/findings/AT-TOOL-ERROR-TEXT.md").read_text().split())
    for texts in (UNSEEN, PUBLIC):
        known = sum(kind(text) == "error" for text in texts)
        assert f"{known} of {len(texts)}" in page


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Make a text the user's file of forms."""
    caches = (error_texts.own_forms, error_texts._kind_of_short)

    def given(text: str) -> None:
        (tmp_path / "forms.txt").write_text(text)
        monkeypatch.setenv("AUTOTRACE_ERROR_FORMS", str(tmp_path / "forms.txt"))
        for cache in caches:
            cache.cache_clear()

    yield given
    for cache in caches:
        cache.cache_clear()


def test_a_file_adds_forms(forms: Callable[[str], None]) -> None:
    forms("# ours\nno disponible\n(unclosed\nx{99999999999}\n(?a)(?u)x\nhit a snag\n")
    assert kind("Servicio no disponible") == kind("Sorry, we hit a snag.") == "error"
    assert kind("Servicio disponible") is None


def test_each_form_stands_alone(forms: Callable[[str], None]) -> None:
    """Flags at its head, a name of a group that another line has, a number of a group: of that line alone."""
    forms("(?i)kaputt\n(?P<what>\\w+) en panne\n(?P<what>\\w+) defekt\n(x)\\1 aus\n")
    texts = ("Das Netz ist KAPUTT", "Le serveur en panne", "Der Server defekt", "Jetzt xx aus")
    assert [kind(text) for text in texts] == ["error"] * 4
    assert kind("Alles gut, 3 Treffer") is None


def test_a_file_that_cannot_be_read_is_none(forms: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    forms("")
    monkeypatch.setenv("AUTOTRACE_ERROR_FORMS", "~nobody.of.this.name/forms.txt")
    assert kind("Alles gut, 3 Treffer") is None


def test_forms_take_no_finding_away(forms: Callable[[str], None]) -> None:
    forms("(?i)kaputt\nno disponible\n")
    root = made.span("trajectory", None)
    good = made.span("tool", root.span_id, 1, output="3 hits in 2 files")
    raised = made.span("tool", root.span_id, 2, status="ERROR", error=("KeyError", "'page'", ""))
    marks = examine(made.trajectory(good, raised, root=root), Settings()).marks
    assert [mark.code for mark in marks] == ["AT-TOOL-RAISES"]


def test_of_what_executes_only_what_is_its_own_counts() -> None:
    assert kind("ZeroDivisionError: division by zero", executes=True) is None
    assert kind("cat: x: No such file or directory", executes=True) is None
    assert kind("docker: Error response from daemon: No such container: sbx1.", executes=True) == "error"
    assert kind("The sandbox was not found: it has expired", executes=True) == "error"


def test_an_object_that_is_none_is_a_text() -> None:
    assert kind('{"error": ' * 3000) == "error"
    assert kind("{x: 3}") is None


def test_a_status_of_any_length_is_read() -> None:
    assert kind({"message": "not here", "status": "404"}) == "error"
    assert kind({"message": "not here", "status": "4" * 5000}) is None
