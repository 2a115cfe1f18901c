"""The rows of ``calls``, and what each may cost."""

from __future__ import annotations

from math import inf
from typing import Any

FLOOR, OFF, NOT_SAMPLED, RECORDED = "floor", "off", "not sampled", "autotrace"
DELAY = "AUTOTRACE_BENCH_DELAY"
"""The environment variable that makes the calls of one row dearer, in this tree alone (``row=share``): a test plants
it."""
ROWS = {
    "function": 400, "coroutine": 400, "method": 400, "object": 200, "watched": 400, "item": 8, "llm": 16,
    "llm without tokens": 40, "4 messages": 40, "40 messages": 40, "200 nested messages": 10, "root, not sampled": 400,
    "call that is off": 1_000,
}  # fmt: skip
"""Row -> calls of a round."""
NAMES = {
    "function": "function, one small argument",
    "coroutine": "coroutine, one small argument",
    "method": "method of a tool, whose object's name is read",
    "object": "returns an object",
    "watched": "function that calls a watched function",
    "item": "item of a generator",
    "llm": "coroutine, role llm, 2k+2k tokens, one message of 4 KB",
    "llm without tokens": "the same without tokens",
    "4 messages": "4 messages, role llm",
    "40 messages": "40 messages",
    "200 nested messages": "200 nested messages",
    "root, not sampled": "root that is not sampled",
    "call that is off": "call that is off",
}
LIMIT = 1.1
"""Times what the commit before costs."""
LIMITS = {"root, not sampled": 1.3, "watched": 1.2}
"""The same, of rows that have limits of their own, with room for 0.1: one tree is between 1.1 and 1.21 times the commit
before, from start to start. A root that is not sampled has a trace of its own since calls that outlive the root are
told apart: 0.15 us, once a trajectory. A watched function has a handler."""
FLOORS = {"llm": 4.0}
"""Times the floor, which copies the call's token lists. One and the same commit took 2.2 to 3.5 times as much, between
one CPU and the next. Without the other rows between its rounds the floor is cheaper, and the row takes 4 to 4.6 times
as much."""


def dearer(made: dict[str, dict[str, Any]]) -> list[str]:
    """Rows that cost more than they may."""
    found = []
    for row, each in made.items():
        limits = {"before": LIMITS.get(row, LIMIT), "floor": FLOORS.get(row, inf)}
        for name, limit in limits.items():
            if each[f"x_{name}"] > limit:
                found.append(
                    f"{NAMES[row]}: {each['now_us']:.2f} us, {each[f'x_{name}']:.2f} x {name} "
                    f"(median of {each['starts']} starts), allowed {limit:g} x"
                )
    return found
