"""Sizes as people write them: ``500MB``."""

from __future__ import annotations

from collections.abc import Mapping

UNITS: Mapping[str, int] = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_bytes(text: str) -> int:
    """``500MB`` as a number of bytes. Raises ``ValueError`` with one sentence."""
    digits = text.strip().rstrip("BKMGTbkmgt ")
    unit = text.strip()[len(digits) :].strip().upper()
    try:
        return int(float(digits) * UNITS[unit])
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not a size; write for example 500MB or 1GB") from None
