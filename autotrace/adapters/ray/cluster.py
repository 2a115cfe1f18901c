"""Send autotrace's variables into Ray's workers. See ``actors`` for the trace context.

A worker on a running cluster inherits nothing from the driver except ``runtime_env``. A worker without autotrace
(another image, ``py_executable: uv run``) knows nothing about autotrace, and the driver cannot see into the worker. But
Ray runs a job's ``worker_process_setup_hook`` in each worker, and shows the workers' output in the driver's log. Our
hook checks whether autotrace is active, and reports each node without autotrace once. A user's own hook replaces our
hook.

All of this is private API of Ray (read in 2.44, 2.49 and 2.60). Anything unexpected is left alone and counted in
``faults``, and the calls go through without context.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from autotrace.adapters.hooks import Changed, changing
from autotrace.adapters.ray import actors
from autotrace.config import environment
from autotrace.patch import adapting
from autotrace.record import context, faults
from autotrace.run import remote_node

HOOK = "worker_process_setup_hook"
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def with_notice(runtime_env: Any, environ: Mapping[str, str], address: str | None) -> Any:
    """Return ``runtime_env`` (None, dict or ``RuntimeEnv``) with our hook, by which workers report that they cannot
    trace; the user's hook wins.

    Over Ray's client (``ray://``) a hook must be importable by name on the other side, and our hook is not.
    """
    job = json.loads(environ.get(JOB_CONFIG) or "{}").get("runtime_env") or {}
    if runtime_env is None or runtime_env.get(HOOK) or job.get(HOOK) or str(address or "").startswith("ray://"):
        return runtime_env
    merged = copy.copy(runtime_env)
    merged[HOOK] = notice()
    return merged


def head(address: str | None) -> str:
    """Return the address of the cluster's head (``ray.init(address=...)``); "" if none is known."""
    if address is None or address == "auto":
        services = importlib.import_module("ray._private.services")
        address = services.canonicalize_bootstrap_address(address)
    return (address or "").rpartition("://")[2].partition("/")[0].rpartition(":")[0].strip("[]")


def notice() -> Callable[[], None]:
    """Return the hook: a local function that mentions nothing outside. Ray pickles the function by value, so a worker
    needs nothing of autotrace."""

    def autotrace_notice() -> None:
        import contextlib
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
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # one worker of this node reports
            except OSError:
                with contextlib.suppress(OSError):
                    made = os.lstat(mark)
                    if made.st_uid == os.getuid() and made.st_nlink == 1:
                        return  # a neighbour's mark, or a link of a neighbour's, silences nobody
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


CARRIED = ("MLFLOW_DISABLE_TELEMETRY",)
"""Variables besides ``AUTOTRACE*`` that a traced worker needs; set by the launcher if the user did not."""


_done: dict[Callable[[], None], int] = {}
"""Maps each successful step of ``install`` to an epoch."""


def install() -> None:
    """Wrap ``ray.init``, the two ends of an actor call, and tasks. Called right after ``ray`` was imported;
    idempotent."""
    adapting.add(refusal=actors.refusal, class_behind=actors.class_behind)
    for step in (_wrap_init, actors.wrap_call, actors.wrap_execution, actors.wrap_submission):
        try:
            if _done.get(step) != context.epoch:
                step()
                _done[step] = context.epoch
        except Exception as error:
            faults.failed(f"ray:{step.__name__}", error)


# -- variables --------------------------------------------------------------------------------------------------------


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a worker needs to trace for the same run.

    The tracking URI is left out: the URI may hold a password, Ray's pages show a runtime_env, and workers talk to no
    backend.
    """
    return {
        name: value
        for name, value in environ.items()
        if (name.startswith("AUTOTRACE") and name != environment.TRACKING_URI) or name in CARRIED
    }


def with_variables(runtime_env: Any, environ: Mapping[str, str]) -> Any:
    """Return a copy of ``runtime_env`` (None, dict or ``RuntimeEnv``) whose ``env_vars`` hold ours, too; the user's
    win.

    A job's own runtime_env (``ray job submit``) counts as the user's: Ray refuses to start when both name a variable.
    """
    theirs = dict((runtime_env or {}).get("env_vars") or {})
    job = json.loads(environ.get(JOB_CONFIG) or "{}")
    set_by_user = {*theirs, *((job.get("runtime_env") or {}).get("env_vars") or {})}
    ours = {name: value for name, value in variables(environ).items() if name not in set_by_user}
    if not ours:
        return runtime_env
    if runtime_env is None:
        return {"env_vars": ours}
    merged = copy.copy(runtime_env)  # a dict, or Ray's RuntimeEnv (a dict, too)
    merged["env_vars"] = {**theirs, **ours}
    return merged


def _wrap_init() -> None:
    ray = importlib.import_module("ray")
    original = ray.init
    signature = inspect.signature(original)

    def with_ours(*args: Any, **kwargs: Any) -> Changed:
        return args, _with_runtime_env(signature, args, kwargs)

    init = changing(original, "ray:init", with_ours)
    worker = importlib.import_module("ray._private.worker")
    for module in (ray, worker):
        if getattr(module, "init", None) is original:
            adapting.put(module, "init", init)


def _with_runtime_env(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return ``kwargs`` of ``ray.init`` with our variables, or unchanged."""
    if importlib.import_module("ray").is_initialized() or "runtime_env" not in signature.parameters:
        return kwargs
    given = kwargs.get("runtime_env")
    job_config = kwargs.get("job_config")
    if not given and job_config is not None:
        given = job_config.runtime_env or None
    address = args[0] if args else kwargs.get("address")
    if not given and _starts_a_cluster(address, kwargs.get("_temp_dir")):
        return kwargs  # its workers inherit this environment; a runtime_env would make each of them start twice
    # Ray's own daemons started before autotrace: other nodes know about this run only through runtime_env.
    environ = {**os.environ, **remote_node.invite(os.environ, head(address))}
    runtime_env = with_variables(given, environ)
    return {**kwargs, "runtime_env": with_notice(runtime_env, environ, address)}


def _starts_a_cluster(address: Any, folder: Any) -> bool:
    """Tell whether this ``ray.init`` will start a new cluster on this machine; False if that is unclear."""
    if address == "local":
        return True
    if address is not None or os.environ.get("RAY_ADDRESS") or JOB_CONFIG in os.environ:
        return False
    services = importlib.import_module("ray._private.services")
    return services.canonicalize_bootstrap_address(None, folder) is None
