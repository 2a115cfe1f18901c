"""A line on stderr that says how far a long command is; on a terminal only, and only once it takes long."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from autotrace.cli.terminal import console

if TYPE_CHECKING:
    from rich.progress import Progress

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


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Something to call with how many of how many are ``what``; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    with _bar(what) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def _counted(first: Item, others: Iterator[Item], done: int, total: int, what: str) -> Iterator[Item]:
    with _bar(what) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield first
        bar.advance(task)
        for item in others:
            yield item
            bar.advance(task)


def _bar(what: str) -> Progress:
    from rich import progress

    return progress.Progress(
        progress.TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {what}"),
        progress.BarColumn(),
        progress.TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
    )
