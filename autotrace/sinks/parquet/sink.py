"""Copy the tables of the run folder to ``PROJECT/RUN/tables/`` at another place as the tables grow."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.info import RunInfo
from autotrace.sinks import registry
from autotrace.sinks.protocol import Refused, Sink, SinkError, Unavailable
from autotrace.tables.commits import FILE, FOLDER
from autotrace.tables.storage import DEFAULT, Copy, Storage, StorageError, place, root_of, segment
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")


class ParquetSink(Sink):
    """Copies the tables; see the module."""

    name = "parquet"

    def __init__(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> None:
        self.sent = 0
        self._info = info
        self._run_folder = run_folder
        self._memory = memory
        self._project = info.project
        self._place = place(root_for(info, run_folder, memory))
        self._copy: Copy | None = None
        memory["place"] = self._place.root
        memory["open_with"] = f'autotrace sql "FROM trajectories" {shlex.quote(str(run_folder))}'

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Copy everything that was committed since the last call."""
        try:
            if self._copy is None:
                project = self._memory.setdefault("project", self._project or "")  # fixed at the first delivery
                folder = f"{segment(project, 'no-project')}/{segment(self._info.run_id, 'run')}"
                claim(self._place, folder, self._run_folder)
                self._copy = Copy(self._run_folder, self._place, folder)
            self.sent += self._copy.update()
        except StorageError as error:
            raise (Refused if error.refused else Unavailable)(str(error)) from error
        except OSError as error:
            raise Unavailable(f"cannot read the tables of {self._run_folder}: {error.strerror}") from error

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Take the project's name."""
        if name == "config" and isinstance(value.get("project_name"), str):
            self._project = self._project or value["project_name"]

    def close(self) -> None:
        """Copy the last commits, and also numbers about steps, which no trajectory announces."""
        try:
            if (self._run_folder / FOLDER / FILE).exists():
                self.deliver(())
        except SinkError as error:
            _log.warning("the last files were not copied: %s", error)


def root_for(info: RunInfo, run_folder: Path, memory: Mapping[str, str]) -> str:
    """Return the root that a person named, else the earlier place of the run's files, else the folder beside the run.

    Raises ``BackendError`` for another root that only the run folder names.
    """
    by_hand = env.is_by_hand(run_folder)
    if named := (None if by_hand else info.tables) or os.environ.get(env.TABLES):
        return root_of(named)
    root = str(run_folder.absolute().parent / DEFAULT)
    if by_hand and os.path.islink(root):
        raise registry.BackendError(f"{root} is a link, which is not followed; to use it: --tables {root}")
    told = memory.get("place", info.tables)
    if told is None:
        return root
    try:
        return registry.trusted(told, not by_hand, root)
    except registry.BackendError as error:
        raise registry.BackendError(f"{error}; if its Parquet files are there: --tables {told}") from None


def claim(at: Storage, folder: str, run_folder: Path) -> None:
    """Claim the files of this run's name. Raises ``Refused`` if the files are another run's; ``StorageError``."""
    written = at.read(f"{folder}/{layout.RUN_JSON}")
    info = RunInfo.read(run_folder)
    if written is not None:
        try:
            before = msgspec.json.decode(written, type=RunInfo)
        except msgspec.MsgspecError as error:
            raise Refused(f"{at.root}/{folder}/{layout.RUN_JSON} is damaged ({error}); name another folder") from error
        if (before.run_id, before.created, before.host) != (info.run_id, info.created, info.host):
            raise Refused(
                f"{at.root} has files of another run called {before.run_id} (started {before.created} on"
                f" {before.host}); name another folder (--tables)"
            )
    at.put(f"{folder}/{layout.RUN_JSON}", run_folder / layout.RUN_JSON)
