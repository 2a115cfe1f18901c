"""Waiting for what a test is about. A machine with other work may take its time: the deadline only ends a hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE = 600.0
"""Seconds; less than ``timeout`` in ``pyproject.toml``, so that what was waited for is reported."""


def until(condition: Callable[[], T], meanwhile: tuple[type[Exception], ...] = ()) -> T:
    """What ``condition`` returns as soon as that is true. Until then it may raise ``meanwhile``."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            if found := condition():
                return found
        except meanwhile:
            pass
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
