"""What an export format is, and the formats by name: a module of this folder with a function ``write``, and one line
here."""

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


Write = Callable[..., Written]
"""``write(trajectories, out)`` writes all of them below the folder ``out``, or to what ``out`` means to this format (a
file, ``STDOUT``, a URL). The files are there whole, or as they were before: whatever is raised, by the iterator too,
leaves nothing half written. The iterator is read once, and no trajectory need be kept. Nothing is written for no
trajectory. Raises ``ExportError`` and ``OSError``."""

FORMATS = {
    "jsonl": "everything, as the backend of that name writes it: one JSON object a line",
    "parquet": "the tables of `autotrace help data`, for polars, DuckDB, Ray Data; --out may be s3://bucket/folder",
    "verl": "veRL's rollout dump: one {step}.jsonl a step, for its rollout viewer",
    "sft": "rows of messages and tools, one a trajectory, for supervised fine-tuning",
    "dpo": "the best and the worst rollout of each group, as pairs for preference training",
    "atif": "Harbor's Agent Trajectory Interchange Format: one JSON file a trajectory, with token ids",
}
"""Name, which is that of the module -> what it writes; the modules are imported when used."""


TABLES = "parquet"
"""The format that needs Arrow. There, ``out`` may be a URL (``s3://bucket/folder``), and ``write`` takes an argument
``metrics``: step -> what the trainer logged of it (``tables.metrics.OfStep``)."""


def get(name: str) -> Write:
    """``write`` of the format called ``name``, which is one of ``FORMATS``."""
    write: Write = importlib.import_module(f"{__package__}.{name}").write
    return write


def help_text() -> str:
    """All formats in one line, for ``--help``."""
    return "; ".join(f"{name}: {what}" for name, what in FORMATS.items())
