"""Start and stop a run inside a program that is already up (a notebook, a prompt, a test, a server).

``autotrace.start`` and ``autotrace.stop`` are here. The run is made as for a process that the environment activated
(``prepare``, ``activate``), and ends as at the exit of such a process (``exit``).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from types import TracebackType

from autotrace.bootstrap import prepare
from autotrace.bootstrap.prepare import StartError
from autotrace.config import environment as env
from autotrace.config.originals import thread, time
from autotrace.run import files, layout
from autotrace.run.inherited import is_over

_THREAD_ENDS = 5.0
"""Limits the wait for our thread, which wakes up five times a second (seconds)."""
_lock = thread.allocate_lock()


class TracedRun:
    """Holds the result of ``autotrace.start``; ``with autotrace.start(...) as run:`` stops at the end of the block."""

    folder: str | None
    """Names the absolute path of the run folder; None if ``AUTOTRACE=0`` switches everything off."""

    def __init__(self, folder: str | None, before: Mapping[str, str | None] | None = None) -> None:
        """Keep the run folder. ``before`` holds the earlier environment variables, if this run was begun here."""
        self.folder = folder
        self._before = before
        self._pid = os.getpid()

    @property
    def active(self) -> bool:
        """Tell whether this run was begun here and was not stopped yet."""
        return _run is self and self._pid == os.getpid()

    def stop(self) -> None:
        """Stop, if this run was begun here and still records."""
        if self.active:
            stop()

    def __enter__(self) -> TracedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<autotrace run {self.folder}{'' if self.active else ', not active here'}>"


_run: TracedRun | None = None
"""Run that was begun in this process, or by the parent of this forked child."""


def start(*specs: str | os.PathLike[str], **settings: object) -> TracedRun:
    """Trace this process and the children that start from now on, until ``stop`` or the end of the process.

    ``specs``: YAML specs of your own methods. ``settings``: the options of ``autotrace-run`` with ``_`` for ``-``
    (``backend="jsonl"``, ``run_dir="runs"``, ``keep=["errors", "spread"]``). Inside a run that goes on (under
    ``autotrace-run``) the outer run stays unchanged and is returned. With ``AUTOTRACE=0`` nothing happens.

    Raises ``autotrace.StartError`` with the sentence that ``autotrace-run`` prints for a mistake; then nothing is
    changed. Raises ``autotrace.StartError``, too, if this process has started a run and not stopped the run.
    """
    global _run
    with _lock:
        if _run is not None and _run.active:
            raise StartError(f"this process is recorded to {_run.folder} already; call autotrace.stop() first")
        if os.environ.get(env.AUTOTRACE, "").lower() in env.OFF:
            return TracedRun(None)
        inherited = os.path.isdir(os.environ.get(env.RUN_FOLDER, "")) and not sys.flags.ignore_environment
        if inherited and not is_over(os.environ):
            _activate()
            return TracedRun(os.environ[env.RUN_FOLDER])
        variables = prepare.new_run([os.fspath(spec) for spec in specs], settings)
        run = TracedRun(variables[env.RUN_FOLDER], {name: os.environ.get(name) for name in {*env.OF_A_RUN, *variables}})
        try:
            for name in env.OF_A_RUN:
                os.environ.pop(name, None)
            os.environ.update(variables)
            _activate()
            if not _records():
                raise StartError("autotrace could not start in this process; its logger `autotrace` says more")
        except BaseException:
            _undo(run)
            with contextlib.suppress(OSError):
                files.touch(os.path.join(str(run.folder), layout.DRAIN))  # the shipper has nothing to wait for
            raise
        _run = run
        return run


def stop() -> None:
    """End the run that ``start`` began: give every function its code back, write records, and wait for delivery.

    The wait is the same as at the exit of a program under ``autotrace-run``. Does nothing if this process began no run.
    """
    global _run
    with _lock:
        run = _run
        if run is None or not run.active:
            return
        _run = None
        from autotrace.bootstrap import exit
        from autotrace.record.origin import is_hosts

        quiet = os.environ.get(env.QUIET) == "1"
        try:
            exit.finish(str(run.folder), quiet, lambda: _undo(run))
        except Exception as error:
            if is_hosts(error):  # a timeout of the program's, which ends the wait
                raise
            exit.complain(str(run.folder), error)


def _activate() -> None:
    from autotrace.bootstrap import activate

    activate.main()  # the first import of the module activated already
    if activate.watch is not None and not activate.watch.started:
        activate.watch.start()


def _records() -> bool:
    engine = sys.modules.get("autotrace.patch.engine")
    return engine is not None and engine.engine is not None


def _undo(run: TracedRun) -> None:
    """Remove everything of the run from this process."""
    from autotrace.bootstrap import activate
    from autotrace.run import host_timers

    try:
        engine = sys.modules.get("autotrace.patch.engine")
        if engine is not None:
            with host_timers.held():  # a timeout in the middle would leave half of the run
                engine.stop()
            _wait_for_thread()
    finally:
        activate.leave()
        for name, value in (run._before or {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _wait_for_thread() -> None:
    own = sys.modules["autotrace.record.own_thread"]
    threads: set[int] = set()
    deadline = time.monotonic() + _THREAD_ENDS
    while time.monotonic() < deadline:
        threads |= own.alive
        if not own.started and not any(os.path.exists(f"/proc/self/task/{thread}") for thread in threads):
            break
        time.sleep(0.01)
