"""The schemas of MLflow's database that trajectories are written into directly, by the revision that the store has.

A revision is listed here after what was written both ways into a store of that release had been read back the same
(``tests/backends/test_mlflow_releases.py``). Into any other, MLflow's own store class writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Schema:
    """What differs between the releases."""

    ascii_only: bool = True
    """Text in ``spans.content`` is escaped; since 3.17 it is not, so that a search finds it."""
    metrics: bool = False
    """``trace_metrics`` holds the token counts of a trace."""
    dimensions: bool = False
    """``spans.dimension_attributes`` holds the model's name."""
    finalized: bool = False
    """A mark in the metadata says that nothing is to be computed from spans any more."""
    generations: bool = False
    """``trace_info`` counts how often its spans were written: the archive's guard."""
    columns: bool = False
    """Name, session and token counts are columns of ``trace_info``, the model a column of ``spans``; ``assessments``
    have a number."""


_3_5 = Schema()
_3_9 = Schema(metrics=True)
_3_10 = Schema(metrics=True, dimensions=True)
_3_12 = Schema(metrics=True, dimensions=True, finalized=True)
_3_13 = Schema(metrics=True, dimensions=True, finalized=True, generations=True)
_3_17 = Schema(ascii_only=False, finalized=True, generations=True, columns=True)

SCHEMAS = {
    "bf29a5ff90ea": _3_5,  # 3.5 to 3.7
    "1bd49d398cd23": _3_5,  # 3.8
    "d3e4f5a6b7c8": _3_9,
    "1b5f0d9ad7c1": _3_10,
    "c3d6457b6d8a": _3_10,  # 3.11
    "7d34483879f0": _3_12,
    "da6fb0208061": _3_13,
    "b7e4c1a90f23": _3_13,  # 3.14
    "6f8d9c3b2a1e": _3_13,  # 3.15
    "b7e2c1a4d9f3": _3_13,  # 3.16
    "dc11669786a5": _3_17,
    "f4a9b2c7d1e6": _3_17,  # 3.18
}
"""Revision -> schema; the comment is the release where it is not the schema's."""

_REVISION, _BEFORE = (re.compile(rf"^{name}\b.*$", re.MULTILINE) for name in ("revision", "down_revision"))
_QUOTED = re.compile(r"""["'](\w+)["']""")


@cache
def installed_revision() -> str:
    """The revision that the installed MLflow makes, read off its migrations: asking MLflow imports its store.

    Raises ``ImportError``.
    """
    spec = find_spec("mlflow")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("No module named 'mlflow'", name="mlflow")
    made, followed = set[str](), set[str]()
    for file in Path(spec.submodule_search_locations[0], "store", "db_migrations", "versions").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        made.update(_QUOTED.findall("".join(_REVISION.findall(text))))
        followed.update(_QUOTED.findall("".join(_BEFORE.findall(text))))
    return ",".join(sorted(made - followed))
