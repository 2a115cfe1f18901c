"""The program ends with much still to be written: every call is delivered."""

from __future__ import annotations

import threading
from typing import Any

from . import history, report


def remember(number: int, messages: list[dict[str, Any]]) -> int:
    """A call with a long history."""
    return number


def tick(number: int) -> int:
    """A small one."""
    return number


def main(variant: str) -> None:
    """``histories`` (2,000 calls with 200 messages), ``small`` (20,000), ``threads`` (8 with 250 calls each)."""
    if variant == "histories":
        messages = history(200)
        calls = 2_000
        for number in range(calls):
            remember(number, messages)
    elif variant == "small":
        calls = 20_000
        for number in range(calls):
            tick(number)
    else:
        calls = 8 * 250
        messages = history(100)
        threads = [
            threading.Thread(target=lambda: [remember(number, messages) for number in range(250)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    report(calls=calls)
