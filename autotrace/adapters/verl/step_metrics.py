"""veRL: the metrics of a step as it logs them (``Tracking.log``, with any logger or none), and beside them those that
follow from the log-probabilities that were looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotrace.adapters.verl import token_facts
from autotrace.record import statements

MOST = 2_000
"""Metrics of one step."""


def logged(result: Any, given: Mapping[str, Any]) -> None:
    """``Tracking.log`` returned."""
    data, step = given.get("data"), given.get("step")
    if not isinstance(data, dict) or not isinstance(step, int) or isinstance(step, bool) or step < -1:
        return
    numbers: dict[str, float] = {}
    for name, value in dict.items(data):
        number = _number(value)
        if number is not None and type(name) is str and len(numbers) < MOST:
            numbers[name] = number
    if numbers:
        statements.step_facts(step, "metrics", numbers)
    totals = token_facts.take_totals()
    if totals:
        statements.step_facts(step, "token_facts", totals)


def _number(value: Any) -> float | None:
    """Of numbers and of numpy's; nothing else is asked."""
    kind = type(value)
    if kind is float or (kind is int and abs(value) < 1 << 53):
        return float(value)
    if kind.__module__ == "numpy" and kind.__name__.startswith(("float", "int", "uint")):
        return float(value)
    return None
