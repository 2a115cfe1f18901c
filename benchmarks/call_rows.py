"""The rows of ``calls``, and what each may cost."""

from __future__ import annotations

from typing import Any

FLOOR, OFF, NOT_SAMPLED, RECORDED = "floor", "off", "not sampled", "autotrace"
ROWS = {
    "function": 400, "coroutine": 400, "method": 400, "object": 200, "item": 8, "llm": 16, "llm without tokens": 40,
    "4 messages": 40, "40 messages": 40, "200 nested messages": 10, "root, not sampled": 400, "call that is off": 1_000,
}  # fmt: skip
"""Row -> calls of a round."""
NAMES = {
    "function": "function, one small argument",
    "coroutine": "coroutine, one small argument",
    "method": "method of a tool, whose object's name is read",
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
TELLS = 0.02
"""Noise that no number of rounds goes below."""
LIMITS = {"method": 1.3, "200 nested messages": 0.2, "root, not sampled": 0.25}
"""The same, of rows that have limits of their own: more is recorded of a method than at the commit before, which read
no name of a tool's object; the two others became cheaper, and stay so (a root that is not sampled took 4.6 us)."""
FLOORS = {"llm": 3.0}
"""Times the floor that a row may cost: three copies of its token lists. Where the commit before costs more than that,
so may this one: between one CPU and the next this ratio of one and the same commit went from 2.3 to 3.5."""


def dearer(made: dict[str, dict[str, Any]]) -> list[str]:
    """Rows that cost more than they may."""
    found = []
    for row, each in made.items():
        noise = max(each["noise"], TELLS)
        said = f"{NAMES[row]}: {each['now_us']:.2f} us, "
        if each["x_before"] > LIMITS.get(row, LIMIT) * (1 + noise):
            found.append(
                f"{said}{each['x_before']:.2f} x the commit before ({each['before_us']:.2f} us), "
                f"allowed {LIMITS.get(row, LIMIT):g} x beyond a noise of {noise:.0%}"
            )
        if row in FLOORS:
            allowed = max(FLOORS[row], each["before_us"] / each["floor_us"] * LIMIT * (1 + noise))
            if each["x_floor"] > allowed:
                found.append(f"{said}{each['x_floor']:.2f} x the floor, allowed {allowed:.2f} x")
    return found
