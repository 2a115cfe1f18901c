"""A trace of which more may come: which of its calls are open, and when it is complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from autotrace.ship.store.row import Row
from autotrace.spool.records import Close, Open, Record

GRACE = 0.5
"""Seconds of silence before a closed trace counts as complete: processes write every 0.2 s, the engine's side of a call
and the reward may arrive a little after the root's end."""
STRAGGLER_GRACE = 60.0
"""Seconds after which a trace whose root has ended is delivered although a call below it still runs."""


class LiveTrace:
    """What must be in memory about a trace: a few hundred bytes."""

    __slots__ = ("dirty", "open", "root", "root_ended", "row", "tools", "touched")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.open: dict[int, str] = {}
        """Open spans and the process that writes each."""
        self.tools: set[int] = set()
        """Tool calls among them."""
        self.root: int | None = None
        """The root span while it is open."""
        self.root_ended = row.status != "OPEN"
        self.touched = time.monotonic()
        self.dirty = True

    def touch(self) -> None:
        """Something was read."""
        self.touched = time.monotonic()
        self.dirty = True

    def opened(self, span: int, parent: int, process: str, role: str) -> None:
        """A call began."""
        self.open[span] = process
        self.row.spans += 1
        if role == "llm":
            self.row.turns += 1
        elif role == "tool":
            self.row.tool_calls += parent not in self.tools
            self.tools.add(span)

    def closed(self, span: int) -> None:
        """A call ended."""
        self.open.pop(span, None)
        self.tools.discard(span)
        if span == self.root:
            self.root_ended = True

    def replay(self, process: str, records: Iterable[Record]) -> None:
        """Take records that were counted already (the collector was started anew)."""
        ended = []
        for record in records:
            if isinstance(record, Open):
                self.open[record.span] = process
                if not record.parent:
                    self.root = record.span
            elif isinstance(record, Close):
                ended.append(record.span)
        for span in ended:
            self.closed(span)

    def verdict(self, now: float, ended: Callable[[str], bool], over: bool) -> str | None:
        """``complete``, ``final`` (complete, because nobody waits any longer), or None: more is to come."""
        silent = now - self.touched
        if silent < GRACE:
            return None
        running = any(not ended(process) for process in self.open.values())
        if self.row.name and not running:
            return "complete"
        if over or (self.root_ended and silent > STRAGGLER_GRACE):
            return "final"
        return None
