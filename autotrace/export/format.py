"""What an export format is: a name, what it writes, and how trajectories become its files; and the formats by name.

A format is one module of this folder with an object ``FORMAT``, and one line here."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

STDOUT = "-"
"""As ``out``: to standard output, for formats of one file."""


class ExportError(Exception):
    """An export cannot be made; the message is one sentence for the user. Nothing was written."""


@dataclass
class Written:
    """What an export wrote, and what it left out."""

    trajectories: int = 0
    files: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Why -> how many trajectories."""


@dataclass(frozen=True)
class Format:
    """One form in which trajectories leave a run."""

    name: str
    write: Callable[..., Written]
    """``write(trajectories, out)`` writes all of them below the folder ``out``, or to what ``out`` means to this format
    (a file, ``STDOUT``, a URL). The files are there whole, or as they were before: whatever is raised, by the iterator
    too, leaves nothing half written. The iterator is read once, and no trajectory need be kept. Nothing is written for
    no trajectory. Raises ``ExportError`` and ``OSError``."""
    remote: bool = False
    """``out`` may be a URL (``s3://bucket/folder``)."""
    takes_metrics: bool = False
    """``write`` takes a third argument ``metrics``: step -> what the trainer logged of it (``data.metrics.OfStep``)."""


FORMATS = {
    "jsonl": "everything, as the backend of that name writes it: one JSON object a line",
    "parquet": "the tables of `autotrace help data`, for polars, DuckDB, Ray Data; --out may be s3://bucket/folder",
    "verl": "veRL's rollout dump: one {step}.jsonl a step, for its rollout viewer",
    "sft": "rows of messages and tools, one a trajectory, for supervised fine-tuning",
    "dpo": "the best and the worst rollout of each group, as pairs for preference training",
    "atif": "Harbor's Agent Trajectory Interchange Format: one JSON file a trajectory, with token ids",
}
"""Name, which is that of the module -> what it writes; the modules are imported when used."""


def get(name: str) -> Format:
    """The format called ``name``, which is one of ``FORMATS``."""
    chosen = importlib.import_module(f"{__package__}.{name}").FORMAT
    assert isinstance(chosen, Format)
    return chosen


def help_text() -> str:
    """All formats in one line, for ``--help``."""
    return "; ".join(f"{name}: {what}" for name, what in FORMATS.items())
