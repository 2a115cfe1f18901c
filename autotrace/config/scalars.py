"""Convert single values to the forms that every encoder and every backend takes."""

from __future__ import annotations

import hashlib
import re
from typing import Any

MAX_INTEGER = (1 << 63) - 1
"""Limits integers to the range of the encoders and databases."""
LONGEST_INTEGER = 4096
"""Limits the bits of an integer that is still written out."""
_CUT = re.compile(r"… \((\d{1,15}) characters more\)\Z")


def readable(text: str) -> str:
    """Return ``text`` without lone surrogates, which no backend and no file can encode."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()


def integer(value: Any) -> Any:
    """Convert ``value`` for an encoder with 64-bit integers: unchanged, as text, or as a size."""
    if type(value) is not int or value.bit_length() < 64:
        return value
    return str(value) if value.bit_length() < LONGEST_INTEGER else too_long(value)


def too_long(value: int) -> dict[str, str]:
    """Describe an integer that is too long to write out, because writing takes time with the square of the length."""
    return {"…": f"int of {int.bit_length(value)} bits"}


def shortened(text: str, length: int) -> str:
    """Return the first ``length`` characters of ``text`` and the number of characters left out. Works on shortened
    texts."""
    end, more = cut(text)
    length = min(length, end)
    return f"{text[:length]}… ({end - length + more} characters more)"


def cut(text: str) -> tuple[int, int]:
    """Find the position where ``shortened`` cut ``text``, and the number of characters left out.

    Returns ``(len(text), 0)`` for a text that was not cut.
    """
    match = _CUT.search(text, max(0, len(text) - 40))
    return (len(text), 0) if match is None else (match.start(), int(match[1]))


def fraction(seed: Any, *identity: Any) -> float:
    """Return a number in [0, 1) that the arguments determine."""
    text = "\x1f".join(str(part) for part in (seed, *identity))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little") / 2**64
