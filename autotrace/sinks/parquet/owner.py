"""Whose files those below a root are: a file ``_runs/RUN.json`` a run."""

from __future__ import annotations

import msgspec

from autotrace.run.info import RunInfo
from autotrace.sinks.parquet import journal
from autotrace.sinks.parquet.location import RUNS, segment
from autotrace.sinks.parquet.store import Store
from autotrace.sinks.protocol import Refused
from autotrace.tables.schema import TABLES, VERSION

OURS = (RUNS, *TABLES)


class Owner(msgspec.Struct):
    """The run that wrote the files of its name."""

    run_id: str
    created: str
    host: str
    schema: int = VERSION


def claim(store: Store, info: RunInfo) -> None:
    """Say that the files of this run's name are this run's. Raises ``Refused`` where they are another's, or where the
    root holds something else; ``SinkError`` where it cannot be written."""
    path = f"{RUNS}/{segment(info.run_id, 'run')}.json"
    owner = Owner(info.run_id, info.created, info.host)
    written = store.read(path)
    if written is None:
        _check_empty(store)
        journal.write(store, path, msgspec.json.encode(owner))
        return
    try:
        before = msgspec.json.decode(written, type=Owner)
    except msgspec.MsgspecError as error:
        raise Refused(f"{store.root}/{path} is damaged ({error}); remove it or name another folder") from error
    if before.schema > VERSION:
        raise Refused(
            f"the files of this run in {store.root} were written by a newer autotrace (schema {before.schema}, this one"
            f" has {VERSION}); update autotrace or name another folder (AUTOTRACE_PARQUET)"
        )
    if (before.run_id, before.created, before.host) != (owner.run_id, owner.created, owner.host):
        raise Refused(
            f"{store.root} has files of another run called {before.run_id} (started {before.created} on {before.host});"
            " name another folder (AUTOTRACE_PARQUET)"
        )


def check_free(store: Store, run_id: str) -> None:
    """Whether an export of a run may be written here. Raises ``Refused`` where its backend writes already, or where the
    root holds something else; ``SinkError`` where it cannot be read."""
    if store.read(f"{RUNS}/{segment(run_id, 'run')}.json") is not None:
        raise Refused(f"{store.root} has this run already: the backend parquet writes it there; name another folder")
    _check_empty(store)


def _check_empty(store: Store) -> None:
    """Raise ``Refused`` where the root holds what autotrace did not write."""
    other = next((name for name in store.names() if name not in OURS and not name.startswith(".")), None)
    if other is not None:
        raise Refused(f"{store.root} holds what autotrace did not write ({other}); name an empty folder for the tables")
