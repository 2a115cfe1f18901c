"""Parquet: the tables of ``tables.schema``, one file a table, step and delivery, merged as the run goes on."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from autotrace.run import files, layout
from autotrace.run.info import RunInfo
from autotrace.sinks.parquet import location
from autotrace.sinks.parquet.dataset import Dataset
from autotrace.sinks.parquet.owner import claim
from autotrace.sinks.parquet.store import Store, store
from autotrace.sinks.protocol import SinkError, Unavailable
from autotrace.tables import arrow
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")
LONGEST_WAIT = 60.0
"""Seconds for another shipper of this run to end its merge."""


class ParquetSink:
    """See the module."""

    name = "parquet"

    def __init__(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> None:
        self.sent = 0
        self._info = info
        self._lock = run_folder / layout.PARQUET_LOCK
        self._memory = memory
        root = location.root_for(run_folder, memory)
        self._project: str | None = info.project
        self._store: Store = store(root, run_folder)
        self._dataset: Dataset | None = None
        memory["place"] = root
        memory["open_with"] = f'autotrace sql "FROM trajectories" {run_folder}'

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """See ``Sink``. They are visible together, in all tables."""
        if self._dataset is None:
            claim(self._store, self._info)
            self._dataset = Dataset(self._store, self._project_of(trajectories), self._info.run_id, self._exclusive)
        self.sent += self._dataset.write(trajectories)

    def _project_of(self, trajectories: Sequence[Trajectory]) -> str:
        """The run's project; what it is called when the first trajectory is delivered stays."""
        if "project" not in self._memory:
            reported = (trajectory.attributes.get("project_name") for trajectory in trajectories)
            self._memory["project"] = str(self._project or next((name for name in reported if name), None) or "")
        return self._memory["project"]

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """No other shipper of this run replaces files now."""
        try:
            fd = files.shared(self._lock)
        except OSError as error:
            raise Unavailable(f"cannot lock {self._lock}: {error.strerror}") from error
        try:
            deadline = time.monotonic() + LONGEST_WAIT
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise Unavailable(f"another shipper of this run holds {self._lock}") from error
                    time.sleep(0.05)
            yield
        finally:
            os.close(fd)

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Take the project's name."""
        if name == "config" and isinstance(value.get("project_name"), str):
            self._project = self._project or value["project_name"]

    def size(self, trajectory: Trajectory) -> int:
        """Bytes of its rows."""
        return sum(table.nbytes for table in arrow.tables([trajectory]).values())

    def page(self, trajectory: Trajectory) -> str | None:
        """A file has no pages."""
        return None

    def close(self) -> None:
        """Merge the small files of the last steps."""
        try:
            if self._dataset is not None:
                self._dataset.merge_all()
        except SinkError as error:
            _log.warning("small files of %s were not merged: %s", self._store.root, error)
        except Exception:
            _log.exception("small files of %s were not merged", self._store.root)
        finally:
            self._store.close()
