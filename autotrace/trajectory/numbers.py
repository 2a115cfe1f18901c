"""Attributes and facts as numbers of columns: what the state, SQL and Parquet can hold of a value."""

from __future__ import annotations

from typing import Any


def integer(value: Any) -> int | None:
    """``value`` as a whole number of 64 bits, if it is one."""
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if -(1 << 63) <= number < 1 << 63 else None


def number(value: Any) -> float | None:
    """``value`` as a float, if it is a number."""
    try:
        return float(value) if isinstance(value, (bool, int, float)) else None
    except OverflowError:
        return None
