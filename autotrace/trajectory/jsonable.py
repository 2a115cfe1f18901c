"""Any decoded value as plain JSON, and as numbers of columns: a record holds values of other people's programs, of any
type.

There is one conversion. Where JSON leaves a choice (what a long list, a text, a number that is not finite becomes), a
subclass decides: ``sinks.payload`` for what people are shown, ``record.record_writer`` for what a record may hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from autotrace.config.scalars import readable as text


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


def finite(value: Any) -> float | None:
    """``value`` as a float, if it is a finite number."""
    measured = number(value)
    return measured if measured is not None and math.isfinite(measured) else None


def word(value: Any) -> str | None:
    """``value`` as text, None for None and for what has parts."""
    return None if value is None or isinstance(value, (dict, list)) else text(str(value))


def loaded(written: str, otherwise: Any = None) -> Any:
    """The value that ``written`` is as JSON; ``otherwise`` where it is no JSON."""
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return otherwise


SLACK, A_BYTE = 128 << 20, 24
"""Bytes that the values of JSON may take here: so many, and so many for each byte of JSON."""
_PARTS = {b"{": 500, b"[": 120, b",": 64}
"""Mark in JSON -> bytes that what the mark begins takes here at most, twice: read, and made plain."""
EXPANDS = "its values would take far more memory than its bytes"


def expands(data: bytes) -> bool:
    """Whether the values of ``data``, which is JSON, may take more than ``SLACK`` and ``A_BYTE`` allow."""
    allowed = SLACK + A_BYTE * len(data)
    return len(data) * max(_PARTS.values()) > allowed < sum(size * data.count(mark) for mark, size in _PARTS.items())


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of ``values`` that are not None."""
    return {name: value for name, value in values.items() if value is not None}


__all__ = ["MAX_DEPTH", "Conversion", "jsonable", "text"]

MAX_DEPTH = 32


class Conversion:
    """Converts values to dicts with text keys, lists, text, finite numbers, booleans and None."""

    def __call__(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """``value`` converted; what is nested deeper than ``depth`` is left out."""
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
    """The conversion for files and commands: as ``Conversion`` makes it, and quick about what is plain already, nearly
    all of what is read back from a record."""
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
"""Types of values that stay what they are."""
_NUMBERS = frozenset({float})
"""A sum of floats is finite only if each of them is."""
