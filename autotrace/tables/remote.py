"""The tables of runs in an object store. DuckDB asks it for those parts of their files that a question needs."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import msgspec

from autotrace.run import layout
from autotrace.run.info import RunInfo
from autotrace.tables.commits import FILE, FOLDER
from autotrace.tables.committed import Committed
from autotrace.tables.errors import QueryError
from autotrace.tables.place import PlaceError, RemotePlace, reaching
from autotrace.tables.sources import Place, stored_info

_LINES = f"/{FOLDER}/{FILE}"


class Remote(Committed):
    """The tables of the run at a URL. Raises ``PlaceError``."""

    def __init__(self, url: str, info: RunInfo) -> None:
        self._at = RemotePlace(url)
        super().__init__(Path(url))
        self.info = info

    def _lines(self) -> bytes:
        return self._at.read(_LINES[1:]) or b""

    def _there(self, table: str, names: list[str]) -> list[str]:
        return [f"{self._at.root}/{FOLDER}/{table}/{name}" for name in names]

    def size(self) -> int:
        """See ``Source``; of its files, too, which cannot be asked for it."""
        return sum(file.bytes for of in self._snapshot.files.values() for file in of.values())

    def fingerprint(self) -> object:
        """See ``Source``."""
        return self._snapshot.size


def remote_runs(url: str) -> list[Place]:
    """The runs whose tables are at ``url`` or below it, in the order of their names. Raises ``FileNotFoundError`` if
    there are no runs, ``QueryError``."""
    at, runs = RemotePlace(url.rstrip("/")), list[Place]()
    try:
        with reaching(url, "read"):
            filesystem, base = at.opened
            found = sorted(path.removesuffix(_LINES) for path in filesystem.find(base) if path.endswith(_LINES))
            infos = filesystem.cat([f"{path}/{layout.RUN_JSON}" for path in found], on_error="omit") if found else {}
    except PlaceError as error:
        raise QueryError(str(error)) from error
    for path in found:
        info = stored_info(path.rpartition("/")[2], None)
        with contextlib.suppress(KeyError, msgspec.MsgspecError):
            info = msgspec.json.decode(infos[f"{path}/{layout.RUN_JSON}"], type=RunInfo)
        of_run = at.root + path.removeprefix(base)
        runs.append(Place(Path(of_run), info, partial(Remote, of_run, info)))
    if not runs:
        raise FileNotFoundError(f"{url} holds no autotrace run (no {_LINES[1:]} in it or below it)")
    return sorted(runs, key=lambda run: run.info.run_id)
