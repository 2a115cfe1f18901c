"""Open a path for the one reader: a run folder, a folder of runs, a folder of tables, a file of lines, and rollouts
that another project saved."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run import layout
from autotrace.run.drain import left
from autotrace.run.info import RunInfo, find_runs, not_readable
from autotrace.run.status import Status
from autotrace.ship.index.processes import status_now
from autotrace.ship.live import Live
from autotrace.tables.committed import remote_runs, table_folders
from autotrace.tables.errors import QueryError
from autotrace.tables.line_files import line_files
from autotrace.tables.reader import Reader
from autotrace.tables.runs import Runs
from autotrace.tables.sources import STORED, ReadableRun, Source
from autotrace.tables.storage import is_url

Find = Callable[[Path], Sequence[Source]]
"""Find runs that are stored in one way."""


def open(path: str | Path = layout.DEFAULT_RUN_DIR) -> Runs:
    """Open the run at ``path``, or all runs of a folder or a bucket (``s3://bucket/lake``), oldest first.

    Raises ``FileNotFoundError`` with one sentence if no run is there, ``PermissionError`` if the path cannot be read,
    ``QueryError`` for a file of something else.
    """
    return Runs(places(path))


def of_run(path: str | Path) -> Reader:
    """Open a reader of the run at ``path``, or of the newest run there. Raises as ``open``."""
    return opened(places(path)[-1])


def opened(place: ReadableRun, before: Reader | None = None) -> Reader:
    """Open a reader of the run as the run is now. ``before``: an earlier reader, whose tokenizer is taken over."""
    source = place.open()
    if before is not None and isinstance(source, Live) and isinstance(before.run, Live):
        source.take_over(before.run)
    return Reader([source])


def is_run(path: Path) -> bool:
    """Return whether ``path`` is a run folder."""
    return os.path.exists(path / layout.RUN_JSON)  # False where the file may not be seen: opening the run reports that


def places(path: str | Path, problems: list[Exception] | None = None) -> list[ReadableRun]:
    """Find the runs at ``path``, oldest first. An unreadable run is skipped if other runs are there; ``problems`` gets
    a sentence about each. Raises as ``open``."""
    errors = [] if problems is None else problems
    if str(path).startswith("wandb://"):
        from autotrace.foreign.wandb_api import run

        source = run(str(path))
        return [ReadableRun(source.path, source.info, lambda: source.again() or source)]
    if isinstance(path, str) and is_url(path):
        return remote_runs(path, errors)
    path = Path(path)
    if is_run(path):
        return [_run(path)]
    stored, found = stored_places(path), list[ReadableRun]()
    try:
        folders, closed = find_runs(path)
        errors += closed.values()
    except OSError as error:
        if not stored:
            from autotrace.foreign.source import refusal

            told = refusal(path) if isinstance(error, FileNotFoundError) and path.exists() else ""
            raise (QueryError(told) if told else error) from None
        folders = []
    for folder in folders:
        try:
            found.append(_run(folder))
        except OSError as error:
            errors.append(error)
    known = {place.info.run_id for place in found}
    found[:0] = [place for place in stored if place.info.run_id not in known]  # a copy of a run is not another run
    if not found:
        raise errors[0]
    return found


def name_of(place: ReadableRun) -> str:
    """Return the name of the run's folder, otherwise the run's own name. Either name may hold any text."""
    return place.path.name if is_run(place.path) else place.info.run_id


def listed(places: Iterable[ReadableRun]) -> list[dict[str, Any]]:
    """Describe each run for a list, newest first, as its shipper last reported. None: no shipper reported."""
    found = []
    for path, info, name in ((place.path, place.info, name_of(place)) for place in places):
        told: dict[str, Any] = {
            "run": name, "created": info.created, "state": "not assembled" if is_run(path) else STORED,
            "experiment": info.experiment, "trajectories": None, "left": None, "died": 0,
            "backends": ", ".join(info.backends), "command": " ".join(info.command) or str(path),
        }  # fmt: skip
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            status = status_now(Status.read(path), path)
            told |= {"state": status.state, "trajectories": status.trajectories, "died": status.died}
            told["left"] = left({"pending": status.pending, "open": status.open})
        found.append(told)
    return sorted(found, key=lambda run: (run["created"], run["run"]), reverse=True)


def stored_places(path: Path) -> list[ReadableRun]:
    """Find the runs whose trajectories are stored at ``path`` outside a run folder. Raises ``QueryError``."""
    found: list[ReadableRun] = []
    with contextlib.suppress(PermissionError):  # reported where runs are looked for
        kinds = () if is_run(path) else _KINDS[::-1] if path.is_file() else _KINDS
        for kind in kinds:
            if found or (kind is _OF_OTHERS and kind is kinds[-1] and _has_runs(path)):
                break
            for find in kind:
                found += [ReadableRun(one.path, one.info, partial(_again, find, path, one)) for one in find(path)]
    return found


def _foreign(path: Path) -> Sequence[Source]:
    from autotrace.foreign.source import foreign  # a quarter of the imports of a command, which few need

    return foreign(path)


_OF_OTHERS: tuple[Find, ...] = (_foreign,)
_KINDS: tuple[tuple[Find, ...], ...] = ((line_files, table_folders), _OF_OTHERS)
"""Try the kinds in this order in a folder. A file is autotrace's own unless another project's reader takes the file."""


def _has_runs(path: Path) -> bool:
    try:
        return bool(find_runs(path)[0])
    except FileNotFoundError:
        return False


def _run(folder: Path) -> ReadableRun:
    path = folder / layout.RUN_JSON
    try:
        return ReadableRun(folder, RunInfo.read(folder), partial(Live.open, folder))
    except PermissionError:
        raise not_readable(path) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise OSError(f"{path} cannot be read ({error}); fix the file or name another run") from None


def _again(find: Find, path: Path, first: Source) -> Source:
    """Return the run of ``first`` as the run is now; ``first`` if nothing of the run is left."""
    again = first.again()
    if again is not None:
        return again
    return next((source for source in find(path) if source.info.run_id == first.info.run_id), first)
