"""Count our own failures, log each site once a minute, and never raise our failures. After too many failures a target
is switched off. No other module separates our failures from exceptions of the host's, which are raised again."""

from __future__ import annotations

import logging
from collections import Counter, _count_elements  # type: ignore[attr-defined]
from itertools import repeat

from autotrace.config.originals import time
from autotrace.record.origin import is_hosts

log = logging.getLogger("autotrace")
log.addHandler(logging.NullHandler())

counts: Counter[str] = Counter()
"""Counts failures and drops by reason since the process started; travels with the data in ``Counters.drops``."""

_logged_at: dict[str, float] = {}
"""Holds the time of each site's last log line (monotonic seconds)."""
PERIOD = 60.0
"""Holds the seconds between two log lines of a site."""


def count(reason: str, number: int = 1) -> None:
    """Add to the counter of ``reason``, in one step in C: a finalizer or another thread may count in between, and a
    full stack has no room for ``Counter.update``."""
    _count_elements(counts, repeat(reason, number))


def failed(site: str, error: Exception) -> None:
    """Count a failure of ours at ``site`` and log the type once a minute (never the message: a message may quote a
    prompt).

    Raises ``error`` again if ``error`` is the host's and not ours (see ``origin``).
    """
    if is_hosts(error):
        raise error
    if type(error) is RecursionError:  # the host's stack has no room for us
        count("drop:stack")
        return
    try:
        count(f"fault:{site}")
        now = time.monotonic()
        if now - _logged_at.get(site, -PERIOD) >= PERIOD:
            _logged_at[site] = now
            log.warning("autotrace failed in %s (%s); the call itself went on", site, type(error).__name__)
    except Exception as again:  # logging handlers of the host may raise
        if is_hosts(again):
            raise
