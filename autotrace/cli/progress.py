"""A line on stderr that says how far a long command is; on a terminal only, and only once it takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console

Item = TypeVar("Item")

QUIET_FOR = 1.0
"""Seconds before the line appears."""


def shown(items: Sequence[Item], what: str) -> Iterator[Item]:
    """``items``, each counted when the next one is asked for; ``what`` they are: ``trajectories``."""
    if not sys.stderr.isatty():
        yield from items
        return
    began = time.monotonic()
    following = iter(items)
    for done, item in enumerate(following):
        if time.monotonic() - began > QUIET_FOR:
            yield from _counted(item, following, done, len(items), what)
            return
        yield item


def _counted(first: Item, others: Iterator[Item], done: int, total: int, what: str) -> Iterator[Item]:
    from rich import progress

    bar = progress.Progress(
        progress.TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {what}"),
        progress.BarColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=total, completed=done)
        yield first
        bar.advance(task)
        for item in others:
            yield item
            bar.advance(task)
