"""Describe lost records in words, which a person sees first. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping

from autotrace.run import layout

_PREFIX = "drop:"
DISK_FULL = "drop:disk full: "
"""Start of a reason; the run folder follows. The loss has no counter, because no counter could be written."""
OUTSIDE_OF = "outside:"
"""Prefix before a library whose calls were made outside any recorded call."""
_WORDS = {
    "memory_limit": ("trajectory", "not recorded: more waited to be written than a process may hold"),
    "spool_limit": ("trajectory", "not recorded: the spool has reached --spool-limit"),
    "tokens": ("call", "without token lists: more waited to be written than a process may hold"),
    "content": ("call", "without large arguments or results: too much waited to be written"),
    "stack": ("call", "without arguments or results: the program's stack was full"),
    "exit": ("record", "lost: a process ended before they could be written"),
    "too_large": ("record", "cut: larger than a record may be"),
    "fact on a device": ("fact", "not recorded: their values are on a device"),
    "token facts on a device": ("trajectory", "without token facts: the values are on a device"),
    "token columns": ("trajectory", "without the trainer's values of each token: too many at once"),
    "token facts out of time": ("trajectory", "without token facts: they are given 1 % of a step's time"),
    "rows": ("row", "not recorded: a batch had more than are recorded of one call"),
    "unmatched rows": ("row", "of a batch not recorded: it goes on with no row of the batch around it"),
    "finalizer": ("call", "not recorded: a garbage collection made it outside of any recorded call"),
    "answer": ("answer", "not recorded: the object stores nothing that can be read without running the program's code"),
    "stuck": ("record", "not written: more waited to be written than a process may hold"),
    "disk": ("record", "lost: the run folder could not be written"),
}
"""Maps the reason of a counter to the counted thing and the fate of the thing."""


def absences(absent: Mapping[str, int]) -> list[str]:
    """Return a phrase for each path of ``Status.absent``."""
    return [
        f"path absent in {calls:,} of {calls:,} {'call' if calls == 1 else 'calls'}: {path}"
        for path, calls in absent.items()
    ]


def skipped(records: Mapping[str, int]) -> list[str]:
    """Return a phrase for each reason of ``Status.skipped``, the most frequent first."""
    return [
        f"{number:,} {'record' if number == 1 else 'records'} that the shipper could not use: {reason}"
        for reason, number in sorted(records.items(), key=lambda item: -item[1])
    ]


def losses(counters: Mapping[str, int]) -> list[str]:
    """Return a phrase for each reason of ``Status.drops``, the most frequent first. A failure of autotrace
    (``fault:``) is not a loss."""
    phrases = []
    for reason, number in sorted(counters.items(), key=lambda item: -item[1]):
        if reason.startswith(_PREFIX) and (number or reason.startswith(DISK_FULL)):
            name = reason.removeprefix(_PREFIX)
            what, how = _WORDS.get(name, ("record", f"lost: {name}"))
            many = "trajectories" if what == "trajectory" else f"{what}s"
            phrases.append(f"{number:,} {what if number == 1 else many} {how}" if number else f"{many} {how}")
        elif reason.startswith(OUTSIDE_OF) and number:
            calls, were = ("call", "was") if number == 1 else ("calls", "were")
            library = reason.removeprefix(OUTSIDE_OF)
            phrases.append(f"{number:,} {calls} of {library} outside of a trajectory {were} not recorded")
    return phrases


def with_full_disk(run_folder: str, counters: Mapping[str, int]) -> dict[str, int]:
    """Return ``counters``, plus an entry for a full disk that a process of the run met without writing a counter."""
    known = any(reason.startswith(DISK_FULL) for reason in counters)
    met = not known and os.path.exists(os.path.join(run_folder, layout.DISK_FULL))
    return {**counters, f"{DISK_FULL}{run_folder}": 0} if met else dict(counters)
