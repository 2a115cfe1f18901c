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


_process = os.urandom(8)
_next_trace = _series()
_SPREAD = 0x9E3779B97F4A7C15
"""Odd, so multiplying by it modulo 2**64 maps no two counts to one: neighbours differ in their first digits, which is
what people type."""


def new_trace_id() -> bytes:
    """16 bytes: a spread count from a random start, then 8 random bytes of this process. Random rather than derived
    from (uid, session): a resumed run or a retried rollout can never overwrite what was delivered; the shipper joins
    by the attributes instead."""
    return (_next_trace() * _SPREAD & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") + _process


def reseed() -> None:
    """Start other series; called in a forked child."""
    global next_span_id, _next_trace, _process
    next_span_id, _next_trace, _process = _series(), _series(), os.urandom(8)
