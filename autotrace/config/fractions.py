"""Choices that come out the same in every process and in a resumed run: a hash under a threshold."""

from __future__ import annotations

import hashlib
from typing import Any


def fraction(seed: Any, *identity: Any) -> float:
    """A number in [0, 1) fixed by its arguments."""
    text = "\x1f".join(str(part) for part in (seed, *identity))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little") / 2**64
