"""Ids of our own. Never from ``random``: training seeds it on every rank, and then ids repeat across processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

_MASK = (1 << 63) - 1


def _series() -> Callable[[], int]:
    start = int.from_bytes(os.urandom(8), "little") & _MASK
    return itertools.count(start or 1).__next__


next_span_id = _series()
"""The next span id: counts up from a random 63-bit number of this process (30 ns; ``os.urandom`` would be 450)."""


_trace_prefix = os.urandom(8)
_next_trace = _series()


def new_trace_id() -> bytes:
    """16 bytes: 8 random ones of this process and a count from a random start. Random rather than derived from
    (uid, session): a resumed run or a retried rollout can never overwrite what was delivered; the collector joins by the
    attributes instead."""
    return _trace_prefix + _next_trace().to_bytes(8, "little")


def reseed() -> None:
    """Start other series; called in a forked child."""
    global next_span_id, _next_trace, _trace_prefix
    next_span_id, _next_trace, _trace_prefix = _series(), _series(), os.urandom(8)
