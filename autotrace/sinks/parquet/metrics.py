"""The table ``metrics``: one file a step, which replaces itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from autotrace.run.info import RunInfo
from autotrace.sinks.parquet import location
from autotrace.sinks.parquet.owner import claim
from autotrace.sinks.parquet.store import Store, failed, store
from autotrace.sinks.parquet.writing import TableFile
from autotrace.tables import arrow
from autotrace.tables.metrics import METRICS, OfStep, rows

NAME = f"metrics{location.SUFFIX}"
_PROJECT = "project_of_metrics"


class MetricsWriter:
    """See ``Reporter``."""

    def __init__(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> None:
        self._info = info
        self._memory = memory
        self._project = info.project
        self._store: Store = store(location.root_for(run_folder, memory), run_folder)
        self._claimed = False

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Take the project's name, as the sink does."""
        if name == "config" and isinstance(value.get("project_name"), str):
            self._project = self._project or value["project_name"]

    def report(self, step: int, metrics: Mapping[str, float], page: str) -> None:
        """Tables have no place for it: what it says follows from them."""

    def logged(self, step: int, numbers: OfStep) -> None:
        """See ``Reporter``."""
        if _PROJECT not in self._memory:  # what it is called when the first step is stored stays
            self._memory[_PROJECT] = self._memory.get("project") or self._project or ""
        at = folder(self._memory[_PROJECT], self._info.run_id, step)
        if not self._claimed:
            claim(self._store, self._info)
            self._store.sweep(os.path.dirname(at))
            self._claimed = True
        path = f"{at}/{NAME}"
        parts: dict[str, Path] = {}
        try:
            write(self._store, path, self._info.run_id, {step: numbers}, parts)
            self._store.commit(parts)
        finally:
            self._store.discard(parts)

    def close(self) -> None:
        """See ``Reporter``."""
        self._store.close()


def folder(project: str | None, run_id: str, step: int) -> str:
    """Where the file of a step is."""
    return location.partition(METRICS.name, project, run_id, step)


def write(at: Store, path: str, run_id: str, steps: Mapping[int, OfStep], parts: dict[str, Path]) -> None:
    """Write the part for ``path`` into ``parts``. Raises ``SinkError``."""
    part = parts[path] = at.part(path)
    try:
        with TableFile(part, METRICS.name, run_id) as file:
            file.add(arrow.from_rows(METRICS.columns, rows(run_id, steps)))
    except (OSError, pa.ArrowException) as error:
        raise failed(at.root, error) from error
