"""Hold ``status.json``: the shipper's last report of a run, for the waiting launcher and for ``autotrace status``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotrace.run import files, layout
from autotrace.run.losses import with_full_disk


class TargetStatus(msgspec.Struct):
    """Describes one target of the plan, over all processes."""

    key: str
    states: dict[str, int] = {}
    """Maps bound | shadowed | failed | refused | pending to a number of locations."""
    places: list[str] = []
    """Lists the places where the target was bound, at most 20."""
    reasons: list[str] = []
    """Lists the reasons why the target failed, was refused or shadowed, at most 20."""
    calls: int = 0
    processes: int = 0
    """Number of processes that bound the target."""
    outside: list[str] = []
    """Lists callers of a target that calls a model outside any recorded call, at most 20. Each entry names the
    functions, outermost first: ``agent.main > agent.ask``."""


class BackendStatus(msgspec.Struct):
    """Describes the delivery to one backend."""

    name: str
    state: str = "ok"
    """State: ok | waiting (cannot be reached, tries again) | blocked (a person must act)"""
    delivered: int = 0
    rate: float = 0.0
    """Trajectories delivered per second, over the last minute."""
    pending: int = 0
    rejected: dict[str, str] = {}
    """Maps a trace id to the reason of the rejection, at most 20."""
    rejected_count: int = 0
    error: str | None = None
    """Reports the last error while the state is not ``ok``."""
    sent_bytes: int = 0
    """Bytes of this run that the backend took, before compression."""
    gb_a_day: float = 0.0
    """Gigabytes per day at this run's rate so far; 0 while the run is too short to say."""
    step_budget: int | None = None
    over_budget: int = 0
    """Trajectories that stay in the run folder because a budget was spent."""
    behind: str | None = None
    """Reports a backend that does not keep up, in a sentence with a remedy."""
    place: str | None = None
    """Names the place where trajectories go, without secrets."""
    open_with: str | None = None
    """Names the command that opens the backend's page, if the page needs a command."""


class Found(msgspec.Struct, frozen=True):
    """Describes the findings in the steps examined so far."""

    findings: int = 0
    """Number of kinds of findings."""
    worst: str = ""
    """Describes the most costly finding in words."""
    trace_id: str = ""
    """Trace id of a trajectory with the most costly finding."""
    examined: int = 0
    """Number of trajectories of the examined steps."""
    verdict: str = ""
    """Says in a sentence that nothing was found."""
    ended_run: str = ""
    """Names the finding for which ``--stop-on`` asked the command to end, with the step."""


class Status(msgspec.Struct):
    """Describes the run. Times are nanoseconds since the epoch."""

    state: str
    """State: running | draining | done | blocked | stopped (no process goes on)"""
    run_id: str
    pid: int = 0
    """Processes id of the shipper."""
    host: str = ""
    updated_ns: int = 0
    trajectories: int = 0
    """Number of complete trajectories (role trajectory)."""
    traces: int = 0
    """Number of complete traces of any kind."""
    kept_here: int = 0
    """Number of complete trajectories that the keep-rules leave in the run folder."""
    open: int = 0
    """Number of traces that expect more records."""
    in_tables: bool = False
    """Tells whether the run is over and the tables have everything that was recorded."""
    pending: int = 0
    """Number of complete traces that the slowest backend has not acknowledged yet."""
    lag_seconds: float = 0.0
    """Age of the oldest pending trace."""
    rate: float = 0.0
    """Traces completed per second, over the last minute."""
    processes: int = 0
    living: int = 0
    hosts: list[str] = []
    """Lists the hosts of the processes."""
    died: int = 0
    """Number of processes that ended without a final record."""
    torn: int = 0
    """Bytes at the ends of segments that are not complete records."""
    skipped: dict[str, int] = {}
    """Counts records that could not be used, by reason."""
    drops: dict[str, int] = {}
    """Counts the drops of the traced processes, by reason."""
    absent: dict[str, int] = {}
    """Maps paths of the user's specs (with file and line) that no call had to the number of examined calls."""
    facts_waiting: int = 0
    """Number of facts (rewards, ...) that no trajectory matches."""
    spool_bytes: int = 0
    unread_bytes: int = 0
    """Spool bytes that the shipper has not read yet."""
    read_bytes: int = 0
    """Bytes read so far, also in segments that were removed since."""
    backends: dict[str, BackendStatus] = {}
    targets: list[TargetStatus] = []
    found: Found = Found()
    notes: list[str] = []
    error: str | None = None
    """Reports the most important problem in one sentence."""

    def write(self, run_folder: str | Path) -> None:
        """Write ``status.json`` atomically."""
        files.replace(Path(run_folder, layout.STATUS_JSON), msgspec.json.encode(self))

    @classmethod
    def read(cls, run_folder: str | Path) -> Status:
        """Read ``status.json``. Raises ``OSError`` or ``msgspec.DecodeError``."""
        status = msgspec.json.decode(files.read(run_folder, layout.STATUS_JSON), type=cls)
        status.drops = with_full_disk(str(run_folder), status.drops)
        return status
