"""Tools of the corpus: few, because their schemas are in every prompt. What goes wrong is asked for by number."""

from __future__ import annotations

import asyncio
import itertools

from verl.tools.function_tool import function_tool

RAISES, TIMES_OUT, REFUSES, SAYS_MUCH, IS_SLOW, HANGS = 9001, 9002, 9003, 9004, 9005, 9006

POLLED = 9030
_polls = itertools.count(1)
SAYS = {
    9010: "Traceback (most recent call last):\n  File 'search.py', line 3\nKeyError: 'hits'",
    9011: '{"status": "error", "message": "quota exceeded"}',
    9012: "requests.exceptions.HTTPError: 503 Server Error",
    9013: "An unexpected error occurred while searching. Please try again.",
    9014: "Permission denied: token expired",
    9020: "No results found.",
    9021: "",
    9022: "Understanding TypeError: a guide to the errors of Python, with examples of failures",
}
"""Number -> what it answers."""


@function_tool
async def double(number: int) -> str:
    """Double.

    Args:
        number: any
    """
    if number == RAISES:
        raise RuntimeError("the index is broken")
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
