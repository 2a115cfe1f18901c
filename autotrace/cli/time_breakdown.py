"""Where the time went, for a terminal: ``autotrace ls --sort duration`` and the heading of ``autotrace show``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from autotrace.cli.terminal import line, seconds, status_text
from autotrace.ship.store.row import Row
from autotrace.trajectory.durations import Times

PARTS = {
    "queue_s": "queue",
    "prefill_s": "prefill",
    "decode_s": "decode",
    "way_s": "way",
    "tool_s": "tool",
    "reward_s": "reward",
    "other_s": "other",
}
"""Field of ``Times`` -> what it is called here."""
LEGEND = (
    "queue: waiting for the engine; prefill, decode: the engine at work; way: router, Ray, HTTP; "
    "other: the agent's own work and waiting"
)


def table(rows: Sequence[Row], id_length: int) -> Table:
    """One line a trajectory, its duration split up."""
    listing = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=LEGEND, caption_justify="left")
    for name in ("trace", "step", "sample", "n", "turns", "duration", *PARTS.values(), "status"):
        listing.add_column(name, justify="left" if name in ("trace", "status") else "right", no_wrap=True, max_width=60)
    for row in rows:
        durations = json.loads(row.times)
        listing.add_row(
            Text(row.trace_id[:id_length]),
            line("" if row.step is None else row.step),
            line(row.sample_index or ""),
            line("" if row.rollout_n is None else row.rollout_n),
            Text(str(row.turns)),
            Text(seconds(row.duration_ns)),
            *(Text(_shown(durations.get(name))) for name in PARTS),
            status_text(row.status),
        )
    return listing


def sentence(times: Times) -> str:
    """``decode 8.2 s, tool 3.1 s, ...``, the largest first, without what took no time."""
    durations: Mapping[str, float] = times.measured()
    parts = sorted(((value, PARTS[name]) for name, value in durations.items() if value >= 0.0005), reverse=True)
    return ", ".join(f"{name} {_shown(value)}" for value, name in parts)


def _shown(value: float | None) -> str:
    return "" if value is None else seconds(round(value * 1e9))
