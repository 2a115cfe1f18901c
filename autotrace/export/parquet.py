"""Write ``parquet``, the tables of ``docs/data.md``, as the backend of that name: ``PROJECT/RUN/tables/``."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from pathlib import Path

from autotrace.export.format import ExportError, Written
from autotrace.run import files, layout
from autotrace.tables.metrics import OfStep
from autotrace.tables.storage import Copy, Storage, StorageError, is_url, place, root_of, segment
from autotrace.tables.writer import TableWriter
from autotrace.trajectory.jsonable import integer, word
from autotrace.trajectory.model import Trajectory

_NONE: Mapping[str, Mapping[int, OfStep]] = {}
AT_ONCE = 200
"""Trajectories in memory."""


def write(trajectories: Iterable[Trajectory], out: str, metrics: Mapping[str, Mapping[int, OfStep]] = _NONE) -> Written:
    """See ``format.Write``. An earlier export of the same run is replaced. ``metrics``: run -> steps; only steps with a
    trajectory in ``trajectories`` are written."""
    written = Written()
    at = place(root_of(out))
    made = _beside(at)
    try:
        copies = []
        for number, (run_id, of_run) in enumerate(groupby(trajectories, key=lambda one: one.run_id)):
            own = made / str(number)  # a run's name is data: never a folder's name
            project, count = _write_run(own, run_id, of_run, metrics.get(run_id, {}))
            folder = f"{segment(project, 'no-project')}/{segment(run_id, 'run')}"
            _check_free(at, folder)
            copies.append(Copy(own, at, folder))
            written.trajectories += count
        for copy in copies:
            copy.update()
        written.files = sum(1 for _ in made.rglob("*.parquet"))
    except StorageError as error:
        raise ExportError(str(error)) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return written


def _beside(at: Storage) -> Path:
    """Create a folder for unfinished files: beside a local place, whose disk has the room, else in the system's
    folder."""
    parent = None if is_url(at.root) else Path(at.root).parent
    return Path(files.temporary_folder(".autotrace-export-", parent if parent and parent.is_dir() else None))


def _write_run(
    folder: Path, run_id: str, trajectories: Iterator[Trajectory], metrics: Mapping[int, OfStep]
) -> tuple[str | None, int]:
    """Write a run; return the project and the number of trajectories."""
    tables, project, count = TableWriter(folder, run_id), None, 0
    steps: set[int] = set()
    while chunk := list(islice(trajectories, AT_ONCE)):
        project = project or word(chunk[0].attributes.get("project_name"))
        steps |= {step for one in chunk if (step := integer(one.attributes.get("step"))) is not None}
        tables.write(chunk)
        count += len(chunk)
    for step in sorted(steps & metrics.keys()):
        tables.write_metrics(step, metrics[step])
    tables.finish()
    return project, count


def _check_free(at: Storage, folder: str) -> None:
    if at.read(f"{folder}/{layout.RUN_JSON}") is not None:
        raise ExportError(f"{at.root} has this run already: the backend parquet writes it there; name another folder")
