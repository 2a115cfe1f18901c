"""End a run: ask the shipper to deliver everything, wait within a bound, report the result.

Standard library only. The run's first process uses this module at exit, and so does a launcher that stayed as parent.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from autotrace.config.installation import install, look_at
from autotrace.config.originals import time
from autotrace.config.stderr import put, say
from autotrace.run import files, layout
from autotrace.run.losses import absences, losses, with_full_disk

POLL = 0.05
"""Seconds between two looks at ``status.json``."""
SILENT = 1.0
"""Seconds before a wait is worth a progress line."""
START_GRACE = 45.0
"""Seconds that a shipper may need to appear (imports of its backend, on a busy machine) before a report of absence."""
RESTART_GRACE = 5.0
"""Seconds to wait for a killed shipper, which the guard starts again."""
DRAIN_TIMEOUT = 60.0
"""Seconds to wait if ``run.json`` cannot be read."""
FINAL = ("done", "blocked")
MAX_REASONS = 5
"""Limits the progress lines without a terminal."""


@dataclass(frozen=True)
class Outcome:
    """Describes how the wait ended."""

    reason: str
    """Reason: done | blocked | timeout | interrupted | missing (no shipper is running)"""
    status: dict[str, Any]
    """Holds the last ``status.json``; empty if no file existed."""
    waited: float = 0.0
    """Seconds."""
    goes_on: bool = False
    """Tells whether the shipper still runs and goes on delivering."""


def wait_for_delivery(
    run_folder: str, timeout: float, *, interrupted: Callable[[], bool] = lambda: False, quiet: bool = False
) -> Outcome:
    """Create ``drain`` and wait until the shipper is done or blocked, at most ``timeout`` seconds.

    A ``KeyboardInterrupt``, a ``SystemExit`` or ``interrupted()`` ends the wait. Raises ``OSError`` when ``drain``
    cannot be created.
    """
    asked_ns = files.touch(os.path.join(run_folder, layout.DRAIN))
    begin = time.monotonic()
    line = _Progress(quiet)
    status: dict[str, Any] = {}
    reason = "timeout"
    seen_at = begin
    try:
        while True:
            waited = time.monotonic() - begin
            # Read the lock first: a shipper writes its last status before releasing the lock.
            alive = shipper_alive(run_folder)
            status, written_ns = read_status(run_folder)
            if written_ns >= asked_ns and status.get("state") in FINAL:
                reason = str(status["state"])
                break
            seen_at = seen_at if alive is False else time.monotonic()
            if time.monotonic() - seen_at > RESTART_GRACE or (alive is None and waited > START_GRACE):
                reason = "missing"
                break
            if waited >= timeout:
                break
            if interrupted():
                reason = "interrupted"
                break
            if waited > SILENT:
                why = _why_waiting(status if written_ns >= asked_ns else {})
                line.show(f"autotrace: delivering{_left_text(status)} ({waited:.0f} s){why}", why)
            time.sleep(min(POLL, max(0.0, timeout - waited)))
    except (KeyboardInterrupt, SystemExit):  # a SIGTERM handler of the host's may call sys.exit
        reason = "interrupted"
    line.clear()
    goes_on = reason in ("timeout", "interrupted") and shipper_alive(run_folder) is True
    return Outcome(reason, status, time.monotonic() - begin, goes_on)


FULL = 1 << 16
"""Limit of free bytes below which a disk counts as full, because nothing can be delivered."""


def timeout_of(run_folder: str) -> float:
    """Read from ``run.json`` how many seconds the end of a process of this run may take."""
    try:
        with open(os.path.join(run_folder, layout.RUN_JSON), "rb") as file:
            return float(json.load(file)["drain_timeout"])
    except (OSError, ValueError, KeyError, TypeError):  # a node that does not have the run's folder
        return DRAIN_TIMEOUT


def read_status(run_folder: str) -> tuple[dict[str, Any], int]:
    """Read ``status.json`` and the file's time (ns of the file system's clock); ``({}, 0)`` if no file can be read."""
    try:
        with open(os.path.join(run_folder, layout.STATUS_JSON), "rb") as file:
            written_ns = os.fstat(file.fileno()).st_mtime_ns
            status = json.load(file)
    except (OSError, ValueError):
        return {}, 0
    if not isinstance(status, dict):
        return {}, 0
    return {**status, "drops": with_full_disk(run_folder, status.get("drops") or {})}, written_ns


def shipper_alive(run_folder: str) -> bool | None:
    """Tell whether a process of this node holds ``shipper.lock``; None without a lock to try."""
    import fcntl

    try:
        fd = files.reading(run_folder, layout.SHIPPER_LOCK)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(fd)


def left(status: dict[str, Any]) -> int:
    """Count the traces that not every backend has acknowledged yet."""
    return max(0, int(status.get("pending", 0)) + int(status.get("open", 0)))


def lost(outcome: Outcome, own: Mapping[str, int]) -> list[str]:
    """Describe in words which records were lost.

    ``own`` holds the counters of this process, which may not have reached a file.
    """
    counted = outcome.status.get("drops") or {}
    return losses({reason: max(counted.get(reason, 0), own.get(reason, 0)) for reason in {**counted, **own}})


def summary(run_folder: str, outcome: Outcome, own: Mapping[str, int] = MappingProxyType({})) -> str:
    """Summarize the end of a run for stderr.

    The line says which records were lost, then where trajectories were delivered and how to look at the trajectories,
    or which records are left and how to finish the delivery. A line before names the worst finding; if records were
    lost, the line comes after. ``own``: see ``lost``.
    """
    losses, found = lost(outcome, own), _findings(run_folder, outcome, own)
    ending = f"autotrace: {''.join(f'{phrase}; ' for phrase in losses)}{_ending(run_folder, outcome)}"
    return "\n".join([*([] if losses else found), ending, *(found if losses else [])])


def _findings(run_folder: str, outcome: Outcome, own: Mapping[str, int]) -> list[str]:
    status = outcome.status
    found = status.get("found") or {}
    ended = [f"autotrace: --stop-on asked the command to end: {found['ended_run']}"] if found.get("ended_run") else []
    count, examined = int(found.get("findings", 0)), int(found.get("examined", 0))
    if not count:
        whole = outcome.reason == "done" and not (lost(outcome, own) or status.get("skipped") or status.get("torn"))
        told = found.get("verdict") if examined and status.get("trajectories") and whole else None
        return [*ended, f"autotrace: {told}"] if told else ended
    folder, trace = _shown(run_folder), str(found.get("trace_id", ""))[:12]
    kinds = "1 finding" if count == 1 else f"{count} findings, the worst"
    example = f", for example {trace}" if trace else ""
    look = look_at(folder, trace)
    return [*ended, f"autotrace: {kinds}: {found.get('worst', '')}{example}; to look at it: {look}"]


def _shown(run_folder: str) -> str:
    """Return the shorter path of the folder, quoted for a shell."""
    return shlex.quote(min(run_folder, os.path.relpath(run_folder), key=len))


def _ending(run_folder: str, outcome: Outcome) -> str:
    status, missing = outcome.status, left(outcome.status)
    count = int(status.get("trajectories", 0)) or int(status.get("traces", 0))
    folder = _shown(run_folder)
    if outcome.reason == "done" and not missing:
        if not count:
            return f"nothing was recorded; why: autotrace status {folder}"
        kept = int(status.get("kept_here", 0))
        delivered = f"{count - kept} of {_count(count, status)}" if kept else _count(count, status)
        rest = f"; {kept} stay in the run folder (--keep)" if kept else ""
        absent = absences(status.get("absent") or {})
        more = f" and {len(absent) - 1} more (autotrace status {folder})" if len(absent) > 1 else ""
        rest += f"; {absent[0]}{more}" if absent else ""
        saved = f"saved {delivered} to {_destinations(status) or folder}{rest}"
        return f"{saved}; to look at them: autotrace ls {folder}{_others(status, folder)}"
    why = {
        "blocked": "the backend refuses them",
        "timeout": f"gave up waiting after {outcome.waited:.0f} s",
        "interrupted": "waiting was interrupted",
        "missing": "no shipper is running",
        "done": "the backend did not take them",
    }[outcome.reason]
    problem = status.get("error") or (f"the disk of {run_folder} is full" if _is_full(run_folder) else None)
    error = f" ({problem})" if problem else ""
    rest, them = (f"{missing} traces are", "them") if missing != 1 else ("1 trace is", "it")
    if not missing:  # nobody knows
        rest, them = "what was recorded is", "it"
    if outcome.goes_on:
        return (
            f"{why}{error}; {rest} still on disk in {folder}, and the shipper goes on delivering {them} "
            f"(autotrace status {folder}); if it is killed before it finishes, run: autotrace ship {folder}"
        )
    return f"{why}{error}; {rest} still on disk in {folder}; to deliver {them}: autotrace ship {folder}"


def _is_full(run_folder: str) -> bool:
    try:
        disk = os.statvfs(run_folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < FULL


def _left_text(status: dict[str, Any]) -> str:
    return f", {left(status)} trace{'' if left(status) == 1 else 's'} left" if left(status) else ""


def _why_waiting(status: dict[str, Any]) -> str:
    """Explain the wait for delivery, as the shipper has reported since the request."""
    if not status:
        return ": the shipper is busy or has not started yet"
    if status.get("error"):
        return f": {status['error']}"
    living = int(status.get("living", 0))
    if living:
        return f": {living} process{' of the run is' if living == 1 else 'es of the run are'} still alive"
    backends: dict[str, dict[str, Any]] = status.get("backends", {})
    waiting = int(status.get("open", 0))
    starting = [
        name
        for name, backend in backends.items()
        if (waiting or backend.get("pending")) and not backend.get("delivered")
    ]
    return f": {', '.join(starting)} {'is' if len(starting) == 1 else 'are'} still starting" if starting else ""


def _count(number: int, status: dict[str, Any]) -> str:
    if not status.get("trajectories"):
        return f"{number} trace{'' if number == 1 else 's'}"
    return f"{number} trajector{'y' if number == 1 else 'ies'}"


def _destinations(status: dict[str, Any]) -> str:
    """List the destinations: ``mlflow (sqlite:////data/mlflow.db)``."""
    backends: dict[str, dict[str, Any]] = status.get("backends", {})
    return ", ".join(_destination(name, backend) for name, backend in backends.items())


def _others(status: dict[str, Any], folder: str) -> str:
    """Return the command that opens MLflow's own page, or how to get trajectories into MLflow if the run has no
    backend."""
    backends = status.get("backends", True)
    if not backends:
        return f"; to have them in MLflow: {install('mlflow')} && autotrace ship {folder} --backend mlflow"
    pages = (each.get("open_with") or "" for each in (backends if isinstance(backends, dict) else {}).values())
    return "".join(f"; in MLflow: {page}" for page in pages if page.startswith("mlflow "))


def _destination(name: str, backend: dict[str, Any]) -> str:
    over = f"{backend['over_budget']} stay here, over the budget" if backend.get("over_budget") else ""
    details = [detail for detail in (backend.get("place"), over) if detail]
    return f"{name} ({'; '.join(details)})" if details else name


class _Progress:
    """Shows a line that replaces itself on a terminal; elsewhere the line appears whenever the reason is new."""

    def __init__(self, quiet: bool) -> None:
        self.tty = not quiet and sys.stderr is not None and os.isatty(2)
        self.wanted = not quiet
        self.text = ""
        self.reasons: set[str] = set()

    def show(self, text: str, reason: str) -> None:
        if not self.wanted or text == self.text:
            return
        if self.tty:
            put(f"\r\x1b[K{text}".encode())
        elif reason not in self.reasons and len(self.reasons) < MAX_REASONS:
            say(text)
        self.text = text
        self.reasons.add(reason)

    def clear(self) -> None:
        if self.tty and self.text:
            put(b"\r\x1b[K")
