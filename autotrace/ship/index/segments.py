"""The segments of a run as the indexer reads them: where each was left, what its targets are called, whose it is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotrace.ship.index.processes import Processes
from autotrace.ship.store.state import State
from autotrace.spool.reader import Located, SegmentFile, SegmentReader
from autotrace.spool.records import Define, Header
from autotrace.trajectory.jsonable import text


class Segment:
    """One segment and its number in the state."""

    def __init__(self, id: int, name: str, reader: SegmentReader) -> None:
        self.id = id
        self.process = SegmentFile(name, 0, 0).process
        self.reader = reader
        self.targets: dict[int, tuple[str, str]] = {}
        """Number of a target -> name, role."""

    def target(self, number: int) -> tuple[str, str]:
        """Name and role of a target."""
        return self.targets.get(number, ("?", "span"))

    def has_news(self, file: SegmentFile) -> bool:
        """There is something to read; an incomplete end is looked at again only when the file has changed."""
        reader = self.reader
        if reader.finished or file.size == reader.offset:
            return False
        return reader.incomplete is None or file.size != reader.tried


class Segments:
    """All segments of one run; remembers how far each was read."""

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
        """The segment ``file``, added when it is new."""
        segment = self._segments.get(file.name)
        if segment is None:
            reader = SegmentReader(self._run_folder, file.name)
            segment = Segment(self._state.add_segment(file.name), file.name, reader)
            self._segments[file.name] = segment
        return segment

    @property
    def readers(self) -> dict[str, SegmentReader]:
        """By name of the segment."""
        return {name: segment.reader for name, segment in self._segments.items()}

    def read(self, segment: Segment, budget: int, processes: Processes) -> list[Located]:
        """What is new in ``segment``, about ``budget`` bytes at most; nothing when it cannot be read now."""
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
        """Store how far it was read."""
        reader = segment.reader
        self._state.put_segment(segment.id, reader.offset, reader.header, reader.sealed, reader.unusable)

    def define(self, segment: Segment, define: Define) -> None:
        """A target is named."""
        segment.targets[define.id] = (define.name, define.role)
        self._state.put_define(segment.id, define)
