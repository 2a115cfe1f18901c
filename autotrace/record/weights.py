"""Estimate the bytes of a captured value, strings included: the bytes are charged when the value is queued. The
estimate is close from above: a small value counts as if larger, which is cheaper than a measurement.

Only exact builtin types are read, and nothing of the host's is called.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from sys import getsizeof
from typing import Any

from autotrace.record.pickled import Pickled

EVENT_BYTES = 512
"""Counts the memory of a waiting event with a few small values."""
NUMBER_BYTES = 36
"""Counts the bytes of a number of a copied list: 8 for the reference, and the number itself, which the host may drop
meanwhile."""
NODE_BYTES = 256
"""Counts the bytes of an item of a dict with its key, or of a container."""
ITEM_BYTES = 40
"""Counts the bytes of an item of a list."""
SHORT = 256
"""Limits the characters of a text that counts as an item like any other."""
LARGE = 1024
"""Counts the bytes of an argument or result that is worth leaving out."""
NOT_KEPT = {"…": "left out: too much was waiting to be written"}
"""Replaces a large argument or result."""
_SMALL = frozenset({int, float, bool, type(None)})
_TEXTS = frozenset({str, bytes})


def weigh(value: Any) -> int:
    """Estimate the bytes of ``value`` and of all values inside; 0 for a small value."""
    kind = type(value)
    if kind in _SMALL:
        return 0
    if kind in _TEXTS:
        return getsizeof(value) if len(value) > SHORT else 0
    if kind is Pickled:
        return int(value.size)
    total = 0
    containers = [value]
    while containers:
        value = containers.pop()
        kind = type(value)
        total += NODE_BYTES
        if kind is dict:
            total += NODE_BYTES * len(value)
            items = value.values()
        elif kind is list or kind is tuple:
            total += ITEM_BYTES * len(value)
            items = value
        else:
            continue
        for item in items:
            kind = type(item)
            if kind is str or kind is bytes:
                if len(item) > SHORT:
                    total += getsizeof(item)
            elif kind not in _SMALL:
                containers.append(item)
    return total


def without_large(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``values`` with ``NOT_KEPT`` instead of each large value."""
    return tuple(value if weigh(value) <= LARGE else NOT_KEPT for value in values)


def weigh_numbers(numbers: Any) -> int:
    """Return the bytes of a copied list of numbers."""
    return len(numbers) * (numbers.itemsize if type(numbers) is array else NUMBER_BYTES)
