"""Track the processes of a run and their segments: living processes, ends, counters and reports; for each segment the
read position, the names of targets, and the process."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from autotrace.run.drain import shipper_alive
from autotrace.run.status import Status
from autotrace.ship.store.state import State
from autotrace.spool.reader import Located, SegmentFile, SegmentReader, segments, size_of, writer_alive
from autotrace.spool.records import ENDED, EXEC, Counters, Define, Header, Report
from autotrace.trajectory.jsonable import text

_QUIET_NS = 1_000_000_000
"""Age of a segment in ns below which the lock is not checked: the writer may be about to take the lock."""
_PROBE_EVERY = 0.5
"""Seconds between two checks of the lock of a process."""
_AT_ONCE = -1.0
_GONE = "its segments are gone"
_ROTATION_GRACE = 5.0
"""Seconds in which the next segment follows a seal with the reason ``rotate``."""
_RECENT_NS = 60 * 10**9
"""Time in ns within which a shipper of another host, whose locks may not show here, has written its status."""
_GOES_ON = ("running", "draining")


def status_now(status: Status, run_folder: str | Path) -> Status:
    """Update the last ``status`` of a run without a shipper: the locks of segments show which processes live, and a
    run without a living process is ``stopped``."""
    elsewhere = status.host != os.uname().nodename and abs(time.time_ns() - status.updated_ns) < _RECENT_NS
    if (status.living or status.state in _GOES_ON) and not elsewhere and not shipper_alive(str(run_folder)):
        files = [file for file in segments(run_folder) if file.size]
        status.living = len({file.process for file in files if writer_alive(run_folder, file.name)})
        if not status.living and status.state in _GOES_ON:
            status.state = "stopped"
    return status


@dataclass
class Process:
    """Describe a writing process."""

    last_ns: int = 0
    """Wall-clock time of the last record."""
    ended: str | None = None
    """End of the process: ``exit``, ``ended``, ``died``, ...; None while living."""
    torn: int = 0
    """Bytes at the end of the last segment that do not make a complete record."""
    skipped: Counter[str] = field(default_factory=Counter)
    counters: bytes | None = None
    probed: float = 0.0
    quiet_since: float = 0.0
    dirty: bool = True


class Processes:
    """Hold all processes of a run."""

    def __init__(self, state: State, run_folder: str | Path) -> None:
        self._state = state
        self._run_folder = run_folder
        self._by_name: dict[str, Process] = {}
        for row in state.db.execute("SELECT * FROM processes"):
            skipped = Counter(msgspec.json.decode(row["skipped"], type=dict[str, int]))
            self._by_name[row["process"]] = Process(
                row["last_ns"], row["ended"], row["torn"], skipped, row["counters"], dirty=False
            )

    def of(self, name: str) -> Process:
        """Return the process of this name; create a new process if needed."""
        process = self._by_name.get(name)
        if process is None:
            process = self._by_name[name] = Process()
        return process

    def has_ended(self, name: str) -> bool:
        """Return whether the process will write nothing more."""
        process = self._by_name.get(name)
        return process is None or process.ended is not None

    def living(self) -> list[str]:
        """Return the processes that may still write."""
        return [name for name, process in self._by_name.items() if process.ended is None]

    def heard(self, name: str, at_ns: int) -> None:
        """Register a record of that time from the process."""
        process = self.of(name)
        # another node out of reach for a while; a segment after all were removed; a program that could not be run
        if process.ended in ("died", _GONE, ENDED, EXEC):
            process.ended, process.dirty = None, True
        if at_ns > process.last_ns:
            process.last_ns, process.dirty = at_ns, True

    def skip(self, name: str, reason: str, count: int = 1) -> None:
        """Count records that were skipped."""
        process = self.of(name)
        process.skipped[reason] += count
        process.dirty = True

    def skipped(self, name: str, reader: SegmentReader) -> None:
        """Take over the counts of records that a reader skipped."""
        self.of(name)
        for reason, count in reader.skipped.items():
            self.skip(name, reason, count)
        reader.skipped.clear()

    def count(self, name: str, record: Counters) -> None:
        """Store the latest counters, which are cumulative."""
        process = self.of(name)
        process.counters = msgspec.msgpack.encode(
            {"calls": record.calls, "drops": record.drops, "gauges": record.gauges, "paths": record.paths}
        )
        process.dirty = True

    def report(self, name: str, record: Report) -> None:
        """Store the state of a target."""
        self._state.db.execute(
            "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?)",
            (name, text(record.key), text(record.name), text(record.state), text(record.reason)[:1000]),
        )

    def probe_all(self) -> None:
        """Check every lock again at the next ``watch``, however young the segment, if the segment has a header."""
        for process in self._by_name.values():
            process.probed = _AT_ONCE

    def watch(self, files: Sequence[SegmentFile], readers: Mapping[str, SegmentReader]) -> None:
        """Find the processes that ended; ``files`` are in order within each process. Inside a transaction."""
        last = {file.process: file for file in files}
        for name, process in self._by_name.items():
            file = last.get(name)
            if process.ended is None:
                process.ended = _GONE if file is None else self._end(process, file, readers[file.name])
                if process.ended == "died" and self._is_ended(name):
                    process.ended = ENDED
                process.dirty = process.dirty or process.ended is not None
            if process.dirty:
                self._store(name, process)

    def _end(self, process: Process, file: SegmentFile, reader: SegmentReader) -> str | None:
        now = time.monotonic()
        if reader.unusable:
            return "unusable"
        if reader.sealed is not None and reader.sealed != "rotate":
            return text(reader.sealed)[:100]
        if file.size > reader.offset and reader.incomplete is None:
            process.quiet_since = 0.0
            return None  # more to read
        if reader.sealed is not None:
            process.quiet_since = process.quiet_since or now
            return "died" if now - process.quiet_since > _ROTATION_GRACE else None
        young = time.time_ns() - file.changed_ns < _QUIET_NS
        at_once = process.probed == _AT_ONCE and reader.header is not None  # the writer has taken the lock before
        if not at_once and (young or now - process.probed < _PROBE_EVERY):
            return None
        process.probed = now
        if writer_alive(self._run_folder, file.name) or size_of(self._run_folder, file.name) != file.size:
            return None  # the size: the process wrote after the folder was listed, and died then
        if reader.incomplete is not None:
            process.torn = file.size - reader.offset
        return "died"

    def _is_ended(self, name: str) -> bool:
        """Return whether another process of the run sent the process a signal that kills."""
        host, pid, _ = name.rsplit("-", 2)
        senders = self._state.db.execute("SELECT process FROM reports WHERE state = ? AND name = ?", (ENDED, pid))
        return any(sender.rsplit("-", 2)[0] == host for (sender,) in senders)

    def _store(self, name: str, process: Process) -> None:
        skipped = msgspec.json.encode(dict(process.skipped)).decode()
        self._state.db.execute(
            "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?, ?, ?)",
            (name, process.last_ns, process.ended, process.torn, skipped, process.counters),
        )
        process.dirty = False


class Segment:
    """Hold a segment and its number in the state."""

    def __init__(self, id: int, name: str, reader: SegmentReader) -> None:
        self.id = id
        self.process = SegmentFile(name, 0, 0).process
        self.reader = reader
        self.targets: dict[int, tuple[str, str]] = {}
        """Number of a target -> name, role."""

    def target(self, number: int) -> tuple[str, str]:
        """Return name and role of a target."""
        return self.targets.get(number, ("?", "span"))

    def has_news(self, file: SegmentFile) -> bool:
        """Return whether the segment has unread records; an incomplete end is checked again only when the file has
        changed."""
        reader = self.reader
        if reader.finished or file.size == reader.offset:
            return False
        return reader.incomplete is None or file.size != reader.tried


class Segments:
    """Hold all segments of a run and the read position of each segment."""

    def __init__(self, state: State, run_folder: str | Path, run_id: str) -> None:
        self._state = state
        self._run_folder = run_folder
        self._run_id = run_id
        self._segments: dict[str, Segment] = {}
        for name, row in state.segments().items():
            header = None if row["header"] is None else msgspec.msgpack.decode(row["header"], type=Header)
            reader = SegmentReader(run_folder, name, row["offset"], header)
            reader.sealed, reader.unusable = row["sealed"], row["unusable"]
            segment = self._segments[name] = Segment(row["id"], name, reader)
            for define in state.db.execute("SELECT * FROM defines WHERE segment = ?", (segment.id,)):
                segment.targets[define["id"]] = (define["name"], define["role"])

    def of(self, file: SegmentFile) -> Segment:
        """Return the segment ``file``; add a new segment if needed."""
        segment = self._segments.get(file.name)
        if segment is None:
            id = self._state.db.execute("INSERT INTO segments (name, offset) VALUES (?, 0)", (file.name,)).lastrowid
            reader = SegmentReader(self._run_folder, file.name)
            segment = self._segments[file.name] = Segment(id or 0, file.name, reader)
        return segment

    @property
    def readers(self) -> dict[str, SegmentReader]:
        """Return name of a segment -> reader."""
        return {name: segment.reader for name, segment in self._segments.items()}

    def read(self, segment: Segment, budget: int, processes: Processes) -> list[Located]:
        """Return new records of ``segment``, about ``budget`` bytes at most; empty if the segment cannot be read
        now."""
        reader = segment.reader
        try:
            located = reader.read(budget)
        except OSError:
            return []
        if reader.header is not None and reader.header.run_id != self._run_id:
            reader.unusable, located = f"it belongs to the run {text(reader.header.run_id)}", []
        processes.skipped(segment.process, reader)
        return located

    def remember(self, segment: Segment) -> None:
        """Store the read position of a segment."""
        reader = segment.reader
        header = None if reader.header is None else msgspec.msgpack.encode(reader.header)
        self._state.db.execute(
            "UPDATE segments SET offset = ?, header = ?, sealed = ?, unusable = ? WHERE id = ?",
            (reader.offset, header, reader.sealed, reader.unusable, segment.id),
        )

    def define(self, segment: Segment, define: Define) -> None:
        """Store the name of a target."""
        segment.targets[define.id] = (define.name, define.role)
        self._state.db.execute(
            "INSERT OR REPLACE INTO defines VALUES (?, ?, ?, ?, ?)",
            (segment.id, define.id, define.key, define.name, define.role),
        )
