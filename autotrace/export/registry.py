"""The export formats by name. A format is one module of this folder with an object ``FORMAT``, and one line here."""

from __future__ import annotations

import importlib

from autotrace.export.format import Format

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
