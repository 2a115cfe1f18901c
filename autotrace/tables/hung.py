"""Find the calls in which the open trajectories of a living run are, and the trajectories that hang: the innermost call
is open far longer than similar calls took."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from autotrace.insight import profile
from autotrace.insight.profile import Mark, Profile
from autotrace.tables.columns import ID
from autotrace.tables.conditions import EVERY, Condition
from autotrace.tables.errors import Gone
from autotrace.tables.reader import Reader
from autotrace.trajectory.model import OPEN, Span, Trajectory, ancestors
from autotrace.trajectory.tool_calls import tool_name

SECONDS, TIMES = 60.0, 10.0
"""Seconds, and multiples of the duration of nearly all similar calls, after which an open call hangs."""
ALONE = 120.0
"""Seconds after which an open call hangs if fewer than ``FEW`` similar calls have ended."""
FEW, NEARLY_ALL = 4, 0.95
MAX_OPEN, MAX_ENDED = 500, 2000
"""Number of open trajectories that are examined, oldest first, and of ended trajectories for comparison, newest
first."""


_ENDED = ("profile", "reward_s", "duration_s")
IS_OPEN = Condition("status = ? AND NOT complete", (OPEN,), frozenset({"status", "complete"}))


class RolloutCall(NamedTuple):
    """Describe where an open trajectory is. Times are nanoseconds since the epoch."""

    since_ns: int
    """Start of the trajectory."""
    turns: int
    inside_ns: int
    """Start of the open call that began last."""
    call: Span
    """The agent's tool call around that call, else that call."""

    @property
    def name(self) -> str:
        """Return the tool's name, else the name of the call."""
        return tool_name(self.call) if self.call.role == "tool" else self.call.shown_name


def open_call(trajectory: Trajectory) -> RolloutCall | None:
    """Return where a trajectory is; None for a trajectory that has ended."""
    if trajectory.status != OPEN:
        return None
    # the open call that began last
    inside = next((span for span in reversed(trajectory.spans) if span.status == OPEN), trajectory.root)
    return RolloutCall(trajectory.root.start_ns, trajectory.turns, inside.start_ns, _tool_around(trajectory, inside))


def open_calls(reader: Reader, wanted: Condition = EVERY) -> dict[str, RolloutCall]:
    """Return trace id -> where the trajectory is, for the open trajectories that satisfy ``wanted``, oldest first;
    empty for a run that has ended."""
    found: dict[str, RolloutCall] = {}
    for row in reader.select(IS_OPEN & wanted, ID, limit=MAX_OPEN) if reader.run.living else ():
        with contextlib.suppress(Gone, KeyError):
            one = open_call(reader.one(row, texts=False))
            if one is not None:
                found[row.trace_id] = one
    return found


def hanging(reader: Reader, now_ns: int | None = None) -> dict[str, Mark]:
    """Return trace id -> the call that hangs and the duration, oldest first; empty for a run that has ended.
    ``now_ns``: for tests; by default the current time."""
    now = time.time_ns() if now_ns is None else now_ns
    begun = Condition("start_ns < ?", (now - int(SECONDS * 1e9),), frozenset({"start_ns"}))
    found: dict[str, Mark] = {}
    usual: _Usual | None = None
    for trace_id, one in open_calls(reader, begun).items():
        seconds = (now - one.inside_ns) / 1e9
        if seconds < SECONDS:
            continue
        if usual is None:
            ended = Condition("complete AND end_ns IS NOT NULL", (), frozenset({"complete", "end_ns"}))
            usual = _Usual(reader.select(ended, _ENDED, descending=True, limit=MAX_ENDED))
        if seconds >= usual.limit(one.call):
            found[trace_id] = Mark("AT-HUNG", one.turns or None, None, f"in {one.name} for {seconds:,.0f} s", one.name)
    return found


def _tool_around(trajectory: Trajectory, inside: Span) -> Span:
    """Return the agent's tool call around ``inside``; ``inside`` itself without a tool call."""
    tools = [above for above in ancestors(inside, trajectory.by_id) if above.role == "tool"]
    return tools[-1] if tools else inside


class _Usual:
    """Collect the durations of ended calls: tools by name, turns, rewards, trajectories."""

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
        """Return the seconds after which an open call hangs."""
        kind = f"tool {tool_name(span)}" if span.role == "tool" else "llm" if span.role == "engine" else span.role
        seconds = sorted(self._seconds.get(kind if kind in self._seconds else "", ()))
        if len(seconds) < FEW:
            return max([ALONE, *(TIMES * one for one in seconds)])
        return max(SECONDS, TIMES * seconds[int(NEARLY_ALL * (len(seconds) - 1))])


def sentences(hung: dict[str, Mark], shown: int = 3) -> list[str]:
    """Describe for people the trajectories that hang, and the call in which each trajectory hangs."""
    if not hung:
        return []
    which = "; ".join(f"{trace_id[:12]} {mark.note}" for trace_id, mark in list(hung.items())[:shown])
    count = "1 trajectory hangs" if len(hung) == 1 else f"{len(hung):,} trajectories hang"
    return [f"{count}: {which}{'; ...' if len(hung) > shown else ''} (autotrace diagnose --code AT-HUNG lists them)"]
