"""How the engine's rollouts are found among the recorded ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def begins(prompt: Sequence[int], answer: Sequence[int]) -> str:
    """By which a rollout is known: its first prompt, and how its first answer begins."""
    return hashlib.sha256(repr((list(prompt), list(answer[:24]))).encode()).hexdigest()[:24]
