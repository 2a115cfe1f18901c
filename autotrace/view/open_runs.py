"""The runs that the page shows, each read when it is asked for and again when something was added to it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from autotrace.query.stored.place import Place
from autotrace.query.stored.reader import STATE, StoredReader, places
from autotrace.run import layout
from autotrace.run.drain import shipper_alive
from autotrace.run.info import RunInfo
from autotrace.run.losses import losses
from autotrace.run.status import Status
from autotrace.ship import pace
from autotrace.ship.run_reader import RunReader
from autotrace.spool.reader import segments
from autotrace.view import columns, steps

T = TypeVar("T")
ORDERS = 4
"""Versions of a run whose rows are remembered: for pages that have one part and ask for the other."""


class NoSuchRun(KeyError):
    """There is no run of this name; the message is one sentence."""


class OpenRun:
    """One run folder. Its reader is used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = address_of(folder.name)
        self._lock = threading.Lock()
        self._reader: RunReader | None = None
        self._seen: Any = None
        self._version = 0
        self._encoded: tuple[Any, int, dict[str, bytes]] = (None, 0, {})
        """What the run looked like, which version that is, the parts of it that were encoded."""
        self._orders: dict[int, bytes] = {}
        """Ids of the rows of the last versions, as they were answered."""
        self._diagnosing = threading.Lock()
        self._findings: tuple[int, dict[str, Any]] | None = None

    def read(self, question: Callable[[RunReader], T]) -> T:
        """The answer of ``question`` to the run as it is now. Raises what it raises, and what ``RunInfo.read`` does."""
        with self._lock:
            return question(self._current())

    def columns(self, part: str, of: int | None = None) -> tuple[int, bytes]:
        """The columns (``main`` or ``more``), and their version of the run. Both parts of a version have the same
        rows; ``of``: the version that ``more`` is asked for, whatever was added since. What was encoded before does not
        wait for who encodes the other."""
        seen, version, parts = self._encoded
        if part in parts and of in (None, version) and (of == version or seen == self._fingerprint()):
            return version, parts[part]
        with self._lock:
            reader = self._current()
            _, version, parts = self._encoded
            if part == "more":
                return self._more(reader, version if of is None else of)
            if part not in parts:
                parts[part], self._orders[version] = columns.main(reader)
                self._orders = dict(sorted(self._orders.items())[-ORDERS:])
            return version, parts[part]

    def _more(self, reader: RunReader, of: int) -> tuple[int, bytes]:
        """The rest of the rows of version ``of``; of version 0, which does not exist, if that is not remembered."""
        _, version, parts = self._encoded
        rows = self._orders.get(of)
        made = columns.more(reader) if of == version else None
        if made is not None and rows in (None, made.ids):
            parts["more"] = made.body
            return version, made.body
        if rows is None:
            return 0, columns.more(reader).body
        # the run has grown since
        made = columns.more(reader, {rows[at : at + 16].hex() for at in range(0, len(rows), 16)})
        return (of if made.ids == rows else 0), made.body

    def findings(self) -> dict[str, Any]:
        """What is wrong with its steps (``steps.findings``). Takes its time for a large run, so with a reader of its
        own: the run can be asked other things meanwhile."""
        with self._diagnosing:
            with self._lock:
                self._current()
                version = self._version
            if self._findings is None or self._findings[0] != version:
                with contextlib.closing(self._opened(None)) as reader:
                    self._findings = version, steps.findings(reader)
            return self._findings[1]

    def state(self) -> dict[str, Any]:
        """What a person is told about the run first: state, losses, what is odd about it."""
        with self._lock:
            reader = self._current()
            status, info, version = reader.status(), reader.info, self._version
        alive = self._is_served()
        said = _told(status, alive)
        return {
            "run": self.name, "created": info.created, "command": " ".join(info.command), "version": version,
            "state": said, "live": alive or status.living > 0, "trajectories": status.trajectories,
            "open": status.open, "losses": losses(status.drops), "warnings": pace.warnings(status),
            "notes": [*status.notes, *_oddities(status)], "error": status.error,
        }  # fmt: skip

    def _current(self) -> RunReader:
        """A reader of what there is now."""
        seen = self._fingerprint()
        if self._reader is None or seen != self._seen:
            before = self._reader
            self._reader = self._opened(before)
            if before is not None:
                before.close()
            self._seen = seen
            self._version += 1
            self._encoded = (seen, self._version, {})
        return self._reader

    def _opened(self, before: RunReader | None) -> RunReader:
        return RunReader.open(self.folder, before)

    def _is_served(self) -> bool:
        """A shipper is at work."""
        return shipper_alive(str(self.folder)) is True

    def _fingerprint(self) -> tuple[Any, ...]:
        """Changes when something was added. Where a shipper is at work, its state counts: what it has not read is not
        shown."""
        state = self.folder / layout.STATE_DB
        stats: list[Any] = [_changed(state), _changed(Path(f"{state}-wal"))]
        if not self._is_served():
            stats += [(file.name, file.size) for file in segments(self.folder)]
        return tuple(stats)

    def close(self) -> None:
        """Close the state."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
            self._reader = None


class StoredRun(OpenRun):
    """A run that exists as lines of JSON or Parquet files."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.path)
        self.name = address_of(place.run_id)
        self._place = place

    def _opened(self, before: RunReader | None) -> RunReader:
        return StoredReader(self._place)

    def _is_served(self) -> bool:
        return False

    def _fingerprint(self) -> tuple[Any, ...]:
        return tuple((file, _changed(file)) for file in self._place.files())


