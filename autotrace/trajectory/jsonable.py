"""Convert any decoded value to plain JSON and to column values: a record holds values of any type from other programs.

There is a single conversion. Where JSON leaves a choice (long lists, texts, numbers that are not finite), a subclass
decides: ``sinks.payload`` for the values that people see, ``record.record_writer`` for the values of a record.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from autotrace.config.scalars import readable as text


def integer(value: Any) -> int | None:
    """Return ``value`` as a whole number of 64 bits, if possible."""
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if -(1 << 63) <= number < 1 << 63 else None


def number(value: Any) -> float | None:
    """Return ``value`` as a float, if ``value`` is a number."""
    try:
        return float(value) if isinstance(value, (bool, int, float)) else None
    except OverflowError:
        return None


LARGEST = 1e100
"""Limit the numbers that count as finite: squares of larger numbers overflow."""


def finite(value: Any) -> float | None:
    """Return ``value`` as a float, if ``value`` is a finite number up to ``LARGEST``."""
    measured = number(value)
    return measured if measured is not None and abs(measured) <= LARGEST else None


def word(value: Any) -> str | None:
    """Return ``value`` as text; None for None, dicts and lists."""
    return None if value is None or isinstance(value, (dict, list)) else text(str(value))


def loaded(written: str, otherwise: Any = None) -> Any:
    """Parse ``written`` as JSON; return ``otherwise`` if ``written`` is not JSON."""
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return otherwise


SLACK, A_BYTE = 128 << 20, 24
"""Bytes of memory that parsed JSON may take: a fixed part, and a part for each byte of JSON."""
_PARTS = {b"{": 500, b"[": 120, b",": 64}
"""Mark in JSON -> maximum bytes of the value that the mark begins, counted twice: parsed, and converted to plain
JSON."""
EXPANDS = "its values would take far more memory than its bytes"


def expands(*texts: bytes) -> bool:
    """Return whether the values of ``texts``, which are JSON, may take more than ``SLACK`` and ``A_BYTE`` allow."""
    size = sum(map(len, texts))
    allowed = SLACK + A_BYTE * size
    return (
        size * max(_PARTS.values())
        > allowed
        < sum(cost * data.count(mark) for data in texts for mark, cost in _PARTS.items())
    )


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``values`` that are not None."""
    return {name: value for name, value in values.items() if value is not None}


__all__ = ["MAX_DEPTH", "Conversion", "jsonable", "text"]

MAX_DEPTH = 32


class Conversion:
    """Convert values to dicts with text keys, lists, text, finite numbers, booleans and None."""

    def __call__(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """Convert ``value``; parts nested deeper than ``depth`` are left out."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self.integer(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else self.not_finite(value)
        if isinstance(value, (bytes, bytearray)):
            return self.bytes(value)
        if depth <= 0:
            return "…"
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self.sequence(value, depth)
        return self.other(value)

    def integer(self, value: int) -> Any:
        return value

    def text(self, value: str) -> str:
        return text(value)

    def not_finite(self, value: float) -> Any:
        return str(value)

    def bytes(self, value: bytes | bytearray) -> Any:
        return f"{len(value)} bytes"

    def mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        return {text(str(key)): self(item, depth - 1) for key, item in value.items()}

    def sequence(self, value: Any, depth: int) -> Any:
        return [self(item, depth - 1) for item in value]

    def other(self, value: Any) -> Any:
        return text(str(value))


_conversion = Conversion()


def jsonable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Convert a value for files and commands: same result as ``Conversion``, but fast for plain values, which are
    nearly all values in a record."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else text(value)
    if kind in _SAME or (kind is float and math.isfinite(value)):
        return value
    if depth > 0:
        if kind is dict:
            return {
                key if type(key) is str and key.isascii() else text(str(key)): (
                    item if (of := type(item)) in _SAME or (of is str and item.isascii()) else jsonable(item, depth - 1)
                )
                for key, item in value.items()
            }
        if kind is list:
            kinds = set(map(type, value))
            if kinds <= _SAME or (kinds <= _NUMBERS and math.isfinite(sum(value))):
                return value.copy()
            return [jsonable(item, depth - 1) for item in value]
    return _conversion(value, depth)


_SAME = frozenset({type(None), bool, int})
"""Types of values that stay unchanged."""
_NUMBERS = frozenset({float})
"""Types whose sum shows whether all values are finite: a sum of floats is finite only if every float is finite."""
