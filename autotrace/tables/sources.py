"""Where trajectories are: one run in its folder, in a folder of tables, or in a file of lines, asked in one way."""

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
"""The first and the last one."""
STORED = "stored"
"""In place of the state of a run that is not in a run folder."""
Delivery = tuple[int | None, str | None, str | None]
"""Acknowledged at, page, why it was rejected."""


class Source:
    """The trajectories of one run. Everything is read; nothing is written, and no link is followed."""

    kind = ""
    """Who recorded them, in words, if it was another project."""

    def __init__(self, path: Path, info: RunInfo) -> None:
        self.path = path
        self.info = info

    # -- its tables ----------------------------------------------------------------------------------------------------

    def files(self, table: str) -> Sequence[str]:
        """The Parquet files of ``table`` that count. What is not in them comes from ``lines`` and ``load``."""
        return ()

    def late_facts(self) -> Sequence[str]:
        """The files of ``facts`` that may tell more than the rows of their trajectories."""
        return self.files("facts")

    def look_again(self) -> bool:
        """Whether other files count by now. Raises ``OSError``, ``QueryError``."""
        return False

    def superseded(self) -> Mapping[str, int]:
        """Trace id -> the version from which on its rows in files count."""
        return {}

    def lines(self, table: str, columns: Sequence[str], steps: Steps | None, shown: Iterable[str] = ()) -> Lines | None:
        """Rows that are in no file, of some ``steps`` if they are given; None: whole trajectories have to be read for
        them. Those of ``columns`` that are only ``shown`` are None in rows that would have to be read for them alone.
        """
        return None

    def ids(self, steps: Steps | None) -> Sequence[str]:
        """The trajectories that are in no file."""
        return ()

    def size(self) -> int:
        """Bytes of all of it, about."""
        return 0

    def load(self, trace_id: str, *, texts: bool = True) -> Trajectory:
        """A whole one, decoded if ``texts``. Raises ``KeyError``, ``Gone`` where only its line is left."""
        raise NotImplementedError

    def stored(self, trace_ids: Sequence[str]) -> Mapping[str, Trajectory]:
        """Those of them that are in files, which many are read from at once."""
        return {}

    def step_facts(self, step: int | None = None) -> Mapping[int, OfStep]:
        """Step -> what the trainer logged about it: ``metrics``, ``token_facts``."""
        return {}

    @property
    def problem(self) -> str:
        """A sentence that a person has to know first; empty: there is nothing of the kind."""
        return ""

    # -- its run -------------------------------------------------------------------------------------------------------

    @property
    def living(self) -> bool:
        """The run goes on."""
        return False

    def binds(self) -> list[tuple[str, dict[str, Any]]]:
        """Everything reported about the run, in order: ``config``, ``dataset``, ``tokenizer``, ..."""
        return []

    def decode(self, ids: list[int], key: str = "") -> str | None:
        """The text of token ids of the target ``key``, not redacted; None where it cannot be made."""
        return None

    def status(self) -> Status:
        """How far the run is."""
        return Status(STORED, self.info.run_id, trajectories=len(self.ids(None)))

    def deliveries(self, trace_id: str) -> Mapping[str, Delivery]:
        """Backend -> what it said of one trajectory."""
        return {}

    def pages(self) -> Mapping[str, str]:
        """Trace id -> URL of its page in a backend, for those that have one."""
        return {}

    def labels(self) -> Mapping[str, Label]:
        """Trace id -> what somebody called it."""
        return {}

    def backends(self) -> Mapping[str, Mapping[str, str]]:
        """Backend -> what it stored about itself: ``place`` (where the traces are), ``open_with`` (a command)."""
        return {}

    def fingerprint(self) -> object:
        """Another one when something was added."""
        return None

    def again(self) -> Source | None:
        """The same for another reader, if nothing was added; None: it has to be looked for anew."""
        return None

    def close(self) -> None:
        """Close what it has opened."""


@dataclass(frozen=True)
class Place:
    """One run that can be read."""

    path: Path
    info: RunInfo
    open: Callable[[], Source]
    """As it is now. Raises ``OSError``, ``QueryError``."""


def within(step: int | None, steps: Steps | None) -> bool:
    """``step`` is one of ``steps``; None: all are meant."""
    return steps is None or (step is not None and steps[0] <= step <= steps[1])


def stored_info(run_id: str, start_ns: int | None) -> RunInfo:
    """Of a run whose ``run.json`` is not there."""
    created = datetime.fromtimestamp(start_ns / 1e9, timezone.utc).isoformat() if start_ns else ""
    return RunInfo(run_id, created, [], "", 0, [])


def assembled(source: Source, steps: Steps | None, texts: bool) -> Iterator[Trajectory]:
    """Those that are in no file and still there."""
    for trace_id in source.ids(steps):
        with contextlib.suppress(Gone):
            yield source.load(trace_id, texts=texts)
