"""``status.json``: the shipper's last word about a run, for the launcher that waits and for ``autotrace status``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotrace.run import files, layout
from autotrace.run.losses import with_full_disk


class TargetStatus(msgspec.Struct):
    """What happened to one target of the plan, over all processes."""

    key: str
    states: dict[str, int] = {}
    """bound | shadowed | failed | refused | pending -> number of locations."""
    places: list[str] = []
    """Where it was bound, at most 20."""
    reasons: list[str] = []
    """Why it failed, was refused or shadowed, at most 20."""
    calls: int = 0
    processes: int = 0
    """How many processes bound it."""
    outside: list[str] = []
    """A target that asks a model: the functions that called it where no recorded call was around it, outermost first,
    ``agent.main > agent.ask``; at most 20."""


class BackendStatus(msgspec.Struct):
    """How far delivery to one backend is."""

    name: str
    state: str = "ok"
    """ok | waiting (cannot be reached, tries again) | blocked (a person must act)"""
    delivered: int = 0
    rate: float = 0.0
    """Delivered per second, over the last minute."""
    pending: int = 0
    rejected: dict[str, str] = {}
    """Trace id -> reason, at most 20."""
    rejected_count: int = 0
    error: str | None = None
    """Its last error, while it is not ``ok``."""
    sent_bytes: int = 0
    """What it took of this run, before compression."""
    gb_a_day: float = 0.0
    """Gigabytes per day, if it goes on as in this run so far; 0 while that is too short to say."""
    step_budget: int | None = None
    over_budget: int = 0
    """Trajectories that stay in the run folder because a budget was spent."""
    behind: str | None = None
    """That it does not keep up, in one sentence with what would help."""
    place: str | None = None
    """Where trajectories go, without secrets."""
    open_with: str | None = None
    """The command that opens the backend's page, if it needs one."""


class Found(msgspec.Struct, frozen=True):
    """What was found in the steps that were looked at so far."""

    findings: int = 0
    """Kinds of findings."""
    worst: str = ""
    """The most costly of them, in words."""
    trace_id: str = ""
    """A trajectory that has it."""
    examined: int = 0
    """Trajectories of these steps."""
    verdict: str = ""
    """The sentence where nothing was found."""
    ended_run: str = ""
    """The finding for which ``--stop-on`` asked the command to end, with its step."""


class Status(msgspec.Struct):
    """See the fields. Times are nanoseconds since the epoch."""

    state: str
    """running | draining | done | blocked | stopped (no process goes on)"""
    run_id: str
    pid: int = 0
    """The shipper's."""
    host: str = ""
    updated_ns: int = 0
    trajectories: int = 0
    """Complete trajectories (role trajectory)."""
    traces: int = 0
    """Complete traces of any kind."""
    kept_here: int = 0
    """Complete trajectories that the keep-rules leave in the run folder."""
    open: int = 0
    """Traces of which more is expected."""
    in_tables: bool = False
    """The run is over, and its tables have everything that was recorded."""
    pending: int = 0
    """Complete, and not yet acknowledged by the backend that lags most."""
    lag_seconds: float = 0.0
    """Age of the oldest trace that is pending."""
    rate: float = 0.0
    """Traces completed a second, over the last minute."""
    processes: int = 0
    living: int = 0
    hosts: list[str] = []
    """Where they ran."""
    died: int = 0
    """Processes that ended without a final record."""
    torn: int = 0
    """Bytes at the ends of segments that are not complete records."""
    skipped: dict[str, int] = {}
    """Records that could not be used, by reason."""
    drops: dict[str, int] = {}
    """What the traced processes dropped, by reason."""
    absent: dict[str, int] = {}
    """Paths of the user's lists (with file and line) that no call had -> calls that were looked at."""
    facts_waiting: int = 0
    """Facts (rewards, ...) that no trajectory matches."""
    spool_bytes: int = 0
    unread_bytes: int = 0
    """Of them, not read by the shipper yet."""
    read_bytes: int = 0
    """Read so far, also in segments that were removed since."""
    backends: dict[str, BackendStatus] = {}
    targets: list[TargetStatus] = []
    found: Found = Found()
    notes: list[str] = []
    error: str | None = None
    """The most important problem in one sentence."""

    def write(self, run_folder: str | Path) -> None:
        """Write ``status.json`` atomically."""
        files.replace(Path(run_folder, layout.STATUS_JSON), msgspec.json.encode(self))

    @classmethod
    def read(cls, run_folder: str | Path) -> Status:
        """Read ``status.json``. Raises ``OSError`` or ``msgspec.DecodeError``."""
        status = msgspec.json.decode(files.read(run_folder, layout.STATUS_JSON), type=cls)
        status.drops = with_full_disk(str(run_folder), status.drops)
        return status
