"""What a run recorded: the proof that something was watched at all, and that nothing of ours failed."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autotrace.run import layout
from autotrace.spool.records import Counters, Open, Record, Report
from autotrace.spool.segment import Torn, read_frames


@dataclass(frozen=True)
class Recorded:
    """What the processes of a run recorded."""

    states: Counter[str]
    """How the targets came out, by function."""
    spans: int
    drops: Counter[str]

    @property
    def faults(self) -> list[str]:
        """Failures of autotrace's own."""
        return [name for name in self.drops if name.startswith("fault:")]

    def __str__(self) -> str:
        states = ", ".join(f"{self.states[state]} {said}" for state, said in SAID.items())
        drops = ", ".join(f"{name} {number}" for name, number in self.drops.items()) or "nothing dropped"
        return f"{states}; {self.spans} calls recorded; {drops}"


SAID = {"bound": "functions wrapped", "refused": "refused", "failed": "failed"}


def recorded(runs: Path) -> Recorded:
    """What is in the segments of all runs below ``runs``."""
    states: dict[str, str] = {}
    spans = 0
    drops: Counter[str] = Counter()
    for path in sorted(runs.glob(f"*/{layout.SPOOL}/*{layout.SEGMENT_SUFFIX}")):
        last: dict[str, int] = {}
        fd = os.open(path, os.O_RDONLY)
        try:
            for frame in read_frames(fd):
                record = msgspec.msgpack.decode(frame.payload, type=Record)
                if isinstance(record, Report):
                    states.setdefault(record.name, record.state)
                elif isinstance(record, Open):
                    spans += 1
                elif isinstance(record, Counters):
                    last = record.drops
        except Torn:
            pass  # a process that was killed
        finally:
            os.close(fd)
        drops.update(last)
    return Recorded(Counter(states.values()), spans, drops)
