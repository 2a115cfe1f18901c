"""Describe a run in ``run.json``: the command and the backends. The launcher writes the file; everybody else reads."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path
from typing import Annotated, Any

import msgspec

from autotrace.config.ids import RunId
from autotrace.config.plan import Plan, Settings
from autotrace.run import files, layout

MOST = 4 << 20
"""Limits the bytes of a ``run.json`` to twice the longest command line."""


class RunInfo(msgspec.Struct):
    """Describes one run. Holds no secrets: credentials stay in the environment of the shipper."""

    run_id: RunId
    created: str
    """Time in ISO 8601 with time zone."""
    command: list[str]
    """Command as started, with values that look like secrets replaced."""
    host: str
    main_pid: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
    backends: list[str]
    tracking_uri: str | None = None
    """Tracking URI from the user (option or ``MLFLOW_TRACKING_URI``); None: veRL's own logger decides, else local
    SQLite."""
    project: str | None = None
    experiment: str | None = None
    drain_timeout: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 60.0
    untraced: str = ""
    """Explains why the command's own process is not traced; otherwise empty."""
    plan_digest: str = ""
    version: str = ""
    origins: dict[str, str] = {}
    """Origin of each setting, for ``autotrace status``: ``tracking_uri`` -> ``environment MLFLOW_TRACKING_URI``."""

    tables: str | None = None
    """Names the folder or URL to which the backend ``parquet`` copies the tables; None: beside the run."""

    keep: list[str] = []
    """Keep-rules as given (``ship.delivery.outbox``); empty: everything is delivered."""
    step_budget: int | None = None
    """Limits the bytes delivered per training step to each backend."""

    alert_on: list[str] = []
    """Lists the codes of findings that send a message, once a step; empty: each finding, once a run. The address is a
    secret and stays in the environment of the shipper."""
    alert_texts: bool = False
    """Tells whether messages quote texts of models and tools."""
    stop_on: list[str] = []
    """Lists the codes of findings that end the run."""

    tokenizer: str | None = None
    """Names the tokenizer, as returned by ``tokenizer_name.located``; None: the trainer's or the engine's tokenizer."""
    tokenizers: dict[str, str] = {}
    """Maps folders named here or in the plan to copies below ``blobs``."""

    def write(self, run_folder: str | Path) -> None:
        """Write ``run.json`` atomically."""
        files.replace(Path(run_folder, layout.RUN_JSON), msgspec.json.format(msgspec.json.encode(self), indent=2))

    @classmethod
    def read(cls, run_folder: str | Path) -> RunInfo:
        """Read ``run.json``. Raises ``OSError`` or ``msgspec.DecodeError``."""
        return msgspec.json.decode(files.read(run_folder, layout.RUN_JSON, most=MOST), type=cls)


def plan_of(run_folder: str | Path, **otherwise: Any) -> Plan:
    """Read the run's plan. If the plan cannot be read, return a plan without targets and with the settings
    ``otherwise``."""
    try:
        return Plan.loads(files.read(run_folder, layout.PLAN_JSON))
    except (OSError, ValueError):
        return Plan((), Settings(**otherwise))


def find_runs(folder: str | Path) -> tuple[list[Path], dict[Path, PermissionError]]:
    """Find the run that ``folder`` is, or the runs inside ``folder`` that are no links, oldest first.

    Also return the folders inside that cannot be opened, each with its error. Raises ``FileNotFoundError`` or
    ``PermissionError`` with a sentence for the user if no run is found, ``OSError``.
    """
    folder = Path(folder)
    if _is_run(folder):
        return [folder], {}
    runs: list[Path] = []
    closed: dict[Path, PermissionError] = {}
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except PermissionError:
        raise not_readable(folder) from None
    for name in names:
        try:
            if not (folder / name).is_symlink() and _is_run(folder / name):
                runs.append(folder / name)
        except PermissionError as error:
            closed[folder / name] = error
    if not runs and not closed:  # a lake: by project
        found = sorted(file.parent for file in folder.glob(f"*/*/{layout.RUN_JSON}"))
        runs = [run for run in found if not run.is_symlink() and not run.parent.is_symlink()]
    if runs:
        return runs, closed
    if closed:
        more = f" ({len(closed) - 1} more in {folder} cannot be read either)" if len(closed) > 1 else ""
        raise PermissionError(f"{next(iter(closed.values()))}{more}")
    raise FileNotFoundError(f"{folder} holds no autotrace run (no {layout.RUN_JSON} in it or one level below)")


def _is_run(folder: Path) -> bool:
    return is_there(folder / layout.RUN_JSON)


def is_there(path: str | Path) -> bool:
    """Tell whether a file or folder exists. Raises ``PermissionError`` with a sentence if nobody can tell."""
    try:
        os.stat(path)
    except PermissionError:
        raise not_readable(path) from None
    except OSError:
        return False
    return True


def not_readable(path: str | Path) -> PermissionError:
    """Build the error for a ``path`` that this user may not read. For a file in a closed folder the error names the
    folder."""
    path = Path(path)
    info = None
    for closed in (path, *path.absolute().parents):
        with contextlib.suppress(OSError):
            info, path = os.stat(closed), closed
            break
    if info is None:
        return PermissionError(f"{path} cannot be read: permission denied")
    try:
        owner = pwd.getpwuid(info.st_uid).pw_name
    except KeyError:
        owner = f"user {info.st_uid}"
    mode = stat.S_IMODE(info.st_mode)
    return PermissionError(
        f"{path} cannot be read: it is {owner}'s, with mode {mode:o}; run this as {owner}, or ask for access"
    )
