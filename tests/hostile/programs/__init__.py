"""The programs: ``main(variant)`` of each does its work and ends with ``report(...)``. Standard library only."""

from __future__ import annotations

import json
import os
from typing import Any

MARK = "hostile-report "


def report(**facts: Any) -> None:
    """Say what happened, as the last line of stdout."""
    print(MARK + json.dumps(facts), flush=True)


def run_folder() -> str | None:
    """The folder of the run that traces this process; None without one."""
    return os.environ.get("AUTOTRACE_RUN_FOLDER")


def history(messages: int, size: int = 60) -> list[dict[str, Any]]:
    """A conversation with nested metadata, made anew."""
    return [
        {
            "role": ("user", "assistant", "tool")[number % 3],
            "content": f"message {number} " + "x" * size,
            "metadata": {"turn": number, "tags": ["a", "b"], "usage": {"in": number, "out": 2 * number}},
        }
        for number in range(messages)
    ]


def peak_memory() -> int:
    """Most bytes that this process held so far."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
