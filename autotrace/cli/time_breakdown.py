"""Where the time went, for a terminal: ``autotrace ls --sort duration`` and the heading of ``autotrace show``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotrace.cli.listing import Column
from autotrace.cli.terminal import STATUS_STYLE, one_line, safe, seconds
from autotrace.trajectory.durations import Times

PARTS = {
    "queue_s": "queue",
    "prefill_s": "prefill",
    "decode_s": "decode",
    "way_s": "way",
    "llm_s": "llm",
    "tool_s": "tool",
    "reward_s": "reward",
    "other_s": "other",
}
"""Field of ``Times`` -> what it is called here."""
LEGEND = (
    "queue: waiting for the engine; prefill, decode: the engine at work; way: router, Ray, HTTP; "
    "llm: calls of a model whose engine is not traced; "
    "other: the agent's own work and waiting"
)


def columns(rows: Sequence[Any], id_length: int) -> list[Column]:
    """One line a trajectory, its duration split up; parts that none of them has are left out."""
    times = {field: [getattr(row, field) for row in rows] for field in PARTS}
    parts = {field: name for field, name in PARTS.items() if any(value is not None for value in times[field])}
    statuses = [safe(row.status) for row in rows]
    return [
        Column("trace", [row.trace_id[:id_length] for row in rows]),
        Column("step", ["" if row.step is None else str(row.step) for row in rows], True),
        Column("sample", [one_line(row.sample_index or "") for row in rows], True),
        Column("n", ["" if row.rollout_n is None else str(row.rollout_n) for row in rows], True),
        Column("turns", [str(row.llm_calls) for row in rows], True),
        Column("duration", [_shown(row.duration_s) for row in rows], True),
        *(Column(name, list(map(_shown, times[field])), True) for field, name in parts.items()),
        Column("status", statuses, styles=lambda number: STATUS_STYLE.get(statuses[number], "")),
    ]


def sentence(times: Times) -> str:
    """``decode 8.2 s, tool 3.1 s, ...``, the largest first, without what took no time."""
    durations: Mapping[str, float] = times.measured()
    parts = sorted(((value, PARTS[name]) for name, value in durations.items() if value >= 0.0005), reverse=True)
    return ", ".join(f"{name} {_shown(value)}" for value, name in parts)


def _shown(value: float | None) -> str:
    return "" if value is None else seconds(round(value * 1e9))
