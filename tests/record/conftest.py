"""A probe and a spool of the test's own: calls go in, decoded records come out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import msgspec
import pytest

from autotrace.config.plan import Settings, Target
from autotrace.patch.wrapper import wrap
from autotrace.record import calls, context, faults, flusher
from autotrace.record.probe import Probe
from autotrace.spool.records import Define, Record
from autotrace.spool.segment import read_frames
from tests.waiting import until


class Recorder:
    """Wraps functions and reads back what their calls left in the spool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(flush_interval=0.01)
        flusher.configure(str(folder), "run-1", self.settings, "digest")

    def use(self, settings: Settings) -> None:
        """Record with other settings from now on."""
        self.settings = settings
        flusher.configure(str(self.folder), "run-1", settings, "digest")

    def start(self) -> None:
        """Have the flusher's thread run already. Until Python 3.11 one that is about to may get an exception that is
        set in its starter, which then arrives there a little later (see ``own_thread``)."""
        assert flusher._flusher is not None
        flusher._flusher.start()
        until(lambda: flusher._thread)

    def wrap(self, function: Callable[..., Any], **target: Any) -> Callable[..., Any]:
        """A function like ``function``, recorded under its own name."""
        key = target.pop("key", function.__qualname__)
        calls.probes[key] = Probe(Target(key, (key,), **target), self.settings)
        assert type(function) is FunctionType
        return wrap(function, key)

    def records(self, kind: type | None = None) -> list[Any]:
        """Every record written so far, in order."""
        flusher.flush()
        return self.read(kind)

    def read(self, kind: type | None = None) -> list[Any]:
        """Every record that is in the files now."""
        segments: list[list[Any]] = []
        for path in (self.folder / "spool").glob("*.seg"):
            fd = os.open(path, os.O_RDONLY)
            try:
                segments.append([msgspec.msgpack.decode(frame.payload, type=Record) for frame in read_frames(fd)])
            finally:
                os.close(fd)
        segments = [records for records in segments if records]  # one that was just made is empty
        segments.sort(key=lambda records: records[0].mono_ns)  # each begins with its header
        return [record for found in segments for record in found if kind is None or isinstance(record, kind)]

    def names(self) -> dict[int, str]:
        """Target number -> name, of the records so far."""
        return {record.id: record.name for record in self.records(Define)}


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    before = dict(calls.probes)
    faults.counts.clear()
    assert "autotrace.record.calls" in sys.modules
    yield Recorder(tmp_path)
    flusher.stop()
    calls.probes.clear()
    calls.probes.update(before)
    calls.decide = None
    context.current.set(None)  # on Python 3.10 a timeout may leave a span there: BETWEEN of test_origin.py
