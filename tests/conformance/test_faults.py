"""A failure of autotrace's own, at every seam: it never reaches the host, is counted, and said once."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotrace.config.plan import Settings, Target
from autotrace.patch import engine
from autotrace.record import calls, faults, flusher
from autotrace.run import files

from .conftest import Host

SOURCE = """
class Broken(Exception): ...
def plain(x, y=2, *, z=3):
    if x < 0: raise Broken(x)
    return [x, y, z]
async def coroutine(x):
    if x < 0: raise Broken(x)
    return {"x": x}
def generator(x):
    if x < 0: raise Broken(x)
    yield x
    yield x + 1
    return "end"
async def async_generator(x):
    if x < 0: raise Broken(x)
    yield x
    yield x + 1
def deferred(x):
    return coroutine(x)
class Thing:
    ids = [1, 2, 3]
    def method(self, x):
        if x < 0: raise Broken(x)
        return self
"""
NAMES = ("plain", "coroutine", "generator", "async_generator", "deferred", "Thing.method")


class Injected(Exception):
    """What autotrace's own code raises in these tests."""


def breaks(*args: Any, **kwargs: Any) -> Any:
    raise Injected("a secret of the host's")


class Sometimes:
    """Works as it did the first ``number`` times."""

    def __init__(self, original: Any, number: int) -> None:
        self.original = original
        self.left = number

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        return self.original(*args, **kwargs) if self.left >= 0 else breaks()


def everything(module: ModuleType, x: int) -> list[Any]:
    """Every kind of call, succeeding or (``x`` negative) failing; what the host saw."""
    seen: list[Any] = []

    async def collect() -> list[Any]:
        return [item async for item in module.async_generator(x)]

    def drive() -> list[Any]:
        items, stream = [], module.generator(x)
        while True:
            try:
                items.append(next(stream))
            except StopIteration as stop:
                return [items, stop.value]

    thing = module.Thing()
    for call in (
        lambda: module.plain(x), lambda: module.plain(x, [x], z=[x]), lambda: asyncio.run(module.coroutine(x)), drive,
        lambda: asyncio.run(collect()), lambda: asyncio.run(module.deferred(x)), lambda: thing.method(x) is thing,
        lambda: module.plain(),
    ):  # fmt: skip
        try:
            seen.append(call())
        except Exception as error:
            seen.append((type(error).__name__, str(error), repr(error.__context__), repr(error.__cause__)))
    return seen


SEAMS = {
    "id": "autotrace.record.ids.next_span_id",
    "trace id": "autotrace.record.ids.new_trace_id",
    "clock": "autotrace.record.calls._monotonic_ns",
    "clock at the end": "autotrace.record.closing._monotonic_ns",
    "arguments": "autotrace.record.arguments.Signature.positional",
    "keyword arguments": "autotrace.record.arguments.Signature.keywords",
    "signature": "autotrace.record.probe.Probe.signature",
    "paths": "autotrace.record.capture.CapturedValues.read",
    "result": "autotrace.record.capture.CapturedValues.output",
    "error": "autotrace.record.errors.described",
    "status": "autotrace.record.errors.status_of",
    "memory limit": "autotrace.record.backlog.Backlog.full",
    "sampling": "autotrace.record.sampling.admits",
    "batch": "autotrace.record.sampling.refuse",
    "copy of an argument": "autotrace.record.arguments.captured",
    "copy of a result": "autotrace.record.capture.captured",
    "copy of a result without its tokens": "autotrace.record.capture.snapshot",
    "tokens": "autotrace.record.calls.copy_tokens",
    "tokens of the result": "autotrace.record.closing.copy_tokens",
    "facts": "autotrace.record.closing._facts",
    "result to be run later": "autotrace.record.drivers.drive",
}
"""What runs on the host's threads. (``compiling`` is torch's own.)"""

LATER = {
    "framing": "autotrace.record.record_writer.RecordWriter._framed",
    "encoder": "autotrace.record.encoder.RecordEncoder.write",
    "redaction": "autotrace.redact.redactor.Redactor.clean",
    "spool open": "autotrace.spool.writer.SpoolWriter.open",
    "spool write": "autotrace.spool.writer.SpoolWriter.write",
    "token store": "autotrace.record.token_prefixes.TokenLog.prompt",
    "counters": "autotrace.patch.engine._calls",
    "relay": "autotrace.run.remote_node.start_relay",
}
"""What runs on the flusher's."""


@pytest.fixture
def targets() -> list[Target]:
    made = [Target(name, (f"seams.{name}",), attributes={"x": ("x",)}) for name in NAMES]
    return [
        *made[:-1],
        Target(
            "Thing.method",
            ("seams.Thing.method",),
            role="trajectory",
            facts={"seen": ("result.x",)},
            tokens={"prompt": ("self.ids",), "response": ("result.ids",)},
            batch={"group": ("self.ids",)},
        ),
    ]


def watched(host: Host, targets: list[Target], **settings: Any) -> tuple[ModuleType, ModuleType]:
    bare = host.load("bare_seams", SOURCE)
    host.watch(*targets, settings=Settings(flush_interval=0.01, **settings))
    return bare, host.load("seams", SOURCE)


def taken() -> dict[str, int]:
    """The faults so far, which the test expected."""
    found = {name: count for name, count in faults.counts.items() if name.startswith("fault:")}
    for name in found:
        del faults.counts[name]
    return found


