"""Our own failures: counted, logged once per place and minute, never raised. After too many a target is switched off.
The one place that tells them from exceptions of the host's, which are raised again."""

from __future__ import annotations

import logging
import time

from autotrace.record.origin import is_hosts

log = logging.getLogger("autotrace")
log.addHandler(logging.NullHandler())

counts: dict[str, int] = {}
"""Failures and drops by reason since the process started; travels with the data in ``Counters.drops``."""

_said: dict[str, float] = {}
PERIOD = 60.0
"""Seconds between two log lines of one place."""


def count(reason: str, number: int = 1) -> None:
    """Add to the counter of ``reason``."""
    counts[reason] = counts.get(reason, 0) + number


def failed(place: str, error: Exception) -> None:
    """Count a failure of ours at ``place``; log its type (never its message: it may quote a prompt) once a minute.

    Raises ``error`` again if it is not ours but the host's (see ``origin``).
    """
    if is_hosts(error):
        raise error
    try:
        count(f"fault:{place}")
        now = time.monotonic()
        if now - _said.get(place, -PERIOD) >= PERIOD:
            _said[place] = now
            log.warning("autotrace failed in %s (%s); the call itself went on", place, type(error).__name__)
    except Exception as again:  # logging handlers of the host may raise
        if is_hosts(again):
            raise
