"""The rows of ``calls``, and what each may cost."""

from __future__ import annotations

from typing import Any

FLOOR, OFF, NOT_SAMPLED, RECORDED = "floor", "off", "not sampled", "autotrace"
ROWS = {
    "function": 400, "coroutine": 400, "object": 200, "item": 8, "llm": 16, "llm without tokens": 40, "4 messages": 40,
    "40 messages": 40, "200 nested messages": 10, "root, not sampled": 400, "call that is off": 1_000,
}  # fmt: skip
"""Row -> calls of a round."""
NAMES = {
    "function": "function, one small argument",
    "coroutine": "coroutine, one small argument",
    "object": "returns an object",
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
"""Times what the commit before costs, beyond the noise."""


def dearer(made: dict[str, dict[str, Any]]) -> list[str]:
    """Rows that cost more than they may."""
    return [
        f"{NAMES[row]}: {each['now_us']:.2f} us, {each['x_before']:.2f} x the commit before "
        f"({each['before_us']:.2f} us), allowed {LIMIT:g} x beyond a noise of {each['noise']:.0%}"
        for row, each in made.items()
        if each["x_before"] > LIMIT * (1 + each["noise"])
    ]
