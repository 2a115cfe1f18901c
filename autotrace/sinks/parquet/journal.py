"""The change that is being made to a run's files: written down before its first file gets its name, removed after the
last one that it replaces is gone.

A process that is killed in between leaves it there. From what is written down follows which files count: all new ones
once they are all there, else none of them. The next shipper of the run removes the others; until then ``autotrace sql``
and ``autotrace.open`` pass over them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from autotrace.run import files
from autotrace.sinks.parquet.location import RUNS, segment
from autotrace.sinks.parquet.store import Store, failed


class Change(msgspec.Struct):
    """Paths of files."""

    new: list[str]
    old: list[str]
    """Those that the new ones replace."""


def begin(store: Store, run_id: str, change: Change) -> None:
    """Write it down. Raises ``SinkError``."""
    write(store, _path(run_id), msgspec.json.encode(change))


def end(store: Store, run_id: str) -> None:
    """It is done. Raises ``SinkError``."""
    store.commit({}, [_path(run_id)])


def begun(store: Store, run_id: str) -> Change | None:
    """What was begun and has not ended. Raises ``SinkError``."""
    written = store.read(_path(run_id))
    try:
        return None if written is None else msgspec.json.decode(written, type=Change)
    except msgspec.MsgspecError:  # not ours: ours are there whole or not at all
        return None


def superfluous(store: Store, change: Change) -> list[str]:
    """The files that do not count. Raises ``SinkError``."""
    folders = {os.path.dirname(path) for path in change.new}
    there = {path for folder in folders for path in store.sizes(folder)}
    return change.old if there.issuperset(change.new) else change.new


def visible(store: Store, run_id: str, folder: str) -> list[str]:
    """The files in ``folder`` that count, in order. Raises ``SinkError``."""
    before = begun(store, run_id)
    paths = store.sizes(folder)
    change = begun(store, run_id) or before
    hidden: Sequence[str] = () if change is None else superfluous(store, change)
    return sorted(paths.keys() - set(hidden))


def write(store: Store, path: str, data: bytes) -> None:
    """A small file, there whole or not at all. Raises ``SinkError``."""
    part = store.part(path)
    try:
        with os.fdopen(files.overwrite(part), "wb") as file:
            file.write(data)
    except OSError as error:
        store.discard({path: part})
        raise failed(store.root, error) from error
    store.commit({path: part})


def _path(run_id: str) -> str:
    return f"{RUNS}/{segment(run_id, 'run')}~change.json"
