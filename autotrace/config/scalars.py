"""Single values as every encoder and every backend takes them."""

from __future__ import annotations

import hashlib
import re
from typing import Any

MAX_INTEGER = (1 << 63) - 1
"""What the encoders and databases have room for."""
LONGEST_INTEGER = 4096
"""Bits of an integer that is still written out."""
_CUT = re.compile(r"… \((\d{1,15}) characters more\)\Z")


def readable(text: str) -> str:
    """``text`` without lone surrogates, which no backend and no file can encode."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()


def integer(value: Any) -> Any:
    """``value`` for an encoder that knows 64 bits: as it is, as text, or as its size."""
    if type(value) is not int or value.bit_length() < 64:
        return value
    return str(value) if value.bit_length() < LONGEST_INTEGER else too_long(value)


def too_long(value: int) -> dict[str, str]:
    """What stands for an integer that is not written out: that takes time in the square of its length."""
    return {"…": f"int of {int.bit_length(value)} bits"}


def shortened(text: str, length: int) -> str:
    """The first ``length`` characters of ``text``, and how many more there are; of a shortened text, too."""
    end, more = cut(text)
    length = min(length, end)
    return f"{text[:length]}… ({end - length + more} characters more)"


def cut(text: str) -> tuple[int, int]:
    """Where ``shortened`` cut ``text``, and how many characters it left out: ``(len(text), 0)`` where it did not."""
    match = _CUT.search(text, max(0, len(text) - 40))
    return (len(text), 0) if match is None else (match.start(), int(match[1]))


def fraction(seed: Any, *identity: Any) -> float:
    """A number in [0, 1) fixed by its arguments."""
    text = "\x1f".join(str(part) for part in (seed, *identity))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little") / 2**64