@pytest.mark.parametrize("works", [0, 1, 2, 5, 12], ids=lambda number: f"after {number}")
@pytest.mark.parametrize("seam", SEAMS.values(), ids=SEAMS.keys())
def test_a_failure_on_the_hosts_thread_stays_ours(
    host: Host, targets: list[Target], seam: str, works: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare, traced = watched(host, targets)
    breaking = Sometimes(_resolved(seam), works)
    monkeypatch.setattr(seam, lambda *args, **kwargs: breaking(*args, **kwargs))
    for _ in range(3):
        for x in (1, -1):
            assert everything(traced, x) == everything(bare, x)
    monkeypatch.undo()
    host.records()
    assert taken() or breaking.left >= 0, "nobody counted it"


@pytest.mark.parametrize("seam", LATER.values(), ids=LATER.keys())
def test_a_failure_on_the_flushers_thread_stays_ours(
    host: Host, targets: list[Target], seam: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seam, breaks)
    bare, traced = watched(host, targets)
    assert everything(traced, 1) == everything(bare, 1)
    flusher.shutdown()
    assert everything(traced, -1) == everything(bare, -1)
    flusher.shutdown()
    monkeypatch.undo()
    assert taken(), "nobody counted it"


@pytest.mark.parametrize(
    "seam",
    [
        "autotrace.patch.wrapper.place",
        "autotrace.record.template.code_for",
        "autotrace.patch.binder.Binder._attribute",
        "autotrace.patch.binder.Binder.created",
        "autotrace.patch.binder.Binder.module",
        "autotrace.patch.import_hook.ImportHook._hook",
        "autotrace.patch.import_hook._hook_execution",
        "autotrace.record.backlog.Backlog.report",
    ],
    ids=lambda seam: seam.rpartition(".")[2],
)  # fmt: skip
def test_a_failure_while_binding_leaves_the_module_as_it_is(
    host: Host, targets: list[Target], seam: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seam, breaks)
    bare, traced = watched(host, targets)
    for x in (1, -1):
        assert everything(traced, x) == everything(bare, x)
    monkeypatch.undo()
    failed = [reason for state, reason in host.reports().values() if state == "failed"]
    assert taken() or failed, "neither counted nor reported"


def test_after_ten_failures_a_target_is_switched_off_and_reported(
    host: Host, targets: list[Target], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, traced = watched(host, targets)
    monkeypatch.setattr("autotrace.record.ids.next_span_id", breaks)
    faults._logged_at.clear()
    with caplog.at_level(logging.WARNING, "autotrace"):
        for x in range(30):
            assert traced.plain(x) == [x, 2, 3]
    monkeypatch.undo()
    assert taken() == {"fault:begin:plain": 10} and calls.probes["plain"].is_off
    assert host.reports()["plain"][0] == "failed"
    assert traced.plain(1) == [1, 2, 3] and not host.opened()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 and "secret" not in lines[0] and "Injected" in lines[0]


def test_a_failing_report_does_not_matter(host: Host, targets: list[Target], monkeypatch: pytest.MonkeyPatch) -> None:
    _, traced = watched(host, targets)
    monkeypatch.setattr("autotrace.record.ids.next_span_id", breaks)
    monkeypatch.setattr("autotrace.patch.engine.report", breaks)
    calls.probes["plain"].on_fault = breaks
    for x in range(30):
        assert traced.plain(x) == [x, 2, 3]
    assert taken() == {"fault:begin:plain": 10, "fault:report": 1}


def test_logging_that_fails_does_not_matter(host: Host, targets: list[Target], monkeypatch: pytest.MonkeyPatch) -> None:
    _, traced = watched(host, targets)
    monkeypatch.setattr("autotrace.record.ids.next_span_id", breaks)
    monkeypatch.setattr(faults.log, "warning", breaks)
    faults._logged_at.clear()
    assert traced.plain(1) == [1, 2, 3]
    assert taken() == {"fault:begin:plain": 1}


def test_a_redaction_hook_that_fails_keeps_the_value_back(host: Host, targets: list[Target]) -> None:
    host.load("hooks", "def clean(name, value): raise RuntimeError('no')\n")
    _, traced = watched(host, targets, redact_hook="hooks:clean")
    assert traced.plain("a prompt".__len__()) == [8, 2, 3]
    (opened,) = [record for record in host.records() if type(record).__name__ == "Open"]
    assert opened.inputs == {"x": {"…": "redaction failed"}}
    assert taken().keys() == {"fault:redact"}


def test_a_full_disk_loses_records_not_calls(host: Host, targets: list[Target]) -> None:
    """``/dev/full`` answers every write with ENOSPC."""
    bare, traced = watched(host, targets)
    host.records()
    assert flusher._flusher is not None
    writer = flusher._flusher._writer._segments
    writer._file, writer._size = files.Descriptor(os.open("/dev/full", os.O_WRONLY)), 0
    for x in (1, -1):
        assert everything(traced, x) == everything(bare, x)
    flusher.flush()
    assert set(taken()) == {"fault:spool"}


@pytest.mark.parametrize("content", [None, "", "{}", '{"version": 99}', "\x00"])
def test_a_plan_that_cannot_be_read_means_no_tracing(
    tmp_path: Path, content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("AUTOTRACE_PLAN", str(path))
    monkeypatch.setenv("AUTOTRACE_RUN_FOLDER", str(tmp_path))
    assert engine.start() is None and engine.engine is None
    assert taken() == {"fault:start": 1}


def _resolved(path: str) -> Any:
    from importlib import import_module

    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(path)
