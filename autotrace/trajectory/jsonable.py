"""Any decoded value as plain JSON: what a record holds was written by somebody else and may be anything."""

from __future__ import annotations

import math
from typing import Any

MAX_DEPTH = 32


def text(value: str) -> str:
    """``value`` without lone surrogates, which no backend and no file can encode."""
    try:
        value.encode()
        return value
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()


def plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """``value`` made of dicts with text keys, lists, text, finite numbers, booleans and None."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    if depth <= 0:
        return "…"
    if isinstance(value, dict):
        return {text(str(key)): plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth - 1) for item in value]
    return text(str(value))
