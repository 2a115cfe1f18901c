"""Count ids of our own. Never use ``random``: training seeds ``random`` on every rank, and ids would repeat across
processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

_MASK = (1 << 63) - 1


def _series() -> Callable[[], int]:
    start = int.from_bytes(os.urandom(8), "little") & _MASK
    return itertools.count(start or 1).__next__


next_span_id = _series()
"""Returns the next span id: counts up from a random 63-bit number of this process (30 ns; ``os.urandom`` would be
450)."""


_process = os.urandom(8)
_next_trace = _series()
_SPREAD = 0x9E3779B97F4A7C15
"""Spreads counts. The factor is odd, so multiplying modulo 2**64 maps no two counts to the same number. Neighbours
differ in the first digits, and people type the first digits."""


def new_trace_id() -> bytes:
    """Return 16 bytes: a spread count from a random start, then 8 random bytes of this process. The id is random rather
    than derived from (uid, session): a resumed run or a retried rollout can never overwrite delivered data. The shipper
    joins by the attributes instead."""
    return (_next_trace() * _SPREAD & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") + _process


def reseed() -> None:
    """Start other series; called in a forked child."""
    global next_span_id, _next_trace, _process
    next_span_id, _next_trace, _process = _series(), _series(), os.urandom(8)
