"""What hangs in a run that goes on: trajectories whose innermost call is open for far longer than calls like it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from autotrace.insight import profile
from autotrace.insight.profile import Mark, Profile
from autotrace.tables.columns import ID
from autotrace.tables.conditions import Condition
from autotrace.tables.errors import Gone
from autotrace.tables.reader import Reader
from autotrace.trajectory.model import OPEN, Span, Trajectory, ancestors
from autotrace.trajectory.tool_calls import tool_name

SECONDS, TIMES = 60.0, 10.0
"""A call hangs if it is open for so long, and so many times as long as nearly all calls like it took."""
ALONE = 120.0
"""... or for so long where fewer than ``FEW`` calls like it have ended."""
FEW, NEARLY_ALL = 4, 0.95
MAX_OPEN, MAX_ENDED = 500, 2000
"""Open trajectories that are looked into, the oldest first, and the last ones that ended, with which they are
compared."""


_ENDED = ("profile", "reward_s", "duration_s")


def hanging(reader: Reader, now_ns: int | None = None) -> dict[str, Mark]:
    """Trace id -> in which call it hangs and since when, the oldest first; nothing of a run that has ended. ``now_ns``:
    for tests; by default now."""
    if not reader.run.living:
        return {}
    now = time.time_ns() if now_ns is None else now_ns
    before = now - int(SECONDS * 1e9)
    begun = Condition(
        "status = ? AND NOT complete AND start_ns < ?", (OPEN, before), frozenset({"status", "complete", "start_ns"})
    )
    found: dict[str, Mark] = {}
    usual: _Usual | None = None
    for row in reader.select(begun, ID, limit=MAX_OPEN):
        with contextlib.suppress(Gone, KeyError):
            trajectory = reader.one(row, texts=False)
            # the open call that began last
            inside = next((span for span in reversed(trajectory.spans) if span.status == OPEN), trajectory.root)
            seconds = (now - inside.start_ns) / 1e9
            if inside.status != OPEN or seconds < SECONDS:
                continue
            if usual is None:
                ended = Condition("complete AND end_ns IS NOT NULL", (), frozenset({"complete", "end_ns"}))
                usual = _Usual(reader.select(ended, _ENDED, descending=True, limit=MAX_ENDED))
            call = _tool_around(trajectory, inside)
            if seconds >= usual.limit(call):
                name = tool_name(call) if call.role == "tool" else call.shown_name
                note = f"in {name} for {seconds:,.0f} s"
                found[row.trace_id] = Mark("AT-HUNG", trajectory.turns or None, None, note, name)
    return found


def _tool_around(trajectory: Trajectory, inside: Span) -> Span:
    """The agent's call of a tool that ``inside`` is part of; itself where there is none."""
    tools = [above for above in ancestors(inside, trajectory.by_id) if above.role == "tool"]
    return tools[-1] if tools else inside


class _Usual:
    """How long calls take that end: tools by name, turns, rewards, trajectories."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._seconds: dict[str, list[float]] = {}
        for row in rows:
            known = profile.decode(row.profile) or Profile()
            for tool in known.tools:
                self._add(f"tool {tool.name}", tool.longest)
            for turn in known.turns:
                self._add("llm", turn.seconds)
            self._add("reward", row.reward_s)
            self._add("", row.duration_s)

    def _add(self, kind: str, seconds: float | None) -> None:
        if seconds is not None:
            self._seconds.setdefault(kind, []).append(seconds)

    def limit(self, span: Span) -> float:
        """Seconds from which an open call hangs."""
        kind = f"tool {tool_name(span)}" if span.role == "tool" else "llm" if span.role == "engine" else span.role
        seconds = sorted(self._seconds.get(kind if kind in self._seconds else "", ()))
        if len(seconds) < FEW:
            return max([ALONE, *(TIMES * one for one in seconds)])
        return max(SECONDS, TIMES * seconds[int(NEARLY_ALL * (len(seconds) - 1))])


def sentences(hung: dict[str, Mark], shown: int = 3) -> list[str]:
    """For people: which ones hang, and in what."""
    if not hung:
        return []
    which = "; ".join(f"{trace_id[:12]} {mark.note}" for trace_id, mark in list(hung.items())[:shown])
    count = "1 trajectory hangs" if len(hung) == 1 else f"{len(hung):,} trajectories hang"
    return [f"{count}: {which}{'; ...' if len(hung) > shown else ''} (autotrace diagnose --code AT-HUNG lists them)"]
