"""Write ``jsonl``, the lines of the backend of that name, into one file."""

from __future__ import annotations

from collections.abc import Iterable

from autotrace.export.format import Written, write_lines
from autotrace.sinks.jsonl.sink import FILE, line_of
from autotrace.trajectory.model import Trajectory


def write(trajectories: Iterable[Trajectory], out: str) -> Written:
    """See ``format.Write``."""
    return write_lines(trajectories, out, lambda trajectory: (FILE, line_of(trajectory)), one_file=True)
