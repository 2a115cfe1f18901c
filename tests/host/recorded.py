"""What a run recorded, in one line: the proof that something was watched at all."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec

from autotrace.spool import layout
from autotrace.spool.records import Counters, Open, Record, Report
from autotrace.spool.segment import Torn, read_frames


def summary(runs: Path) -> str:
    """Functions bound, refused and failed, calls recorded, and failures of autotrace's own."""
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
    count = Counter(states.values())
    return (
        f"{count['bound']} functions wrapped, {count['refused']} refused, {count['failed']} failed; "
        f"{spans} calls recorded; " + (", ".join(f"{name} {n}" for name, n in drops.items()) or "nothing dropped")
    )
