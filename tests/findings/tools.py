"""Tools of the corpus: few, because their schemas are in every prompt. What goes wrong is asked for by number."""

from __future__ import annotations

import asyncio
import itertools

from verl.tools.function_tool import function_tool

RAISES, TIMES_OUT, REFUSES, SAYS_MUCH, IS_SLOW, HANGS, IS_LATE = 9001, 9002, 9003, 9004, 9005, 9006, 9007

POLLED = 9030
_polls = itertools.count(1)
SAYS = {
    9010: "Traceback (most recent call last):\n  File 'search.py', line 3\nKeyError: 'hits'",
    9011: '{"status": "error", "message": "quota exceeded"}',
    9012: "requests.exceptions.HTTPError: 503 Server Error",
    9013: "An unexpected error occurred while searching. Please try again.",
    9014: "Permission denied: token expired",
    9015: "\u9519\u8bef: \u6570\u636e\u5e93\u8fde\u63a5\u5931\u8d25",
    9016: "Fehler: Verbindung abgelehnt",
    9017: "Sorry, the search service is temporarily unavailable. Please try again in 30 seconds.",
    9018: "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><hr>nginx</body></html>",
    9019: '{"result": null, "error": {"code": -32000, "message": "upstream overloaded"}}',
    9020: "No results found.",
    9021: "",
    9024: "1 validation error for Double\nnumber\n  Input should be less than 9000",
    9025: "Request to http://search:8000/query failed with status code 503",
    9026: "The service was founded in 1902. Its host, the engine works, was offline in the winter of 1911.",
    9031: "450",
    9032: '{"message":"Bad credentials","documentation_url":"https://docs.example.org","status":"401"}',
    9033: "Daily limit reached. Upgrade your plan to continue.",
    9034: "no such table: orders",
    9035: "a1b2c3d Fix error when connection refused\nd4e5f6a Handle timeout errors in client",
    9040: "Sandbox provisioning did not complete within 300s (request id 8fa2).",
    9022: "Understanding TypeError: a guide to the errors of Python, with examples of failures",
}
"""Number -> what it answers."""


class DeadlineExceeded(Exception):
    """As remote procedure calls name it."""


@function_tool
async def double(number: int) -> str:
    """Double.

    Args:
        number: any
    """
    if number == RAISES:
        raise RuntimeError("the index is broken")
    if number == IS_LATE:
        raise DeadlineExceeded("504 after 30 s")
    if number == TIMES_OUT:
        await asyncio.wait_for(asyncio.sleep(30), 0.01)
    if number == IS_SLOW:
        from tests.findings import loops

        await loops.ENGINE.quiet(2)
    if number == HANGS:
        await asyncio.Event().wait()
    if number == REFUSES:
        return "Error: connection refused by host 17"
    if number == POLLED:
        return f"not yet, {next(_polls)} s"
    if number in SAYS:
        return SAYS[number]
    return "much of it " * 200 if number == SAYS_MUCH else str(2 * number)


@function_tool
async def python(number: int) -> str:
    """Run.

    Args:
        number: any
    """
    return f"Error: name 'x{number}' is not defined"
