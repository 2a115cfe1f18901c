"""When a process gets a file of its own."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence

import pytest

from autotrace.config.plan import Settings
from autotrace.record import faults, flusher, statements
from autotrace.record.encoder import RecordEncoder
from autotrace.run import layout
from autotrace.spool.records import Bind, Close, Counters, Open, Seal
from autotrace.spool.writer import SpoolWriter
from tests.record.conftest import Recorder


def test_a_process_that_has_nothing_to_say_leaves_no_file(recorder: Recorder) -> None:
    flusher.shutdown()
    assert not list(recorder.folder.rglob("*.seg"))


def test_what_was_dropped_is_something_to_say(recorder: Recorder) -> None:
    faults.count("drop:memory_limit")
    flusher.shutdown()
    assert recorder.records(Counters)[-1].drops == {"drop:memory_limit": 1}  # they are cumulative
    assert recorder.records(Seal)


def test_a_write_that_hangs_does_not_hold_the_exit(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flusher's thread is in the write of a network file system that does not come back."""
    monkeypatch.setattr(flusher, "PATIENCE", 0.2)
    hanging, returned = threading.Event(), threading.Event()

    def hangs(self: SpoolWriter, frames: Sequence[bytes]) -> int:
        hanging.set()
        returned.wait(30)
        return len(frames)

    monkeypatch.setattr(SpoolWriter, "write", hangs)
    recorder.wrap(lambda: 1, key="one")()
    assert hanging.wait(10)
    began = time.monotonic()
    exits = threading.Thread(target=lambda: [flusher.shutdown() for _ in range(3)], daemon=True)
    exits.start()
    exits.join(10)
    ended = not exits.is_alive()
    spent = time.monotonic() - began
    returned.set()
    assert ended and spent < 5


def test_the_tokenizer_of_a_temporary_folder_is_copied_by_the_process_that_has_it(recorder: Recorder) -> None:
    model = recorder.folder / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text('{"model": 1}')
    (model / "model.safetensors").write_bytes(b"0" * 100)
    statements.bind("tokenizer", {"path": str(model), "trust_remote_code": False})
    flusher.flush()
    shutil.rmtree(model)
    (bind,) = recorder.records(Bind)
    kept = recorder.folder / layout.BLOBS / bind.value["blob"]
    assert [file.name for file in kept.iterdir()] == ["tokenizer.json"]

    statements.bind("tokenizer", {"path": "some/model-of-the-hub"})
    assert "blob" not in recorder.records(Bind)[-1].value
    assert not faults.counts


def _slow_encoding(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    write = RecordEncoder.write

    def slowly(self: RecordEncoder, event: object) -> None:
        time.sleep(seconds)
        write(self, event)

    monkeypatch.setattr(RecordEncoder, "write", slowly)


def test_the_exit_waits_while_there_is_progress(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event takes a while, all of them far longer than is waited for a write that does not come back."""
    monkeypatch.setattr(flusher, "PATIENCE", 0.2)
    _slow_encoding(monkeypatch, 0.02)
    call = recorder.wrap(lambda: 1, key="one")
    for _ in range(50):
        call()
    flusher.shutdown()
    assert len(recorder.records(Close)) == 50 and recorder.records(Seal)
    assert not faults.counts and flusher.abandoned == 0


def test_what_the_drain_timeout_leaves_is_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    (recorder.folder / layout.RUN_JSON).write_text('{"drain_timeout": 0.3}')
    monkeypatch.setattr(flusher, "abandoned", 0)
    recorder.use(Settings(flush_interval=60.0))
    _slow_encoding(monkeypatch, 0.02)
    call = recorder.wrap(lambda: 1, key="one")
    for _ in range(100):
        call()
    flusher.shutdown()
    lost = flusher.abandoned
    assert 0 < lost < 200 and recorder.records(Counters)[-1].drops == {"drop:exit": lost}
    assert lost + len(recorder.records(Close)) + len(recorder.records(Open)) == 200 and recorder.records(Seal)
