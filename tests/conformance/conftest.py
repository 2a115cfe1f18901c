"""A host: a module of its own, watched or not, an engine of its own, and what was recorded."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from autotrace.adapters import registry
from autotrace.config.plan import Plan, Settings, Target
from autotrace.patch import engine
from autotrace.record import calls, faults, flusher
from autotrace.spool.records import Close, Define, Open, Record, Report
from autotrace.spool.segment import read_frames

HERE = Path(__file__).parent


def records(folder: Path) -> list[Any]:
    """All records of all processes below a run folder."""
    found: list[Any] = []
    for path in sorted((folder / "spool").glob("*.seg")):
        fd = os.open(path, os.O_RDONLY)
        try:
            found += [msgspec.msgpack.decode(frame.payload, type=Record) for frame in read_frames(fd)]
        finally:
            os.close(fd)
    return found


class Host:
    """Modules written for one test; ``watch`` starts the engine on a list of targets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = folder / "code"
        self.code.mkdir()
        sys.path.insert(0, str(self.code))
        self.modules: set[str] = set()
        self.keys: set[str] = set()

    def write(self, name: str, source: str) -> None:
        path = self.code / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        importlib.invalidate_caches()
        self.modules.add(name)

    def load(self, name: str, source: str | None = None) -> ModuleType:
        """Import a module, after writing it."""
        if source is not None:
            self.write(name, source)
        return importlib.import_module(name)

    def watch(self, *targets: str | Target, settings: Settings | None = None) -> None:
        """Start the engine."""
        made = [Target(target, (target,)) if isinstance(target, str) else target for target in targets]
        self.keys.update(target.key for target in made)
        settings = settings or Settings(flush_interval=0.02)
        assert registry.start(Plan(tuple(made), settings, "digest"), str(self.folder / "run"), "run-1") is not None

    def stop(self) -> None:
        engine.stop()

    def records(self, kind: type | None = None) -> list[Any]:
        """What was recorded so far."""
        flusher.flush()
        return [record for record in records(self.folder / "run") if kind is None or isinstance(record, kind)]

    def opened(self) -> list[str]:
        """Names of the calls, in order."""
        names = {record.id: record.name for record in self.records(Define)}
        return [names[record.target] for record in self.records(Open)]

    def statuses(self) -> list[str]:
        """How the calls ended, in order."""
        return [record.status for record in self.records(Close)]

    def reports(self) -> dict[str, tuple[str, str]]:
        """Place -> state and reason."""
        return {record.name: (record.state, record.reason) for record in self.records(Report)}

    def close(self) -> None:
        engine.stop()
        sys.path.remove(str(self.code))
        for name in list(sys.modules):
            if name.partition(".")[0] in {known.partition(".")[0] for known in self.modules}:
                del sys.modules[name]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    assert engine.engine is None
    faults.counts.clear()
    known = set(calls.probes)
    made = Host(tmp_path)
    yield made
    left = {name: count for name, count in faults.counts.items() if name.startswith("fault:")}
    made.close()
    assert not (set(calls.probes) - known) & made.keys, "the engine left probes behind"
    assert not left, f"autotrace failed inside: {left}"