def _changed(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def address_of(name: str) -> str:
    """A run's name as one part of an address, whatever is in it: folders may be called anything, and so may the runs
    of stored trajectories."""
    spelled = name.encode("utf-8", "backslashreplace").decode().replace("/", "_")
    return spelled if spelled.strip(".") else f"_{spelled}"


def _told(status: Status, alive: bool) -> str:
    if alive:
        return status.state
    return "stopped" if status.state in ("running", "draining") and not status.living else status.state


def _oddities(status: Status) -> list[str]:
    found = []
    if status.torn:
        found.append(f"torn: {status.torn:,} bytes at the ends of segments are not whole records")
    if status.died:
        found.append(f"{status.died} of {status.processes} processes ended without a last record (killed, or crashed)")
    if status.facts_waiting:
        found.append(f"{status.facts_waiting} facts (rewards, ...) belong to no trajectory that was recorded")
    return found


class OpenRuns:
    """The run in ``folder``, all runs of a folder of runs, or those that are stored there as lines or tables. Raises
    ``QueryError`` for a file of something else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stored = {address_of(place.run_id): place for place in places(folder)}
        self._alone = (folder / layout.RUN_JSON).exists()
        self._runs: dict[str, OpenRun] = {}
        self._lock = threading.Lock()

    def listed(self) -> list[dict[str, Any]]:
        """The runs, newest first, from what each one's shipper wrote last: nothing is read for it."""
        found: list[dict[str, Any]] = [
            {"run": name, "created": "", "command": str(place.path), "state": STATE, "trajectories": None}
            for name, place in self._stored.items()
        ]
        for folder in self._folders():
            try:
                info = RunInfo.read(folder)
            except (OSError, msgspec.MsgspecError):
                continue
            run: dict[str, Any] = {"run": address_of(folder.name), "created": info.created}
            run |= {"command": " ".join(info.command), "state": "not assembled", "trajectories": None}
            with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
                status = Status.read(folder)
                alive = shipper_alive(str(folder)) is True
                run |= {"state": _told(status, alive), "trajectories": status.trajectories}
            found.append(run)
        return sorted(found, key=lambda run: (run["created"], run["run"]), reverse=True)

    def run(self, name: str) -> OpenRun:
        """The run called ``name``. Raises ``NoSuchRun``."""
        with self._lock:
            if name not in self._runs:
                if (place := self._stored.get(name)) is not None:
                    self._runs[name] = StoredRun(place)
                    return self._runs[name]
                folder = next((folder for folder in self._folders() if address_of(folder.name) == name), None)
                if folder is None:
                    raise NoSuchRun(f"there is no run {name} here; the start page lists the runs")
                self._runs[name] = OpenRun(folder)
            return self._runs[name]

    def prepare(self) -> None:
        """Encode what a page of the newest run asks for first, while the browser is still starting. Nothing more: that
        would take time from who asks for this."""
        with contextlib.suppress(Exception):  # whoever asks for the run is told
            self.run(self.listed()[0]["run"]).columns("main")

    def _folders(self) -> Sequence[Path]:
        if self._alone:
            return [self.folder]
        return [path.parent for path in self.folder.glob(f"*/{layout.RUN_JSON}")]

    def close(self) -> None:
        """Close all of them."""
        for run in self._runs.values():
            run.close()
