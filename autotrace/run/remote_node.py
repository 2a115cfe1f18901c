"""Run on a node without the run's folder: make a local folder, and start a relay that forwards the records.

Standard library only: this module runs in traced processes, once.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from autotrace.config import environment as env
from autotrace.config.originals import time
from autotrace.config.stderr import complain
from autotrace.run import files, layout
from autotrace.run.drain import shipper_alive
from autotrace.run.process import python


def packed_plan(text: str) -> str:
    """Pack a plan for ``AUTOTRACE_PLAN_DATA``, without characters that a shell or Ray's ``runtime_env`` would replace.

    (Ray replaces ``$NAME`` and ``${NAME}`` in ``env_vars``; base85 has all three characters.)
    """
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()


def digest(text: str) -> str:
    """Compute a plan's digest for ``AUTOTRACE_PLAN_DIGEST``."""
    return hashlib.sha256(text.encode()).hexdigest()


def plan_text(environ: Mapping[str, str]) -> str:
    """Read the plan's JSON from the file.

    If the file is missing, or holds another plan than the run was started with, the text comes from the environment.
    Raises ``OSError``.
    """
    try:
        with open(environ[env.PLAN], encoding="utf-8") as file:
            text = file.read()
        if digest(text) != environ.get(env.PLAN_DIGEST, digest(text)):
            raise PermissionError(errno.EPERM, "this is not the plan that the run was started with", environ[env.PLAN])
        return text
    except OSError:
        data = environ.get(env.PLAN_DATA)
        if not data:
            raise
        return zlib.decompress(base64.urlsafe_b64decode(data)).decode()


def run_folder(environ: Mapping[str, str]) -> str:
    """Return the folder that this process writes into.

    On the run's node that is the run's folder. On another node that is the same path, or a temporary folder if the path
    cannot be made or is not this user's alone (``files.own_folder``). Raises ``OSError``.
    """
    folder = environ[env.RUN_FOLDER]
    if files.is_own(folder) and os.path.exists(os.path.join(folder, layout.RUN_JSON)):
        return folder
    private = _private()
    for top, candidate in ((folder, folder), (private, os.path.join(private, os.path.basename(folder)))):
        try:
            files.own_folder(top, layout.spool_of(candidate))
            if os.access(layout.spool_of(candidate), os.W_OK):
                return candidate
        except OSError:
            continue
    # Another user took the name: use a folder that no other process shares, with its own relay.
    candidate = os.path.join(files.temporary_folder(f"{os.path.basename(private)}-"), os.path.basename(folder))
    files.folder(layout.spool_of(candidate))
    return candidate


def _private() -> str:
    return os.path.join(tempfile.gettempdir(), f"autotrace-{os.getuid()}")


def invite(environ: Mapping[str, str], towards: str = "", patience: float = 5.0) -> dict[str, str]:
    """Ask the collector to listen; return the collector's address and token and the plan, for processes on other nodes.

    The run's first process calls this function when the process joins a cluster; ``towards`` is an address of that
    cluster. The wait takes at most ``patience`` seconds. Without a collector (no shipper, no network) only the plan
    comes back, the other nodes keep their records, and one line reports the failure. Raises ``OSError``.
    """
    folder = environ[env.RUN_FOLDER]
    variables = {env.PLAN_DATA: packed_plan(plan_text(environ))}
    if environ.get(env.COLLECTOR) or not os.path.exists(os.path.join(folder, layout.RUN_JSON)):
        return variables  # a job started by a job: what was inherited stands
    _ask_to_listen(folder, towards)
    deadline = time.monotonic() + patience
    while True:
        if {"url", "token"} <= (collector := published(folder)).keys():
            return {**variables, env.COLLECTOR: collector["url"], env.TOKEN: collector["token"]}
        if time.monotonic() > deadline:
            complain(
                f"the collector does not listen ({layout.SHIPPER_LOG} in {folder} may say why): what other nodes "
                f"record stays there, in {folder} or {_private()}"
            )
            return variables
        time.sleep(0.05)


def published(run_folder: str | Path) -> dict[str, str]:
    """Read ``collector.json`` (``url``, ``token``); empty if the file does not exist."""
    try:
        with open(os.path.join(run_folder, layout.COLLECTOR_JSON), encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else {}


def _ask_to_listen(folder: str, towards: str) -> None:
    files.replace(os.path.join(folder, layout.LISTEN), towards.encode())


def start_relay(folder: str) -> None:
    """Start this node's relay if the run's collector is on another node; a lock lets a single relay live.

    The relay keeps this process's stderr for a moment, in case the collector cannot be reached. Raises ``OSError``.
    """
    on_another_node = env.COLLECTOR in os.environ and not os.path.exists(os.path.join(folder, layout.RUN_JSON))
    if on_another_node and not shipper_alive(folder):
        from autotrace.run.shipper_process import detach

        detach(python("autotrace.run.guard", "autotrace.ship.cluster.relay", folder, "0"), os.environ)
