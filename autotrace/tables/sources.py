"""Describe a source of trajectories: a run in its folder, in a folder of tables, or in a file of lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from autotrace.run.info import RunInfo
from autotrace.run.status import Status
from autotrace.tables.errors import Gone
from autotrace.tables.labels import Label
from autotrace.tables.metrics import OfStep
from autotrace.trajectory.model import Trajectory

Lines = Iterator[tuple[Any, ...]]
Steps = tuple[int, int]
"""First and last step."""
STORED = "stored"
"""State of a run that is not in a run folder."""
Delivery = tuple[int | None, str | None, str | None]
"""Time of acknowledgement in ns, page, reason of a rejection."""


class Source:
    """Read the trajectories of a run. A source writes nothing and follows no link."""

    kind = ""
    """Name of the project that recorded the trajectories, if not autotrace."""

    def __init__(self, path: Path, info: RunInfo) -> None:
        self.path = path
        self.info = info

    # -- tables of the run ---------------------------------------------------------------------------------------------

    def files(self, table: str) -> Sequence[str]:
        """Return the Parquet files of ``table`` that count. Other rows come from ``lines`` and ``load``."""
        return ()

    def late_facts(self) -> Sequence[str]:
        """Return the files of ``facts`` that may contain more than the rows of ``trajectories``."""
        return self.files("facts")

    def look_again(self) -> bool:
        """Return whether other files count by now. Raises ``OSError``, ``QueryError``."""
        return False

    def superseded(self) -> Mapping[str, int]:
        """Return trace id -> the smallest version whose rows in files count."""
        return {}

    def lines(self, table: str, columns: Sequence[str], steps: Steps | None, shown: Iterable[str] = ()) -> Lines | None:
        """Return rows that are in no file, limited to ``steps`` if given; None: whole trajectories must be read for the
        rows. A column that is only ``shown`` is None in rows that would have to be read for that column alone."""
        return None

    def ids(self, steps: Steps | None) -> Sequence[str]:
        """Return the trajectories that are in no file."""
        return ()

    def size(self) -> int:
        """Return the approximate bytes of all files."""
        return 0

    def load(self, trace_id: str, *, texts: bool = True) -> Trajectory:
        """Load a whole trajectory, decoded if ``texts``. Raises ``KeyError``, ``Gone`` if only the trajectory's line is
        left."""
        raise NotImplementedError

    def stored(self, trace_ids: Sequence[str]) -> Mapping[str, Trajectory]:
        """Load many trajectories from files at once; trajectories outside the files are missing from the result."""
        return {}

    def step_facts(self, step: int | None = None) -> Mapping[int, OfStep]:
        """Return step -> numbers that the trainer logged: ``metrics``, ``token_facts``."""
        return {}

    @property
    def problem(self) -> str:
        """Return a sentence that a person must know first; empty without a problem."""
        return ""

    # -- the run -------------------------------------------------------------------------------------------------------

    @property
    def living(self) -> bool:
        """Return whether the run goes on."""
        return False

    def binds(self) -> list[tuple[str, dict[str, Any]]]:
        """Return every report about the run, in order: ``config``, ``dataset``, ``tokenizer``, ..."""
        return []

    def decode(self, ids: list[int], key: str = "") -> str | None:
        """Decode token ids of the target ``key``, without redaction; None if no tokenizer can decode."""
        return None

    def status(self) -> Status:
        """Return the progress of the run."""
        return Status(STORED, self.info.run_id, trajectories=len(self.ids(None)))

    def deliveries(self, trace_id: str) -> Mapping[str, Delivery]:
        """Return backend -> the backend's answer about a trajectory."""
        return {}

    def pages(self) -> Mapping[str, str]:
        """Return trace id -> URL of the trajectory's page in a backend, for trajectories with a page."""
        return {}

    def labels(self) -> Mapping[str, Label]:
        """Return trace id -> the label that a person gave."""
        return {}

    def backends(self) -> Mapping[str, Mapping[str, str]]:
        """Return backend -> stored description of the backend: ``place`` (location of the traces), ``open_with`` (a
        command)."""
        return {}

    def fingerprint(self) -> object:
        """Return a value that changes when data is added."""
        return None

    def again(self) -> Source | None:
        """Return a source for another reader if no data was added; None: the folder must be searched again."""
        return None

    def close(self) -> None:
        """Close all opened files."""


@dataclass(frozen=True)
class ReadableRun:
    """Describe a run that can be read."""

    path: Path
    info: RunInfo
    open: Callable[[], Source]
    """Open the run in its current state. Raises ``OSError``, ``QueryError``."""


def within(step: int | None, steps: Steps | None) -> bool:
    """Return whether ``step`` is within ``steps``; None: all steps."""
    return steps is None or (step is not None and steps[0] <= step <= steps[1])


def stored_info(run_id: str, start_ns: int | None) -> RunInfo:
    """Return the info of a run whose ``run.json`` is missing."""
    created = datetime.fromtimestamp(start_ns / 1e9, timezone.utc).isoformat() if start_ns else ""
    return RunInfo(run_id, created, [], "", 0, [])


def assembled(source: Source, steps: Steps | None, texts: bool) -> Iterator[Trajectory]:
    """Yield the trajectories that are in no file and still exist."""
    for trace_id in source.ids(steps):
        with contextlib.suppress(Gone):
            yield source.load(trace_id, texts=texts)
