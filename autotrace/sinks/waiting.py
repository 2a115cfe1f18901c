"""How long a server asks clients to wait."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime


def retry_after(value: str | None) -> float | None:
    """Seconds of a ``Retry-After`` header, which holds a number or a date; None when it holds neither."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
