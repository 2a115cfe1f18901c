"""``parquet``: the tables of ``docs/data.md``, laid out as the backend of that name does, one file a table and step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import groupby, islice
from pathlib import Path

from autotrace.export.format import ExportError, Format, Written
from autotrace.sinks.parquet import location
from autotrace.sinks.parquet import metrics as of_metrics
from autotrace.sinks.parquet.owner import check_free
from autotrace.sinks.parquet.partition import Partition, new_name
from autotrace.sinks.parquet.store import Store, store
from autotrace.sinks.parquet.writing import TableFile
from autotrace.sinks.protocol import SinkError
from autotrace.tables import arrow
from autotrace.tables.metrics import OfStep
from autotrace.tables.rollout import Rollout, word
from autotrace.tables.schema import OF_TRAJECTORIES
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.numbers import integer

_NONE: Mapping[int, OfStep] = {}
AT_ONCE = 50
"""Trajectories in memory."""


def write(trajectories: Iterable[Trajectory], out: str, metrics: Mapping[int, OfStep] = _NONE) -> Written:
    """See ``Format.write``. What an earlier export wrote of the same steps of the same run is replaced. ``metrics``:
    of the run's steps; written of those that have one of ``trajectories``."""
    written = Written()
    at = store(location.root_of(out, Path()))
    parts: dict[str, Path] = {}
    before: list[str] = []
    try:
        checked: set[str] = set()
        for (run_id, step), of_step in groupby(trajectories, key=_partition):
            if run_id not in checked:
                check_free(at, run_id)
                checked.add(run_id)
            rollouts = (Rollout(trajectory) for trajectory in of_step)
            written.trajectories += _write_step(at, run_id, step, rollouts, metrics, parts, before)
        at.commit(parts, [path for path in dict.fromkeys(before) if path not in parts])
    except SinkError as error:
        raise ExportError(str(error)) from error
    finally:
        at.discard(parts)
        at.close()
    written.files = len(parts)
    return written


def _partition(trajectory: Trajectory) -> tuple[str, int | None]:
    return trajectory.run_id, integer(trajectory.attributes.get("step"))


def _write_step(
    at: Store, run_id: str, step: int | None, rollouts: Iterator[Rollout], metrics: Mapping[int, OfStep],
    parts: dict[str, Path], before: list[str],
) -> int:  # fmt: skip
    """Write the parts of one step; how many trajectories it has."""
    count = 0
    with ExitStack() as stack:
        tables: dict[str, TableFile] = {}
        while chunk := list(islice(rollouts, AT_ONCE)):
            if not count:
                project = word(chunk[0].attributes.get("project_name"))
                if step is not None and (of_step := metrics.get(step)):
                    path = f"{of_metrics.folder(project, run_id, step)}/{of_metrics.NAME}"
                    of_metrics.write(at, path, run_id, {step: of_step}, parts)
                partition = Partition.of(project, run_id, step)
                for name, folder in partition.folders.items():
                    before += at.sizes(folder)
                    path = f"{folder}/{new_name('export')}"
                    parts[path] = at.part(path)
                    tables[name] = stack.enter_context(TableFile(parts[path], name, run_id))
            for name, file in tables.items():
                file.add(arrow.table_of(OF_TRAJECTORIES[name], chunk))
            count += len(chunk)
    return count


FORMAT = Format("parquet", write, remote=True, takes_metrics=True)
