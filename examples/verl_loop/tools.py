"""The agent's tools, as a user of veRL writes them."""

from __future__ import annotations

from verl.tools.function_tool import function_tool

STOCK = {"apples": 12, "pears": 30, "plums": 7}


@function_tool
def stock(item: str) -> str:
    """Say how many pieces of an item are in stock.

    Args:
        item: name of the item, in plural
    """
    if item not in STOCK:
        raise LookupError(f"no item called {item!r}")
    return str(STOCK[item])


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: first
        b: second
    """
    return str(int(a) + int(b))
