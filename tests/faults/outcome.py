"""What a fault left behind: calls that happened, calls that the spool holds, spans that were delivered."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from autotrace.ship.shipper import ship
from autotrace.spool.reader import SegmentReader, segments
from autotrace.spool.records import Close, Counters, Define, Open

COUNTED = ("llm", "tool")
"""Roles of the calls that the programs note."""


@dataclass
class Outcome:
    """Of one fault; ``row`` is what ``make faults`` prints."""

    written: int
    """Calls that were over, as the programs themselves noted."""
    recovered: int = 0
    """Of these, in the spool: opened and closed."""
    delivered: int = 0
    """Of these, at the backend."""
    duplicated: int = 0
    """Calls that are there more than once."""
    torn: int = 0
    """Bytes of incomplete records at the ends of segments."""
    lost: dict[int, int] = field(default_factory=dict)
    """Number of a call that is not in the spool -> when it was over (monotonic ns)."""
    drops: dict[str, int] = field(default_factory=dict)
    """What the processes themselves counted as dropped."""

    def row(self) -> tuple[int, int, int, int, int]:
        """Written, delivered, duplicated, lost, torn bytes."""
        return self.written, self.delivered, self.duplicated, self.written - self.delivered, self.torn


def ledgers(run: Path) -> Path:
    """Where the programs note their calls: beside the run folder, outside of a file system that is made to fail."""
    return next(parent for parent in run.parents if not os.path.ismount(parent) and parent.name != "tiny")


def ledger(run: Path) -> dict[int, int]:
    """Number -> when, of the calls that were over."""
    found: dict[int, int] = {}
    for path in ledgers(run).glob(f"{run.name}.ledger-*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                number, at = line.split()
                found[int(number)] = int(at)
    return found


def slowness(run: Path, ends: Mapping[int, int]) -> float:
    """Seconds that a thread like the flusher's needed at the longest for what takes 0.2 s, in the programs of these
    process ids until they ended (monotonic ns)."""
    longest = 0
    for pid, end_ns in ends.items():
        lines = (ledgers(run) / f"{run.name}.beats-{pid}").read_text().splitlines(keepends=True)
        beats = [int(line) for line in lines if line.endswith("\n")]
        longest = max([longest, *(after - before for before, after in pairwise([*beats, end_ns]))])
    return longest / 1e9


def in_spool(run: Path) -> tuple[Counter[int], int, dict[str, int]]:
    """How often each call stands in the spool, opened and closed; torn bytes; drops."""
    calls: Counter[int] = Counter()
    torn = 0
    opened: dict[int, int] = {}
    last: dict[str, dict[str, int]] = {}
    for file in segments(run):
        reader = SegmentReader(run, file.name)
        asked: set[int] = set()
        """Targets whose calls are counted. Not by their parent: where there was no memory for it, they have none."""
        while records := reader.read():
            for located in records:
                record = located.record
                if isinstance(record, Define) and record.role in COUNTED:
                    asked.add(record.id)
                elif isinstance(record, Open) and record.target in asked and "number" in (record.inputs or ()):
                    opened[record.span] = record.inputs["number"]
                elif isinstance(record, Close) and record.span in opened:
                    calls[opened[record.span]] += 1
                elif isinstance(record, Counters):
                    last[file.process] = record.drops
        if reader.incomplete is not None:
            torn += file.size - reader.incomplete.offset
    drops: Counter[str] = Counter()
    for counted in last.values():
        drops.update({reason: count for reason, count in counted.items() if reason.startswith("drop:")})
    return calls, torn, dict(drops)


def at_backend(run: Path) -> Counter[int]:
    """How often each call stands in the file of the ``jsonl`` backend."""
    calls: Counter[int] = Counter()
    path = run / "trajectories.jsonl"
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for line in lines:
        for span in line["spans"]:
            if span["role"] in COUNTED and span.get("end_ns") and span["status"] != "INTERRUPTED":
                calls[span["inputs"]["number"]] += 1
    return calls


def outcome(run: Path, deliver: bool = True) -> Outcome:
    """Read the spool, deliver it into a file and compare with what the programs noted."""
    noted = ledger(run)
    calls, torn, drops = in_spool(run)
    found = Outcome(len(noted), torn=torn, drops=drops)
    found.recovered = sum(number in calls for number in noted)
    found.lost = {number: at for number, at in noted.items() if number not in calls}
    if deliver:
        state = ship(run, once=True).state
        assert state == "done", state
    arrived = at_backend(run)
    found.delivered = sum(number in arrived for number in noted)
    found.duplicated = sum(count - 1 for count in arrived.values()) + sum(count - 1 for count in calls.values())
    return found
