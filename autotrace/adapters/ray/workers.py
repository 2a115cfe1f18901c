"""Ray workers that should trace and cannot: the driver's log says so, once per node.

A worker without autotrace (another image, ``py_executable: uv run``) knows nothing of us, and the driver cannot see
into it. But Ray runs a job's ``worker_process_setup_hook`` in each of its workers, and shows what they print in the
driver's log. Ours looks whether autotrace is active, and is left out where the user has a hook of their own.
"""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

HOOK = "worker_process_setup_hook"
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def with_notice(runtime_env: Any, environ: Mapping[str, str], address: str | None) -> Any:
    """``runtime_env`` (None, dict or ``RuntimeEnv``) whose workers say when they cannot trace; the user's hook wins.

    Over Ray's client (``ray://``) a hook must be importable by name there, which is what this one is not about.
    """
    job = json.loads(environ.get(JOB_CONFIG) or "{}").get("runtime_env") or {}
    if runtime_env is None or runtime_env.get(HOOK) or job.get(HOOK) or str(address or "").startswith("ray://"):
        return runtime_env
    merged = copy.copy(runtime_env)
    merged[HOOK] = notice()
    return merged


def head(address: str | None) -> str:
    """Address of the cluster's head (``ray.init(address=...)``), "" where there is none."""
    if address is None or address == "auto":
        services = importlib.import_module("ray._private.services")
        address = services.canonicalize_bootstrap_address(address)
    return (address or "").rpartition("://")[2].partition("/")[0].rpartition(":")[0].strip("[]")


def notice() -> Callable[[], None]:
    """The hook. It is a local function that mentions nothing outside of itself: Ray pickles it by value, and a worker
    needs nothing of autotrace to run it."""

    def autotrace_notice() -> None:
        import os
        import sys
        import tempfile
        from importlib.util import find_spec

        try:
            if (
                os.environ.get("AUTOTRACE", "").lower() not in ("1", "true", "yes", "on")
                or "autotrace.bootstrap.activate" in sys.modules
            ):
                return
            run = os.path.basename(os.environ.get("AUTOTRACE_RUN_ID", ""))
            mark = os.path.join(tempfile.gettempdir(), f"autotrace-absent-{os.getuid()}-{run}")
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # one worker of this node reports it
            try:
                state = "installed, but not active," if find_spec("autotrace") else "not installed"
            except ImportError:
                state = "not installed"
            sys.stderr.write(
                f"autotrace: workers on {os.uname().nodename} are not traced: autotrace is {state} in "
                f"{sys.executable}; install it there, or in the image\n"
            )
            sys.stderr.flush()
        except Exception:
            return

    return autotrace_notice
