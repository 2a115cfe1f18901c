"""Tools of smolagents, as its documentation makes them."""

from __future__ import annotations

import smolagents


@smolagents.tool
def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: one number
        b: another
    """
    return a + b


@smolagents.tool
def greet(name: str, loud: bool = False) -> str:
    """Greets.

    Args:
        name: whom
        loud: whether to shout
    """
    return name.upper() if loud else name


def scored(answer: str, memory: object, agent: object = None) -> bool:
    return answer == "5"


CHECKS = [scored]
TOOLS = {tool.name: tool for tool in (add, greet)}
HELD = {
    "add": lambda: (TOOLS["add"](a=2, b=3), add.forward(1, 2), add.to_dict()["code"]),
    "greet": lambda: TOOLS["greet"]("you", loud=True),
    "scored": lambda: [check("5", None) for check in CHECKS],
}
