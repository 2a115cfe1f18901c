"""Describe the table ``metrics``: numbers about steps, not about trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from autotrace.tables.columns import Column, Table

SOURCES = {"metrics": "trainer"}
"""Name under which numbers were recorded -> ``source``, where the two differ."""

OfStep = Mapping[str, Mapping[str, float]]
"""Numbers recorded about a step: ``metrics`` or ``token_facts`` -> name -> number."""


class Metric(NamedTuple):
    """Hold a row of ``metrics``."""

    run_id: str
    step: int
    source: str
    name: str
    value: float
    version: int


METRICS = Table("metrics", "a number about a step of training", (
    Column("run_id", "string", "the run", attrgetter("run_id")),
    Column("step", "int64", "training step", attrgetter("step")),
    Column("source", "string", "`trainer`: logged by the trainer; `token_facts`: computed from"
           " [token facts](#token-facts)", attrgetter("source")),
    Column("name", "string", "name of the metric: `actor/entropy`, `critic/score/mean`, ...", attrgetter("name")),
    Column("value", "float64", "the number; infinite and NaN values have no row", attrgetter("value")),
    Column("version", "int64", "counts up when more became known about the step: read the largest version",
           attrgetter("version")),
))  # fmt: skip


def rows(run_id: str, steps: Mapping[int, OfStep], version: int = 1) -> list[Metric]:
    """Return the rows of all ``steps``, in the order of steps."""
    return [
        Metric(run_id, step, SOURCES.get(recorded, recorded), name, value, version)
        for step in sorted(steps)
        for recorded, numbers in steps[step].items()
        for name, value in numbers.items()
    ]


def steps(metrics: Iterable[Mapping[str, object]]) -> dict[int, dict[str, dict[str, float]]]:
    """Convert the rows of a single run back to the numbers of steps."""
    recorded = {source: name for name, source in SOURCES.items()}
    made: dict[int, dict[str, dict[str, float]]] = {}
    for row in metrics:
        step, source, name, value = (row[column] for column in ("step", "source", "name", "value"))
        if isinstance(step, int) and isinstance(value, float):
            made.setdefault(step, {}).setdefault(recorded.get(str(source), str(source)), {})[str(name)] = value
    return made
