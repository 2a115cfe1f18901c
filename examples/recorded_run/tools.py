"""The agent's tools, as a user of veRL writes them."""

from __future__ import annotations

import sales
from verl.tools.function_tool import function_tool


@function_tool
def query(sql: str) -> str:
    """Run one SELECT on the table sales(shop, jam, month, jars, price), price in euros a jar.

    Args:
        sql: the statement
    """
    return sales.rows_of(sql)


@function_tool
def convert(amount: int, currency: str) -> str:
    """Convert an amount of euros.

    Args:
        amount: whole euros
        currency: such as USD
    """
    return str(round(int(amount) * sales.RATES[currency]))
