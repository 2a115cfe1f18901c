"""Programs run under the launcher, and what their processes recorded."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run import layout
from autotrace.run.info import find_runs
from autotrace.spool.records import Define, Header, Open, Record, Report
from autotrace.spool.segment import read_frames
from tests.places import Place

PROGRAM = Path(__file__).parent / "program"
ROOT = Path(__file__).parents[2]


@dataclass
class Ran:
    """One run: what it said, and its records by process."""

    stdout: str
    stderr: str
    segments: list[list[Any]] = field(default_factory=list)

    def calls(self) -> list[tuple[int, str]]:
        """(pid, what was called) of every call."""
        found = []
        for segment in self.segments:
            names = {record.id: record.name for record in segment if isinstance(record, Define)}
            pid = next(record.pid for record in segment if isinstance(record, Header))
            found += [(pid, names[record.target]) for record in segment if isinstance(record, Open)]
        return found

    def reports(self) -> dict[str, tuple[str, str]]:
        """Place -> state and reason."""
        records = [record for segment in self.segments for record in segment if isinstance(record, Report)]
        return {record.name: (record.state, record.reason) for record in records}


def run(
    folder: Path, spec: str, *command: str, python: str = sys.executable, python_path: bool = True, code: int = 0
) -> Ran:
    """``command`` (arguments of Python) under the launcher with the list ``spec``; it has to end with ``code``."""
    (folder / "spec.yaml").write_text(spec)
    options = ["--quiet", "--run-dir", str(folder), "--spec", str(folder / "spec.yaml")]
    environ = {"RAY_USAGE_STATS_ENABLED": "0", **({"PYTHONPATH": f"{PROGRAM}:{ROOT}"} if python_path else {})}
    place = Place(Path(sys.executable).parent, folder)
    done = place.record([python, *command], options, environ, is_delivered=False)
    assert done.returncode == code, done.stderr[-4000:]
    ran = Ran(done.stdout, done.stderr)
    for segment in sorted((find_runs(folder)[0][-1] / layout.SPOOL).glob(f"*{layout.SEGMENT_SUFFIX}")):
        fd = os.open(segment, os.O_RDONLY)
        ran.segments.append([msgspec.msgpack.decode(frame.payload, type=Record) for frame in read_frames(fd)])
        os.close(fd)
    return ran
