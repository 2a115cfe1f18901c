"""When a process gets a file of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotrace.config.plan import Settings
from autotrace.record import faults, flush_requests, flusher, own_thread, statements
from autotrace.record.backlog import backlog
from autotrace.record.encoder import RecordEncoder
from autotrace.record.record_writer import RecordWriter
from autotrace.run import files, layout
from autotrace.run.losses import DISK_FULL
from autotrace.spool.records import Bind, Close, Counters, Open, Report, Seal
from autotrace.spool.writer import SpoolWriter
from tests.record.conftest import Recorder
from tests.waiting import DEADLINE, until


def test_a_process_that_has_nothing_to_say_leaves_no_file(recorder: Recorder) -> None:
    flusher.shutdown()
    assert not list(recorder.folder.rglob("*.seg"))


@pytest.mark.parametrize("taken", [False, True])
def test_the_next_segment_has_the_descriptor_of_the_one_before(tmp_path: Path, taken: bool) -> None:
    """A host that lists its descriptors before and after sees the same ones (trio's tests do)."""
    low = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    writer = SpoolWriter(str(tmp_path), "run-1", "")
    writer.open()
    before = writer._number()
    for fd in low:
        os.close(fd)
    writer.seal("rotate")
    hosts = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, before) if taken else -1
    try:
        writer.open()
        assert (writer._number() == before) is not taken
        assert os.get_inheritable(writer._number()) is False
        writer.seal("exit")
    finally:
        if taken:
            assert hosts == before
            os.close(hosts)
    assert len(list(tmp_path.rglob("*.seg"))) == 2


def test_what_was_dropped_is_something_to_say(recorder: Recorder) -> None:
    faults.count("drop:memory_limit")
    flusher.shutdown()
    assert recorder.records(Counters)[-1].drops == {"drop:memory_limit": 1}  # they are cumulative
    assert recorder.records(Seal)


def test_a_write_that_hangs_does_not_hold_the_exit(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flusher's thread is in the write of a network file system that does not come back."""
    monkeypatch.setattr(flusher, "PATIENCE", 0.2)
    (recorder.folder / layout.RUN_JSON).write_text('{"drain_timeout": 1e6}')
    hanging, returned = threading.Event(), threading.Event()

    def hangs(self: SpoolWriter, frames: Sequence[bytes]) -> int:
        hanging.set()
        returned.wait()
        return len(frames)

    monkeypatch.setattr(SpoolWriter, "write", hangs)
    recorder.wrap(lambda: 1, key="one")()
    assert hanging.wait(DEADLINE)
    exits = threading.Thread(target=lambda: [flusher.shutdown() for _ in range(3)], daemon=True)
    exits.start()
    exits.join(DEADLINE)
    ended = not exits.is_alive()
    returned.set()
    assert ended


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


def test_a_tokenizer_that_is_deleted_while_it_is_copied_is_no_failure(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = recorder.folder / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text('{"model": 1}')
    monkeypatch.setattr(files, "overwrite", lambda _path: shutil.rmtree(model) or os.open(os.devnull, os.O_WRONLY))
    (model / "vocab.json").write_text("{}")
    statements.bind("tokenizer", {"path": str(model), "trust_remote_code": False})
    flusher.flush()
    (bind,) = recorder.records(Bind)
    assert not model.exists() and bind.value["path"] == str(model) and "blob" not in bind.value
    assert not faults.counts


def _slow_encoding(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    write = RecordEncoder.write

    def slowly(self: RecordEncoder, event: object) -> None:
        time.sleep(seconds)
        write(self, event)

    monkeypatch.setattr(RecordEncoder, "write", slowly)


def test_the_exit_waits_while_there_is_progress(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event takes a while, all of them far longer than is waited for a write that does not come back."""
    monkeypatch.setattr(flusher, "PATIENCE", 2.0)
    _slow_encoding(monkeypatch, 0.05)
    call = recorder.wrap(lambda: 1, key="one")
    for _ in range(30):
        call()
    flusher.shutdown()
    assert len(recorder.records(Close)) == 30 and recorder.records(Seal)
    assert not faults.counts


def test_what_the_drain_timeout_leaves_is_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it takes ten seconds."""
    monkeypatch.setattr(flusher, "PATIENCE", 1.0)
    (recorder.folder / layout.RUN_JSON).write_text('{"drain_timeout": 1.5}')
    recorder.use(Settings(flush_interval=60.0))
    _slow_encoding(monkeypatch, 0.05)
    call = recorder.wrap(lambda: 1, key="one")
    for _ in range(100):
        call()
    flusher.shutdown()
    lost = faults.counts["drop:exit"]
    assert 0 < lost < 200 and recorder.records(Counters)[-1].drops == {"drop:exit": lost}
    assert lost + len(recorder.records(Close)) + len(recorder.records(Open)) == 200 and recorder.records(Seal)


class Blocking:
    """An encoder that stands still at the first event with a weight of at least ``weight``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, weight: int) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        write = RecordEncoder.write

        def blocking(encoder: RecordEncoder, event: object) -> None:
            if getattr(event, "weight", 0) >= weight and not self.reached.is_set():
                self.reached.set()
                self.go_on.wait(DEADLINE)
            write(encoder, event)

        monkeypatch.setattr(RecordEncoder, "write", blocking)


def test_what_is_being_encoded_or_gathered_at_a_forced_exit_is_counted(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "PATIENCE", 0.2)
    monkeypatch.setattr(flusher, "HEAVY", 1 << 40)
    monkeypatch.setattr(flusher, "SLOW", 0)
    monkeypatch.setattr(RecordWriter, "due", False)  # what is gathered stays so
    blocking = Blocking(monkeypatch, 100_000)
    call = recorder.wrap(lambda text: None, key="one")
    call("small")  # its two records, and that which defines the target, are gathered
    call("x" * 200_000)  # its opening is being encoded, its end waits
    try:
        assert blocking.reached.wait(DEADLINE)
        flusher.shutdown()
        assert not recorder.folder.joinpath("spool").exists()
        assert faults.counts["drop:exit"] == 5
    finally:
        blocking.go_on.set()


def test_what_a_full_disk_does_not_take_at_exit_is_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: SpoolWriter, frames: Sequence[bytes]) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SpoolWriter, "write", full)
    recorder.wrap(lambda: 1, key="one")()
    flusher.shutdown()
    assert faults.counts[f"{DISK_FULL}{recorder.folder}"] >= 2 and (recorder.folder / layout.DISK_FULL).exists()


def _opened(recorder: Recorder) -> int:
    """Records of the file, which is not flushed."""
    return len(recorder.read(Open))


def test_a_shorter_interval_holds_at_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is asleep, for the interval of the run before."""
    asleep, take = threading.Event(), flush_requests.take

    def taken(seconds: float) -> list[flush_requests.FlushRequest]:
        if seconds >= 60:
            asleep.set()
        return take(seconds)

    monkeypatch.setattr(flush_requests, "take", taken)
    call = recorder.wrap(lambda: 1, key="one")
    recorder.use(Settings(flush_interval=60.0))
    call()
    flusher.flush()
    try:
        assert asleep.wait(DEADLINE)
        wake = flush_requests._wake
        recorder.use(Settings(flush_interval=0.01))
        call()
        until(lambda: _opened(recorder) == 2)
    finally:
        wake.release()  # the thread of before ends


def test_what_is_gathered_is_written_before_a_heavy_event(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.use(Settings(flush_interval=1.0))
    blocking = Blocking(monkeypatch, 2 * flusher.HEAVY)
    call = recorder.wrap(lambda text: None, key="one")
    call("small")
    call(["x" * 60_000] * 20)
    try:
        assert blocking.reached.wait(DEADLINE)
        assert _opened(recorder) == 1
    finally:
        blocking.go_on.set()


def test_what_is_gathered_is_written_before_each_event_where_they_are_slow(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.use(Settings(flush_interval=0.1))
    call = recorder.wrap(lambda text: None, key="one")
    slow = Blocking(monkeypatch, 10_000)
    call("x" * 20_000)
    assert slow.reached.wait(DEADLINE)
    time.sleep(0.2)  # what it takes, whatever else happens
    slow.go_on.set()
    running = flusher._flusher
    assert running is not None
    until(lambda: _opened(recorder) == 1 and not running._busy.locked())  # it goes on with the encoder it began with
    again = Blocking(monkeypatch, 10_000)
    call("small")
    call("x" * 20_000)
    try:
        assert again.reached.wait(DEADLINE)
        assert _opened(recorder) == 2
    finally:
        again.go_on.set()


def test_a_forked_child_counts_anew(recorder: Recorder) -> None:
    from autotrace.patch import engine

    flusher.calls_of = engine._calls
    call = recorder.wrap(lambda: 1, key="one")
    call()
    faults.count("drop:memory_limit", 3)
    for _ in range(2):
        child = os.fork()
        if child == 0:
            try:
                engine._after_fork_in_child()
                call()
                flusher.shutdown()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    try:
        flusher.shutdown()
    finally:
        flusher.calls_of = dict
    counted = recorder.read(Counters)
    assert [(record.calls, record.drops) for record in counted if record.drops][-1] == (
        {"one": 1},
        {"drop:memory_limit": 3},
    )
    children = [record.calls for record in counted if not record.drops]
    assert len(children) >= 2 and all(calls == {"one": 1} for calls in children)


def test_what_is_given_up_at_the_exit_is_counted_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit of a run's first process ends recording after the exit hook of the flusher did."""
    recorder.use(Settings(flush_interval=60.0))

    def full(self: SpoolWriter, frames: Sequence[bytes]) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SpoolWriter, "write", full)
    recorder.wrap(lambda: 1, key="one")()
    flusher.shutdown()
    reason = f"{DISK_FULL}{recorder.folder}"
    once = faults.counts[reason]
    flusher.shutdown()
    assert once == faults.counts[reason] >= 2


def test_a_thread_whose_start_was_interrupted_is_started_by_the_next_event(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout of the host's arrives in the first call of a process, which starts the thread."""
    start = own_thread.start
    attempts: list[Callable[[], None]] = []
    called, over = threading.Event(), threading.Event()

    def interrupted(run: Callable[[], None]) -> None:
        def watched() -> None:
            called.wait(DEADLINE)  # a thread that runs looks after the next event itself
            run()
            over.set()

        attempts.append(run)
        start(watched)
        if len(attempts) == 1:
            raise Exceeded

    class Exceeded(Exception): ...

    monkeypatch.setattr(flusher, "_started", False)
    monkeypatch.setattr(backlog, "watchful", True)
    monkeypatch.setattr(own_thread, "start", interrupted)
    traced = recorder.wrap(lambda: 1, key="one")
    traced()
    traced()
    called.set()
    assert len(attempts) == 2
    assert over.wait(DEADLINE)  # of two threads one ends


def test_what_is_said_beside_other_things_is_no_reason_for_a_file(recorder: Recorder) -> None:
    recorder.start()
    backlog.report("inside", "client:ask", "bound", "", alone=False)
    flusher.shutdown()
    assert not list(recorder.folder.rglob("*.seg"))

    recorder.start()
    recorder.wrap(lambda: 1, key="one")()
    backlog.report("inside", "client:stream", "bound", "", alone=False)
    flusher.shutdown()
    assert [report.name for report in recorder.records(Report)] == ["client:ask", "client:stream"]


def test_stop_ends_the_thread_however_short_it_has_run(tmp_path: Path) -> None:
    before = set(own_thread.started)  # of other tests: some sleep for their whole interval
    for number in range(50):
        flusher.configure(str(tmp_path / str(number)), "run", Settings(), "digest")
        statements.fact("reward", number, {"uid": "a"})  # starts the thread
        flusher.stop()
    until(lambda: own_thread.started <= before)


class _BusyMachine:
    """A clock of a machine with so much other work that each event and each pause takes milliseconds. Meanwhile the
    host makes 700 events a second."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.last = self.now
        self.oldest = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.005)
        while self.last < self.now:
            self.last += 1 / 700
            backlog.append(SimpleNamespace(at=int(self.last * 1e9)))

    def encode(self, event: Any) -> None:
        self.now += 0.0005
        self.oldest = max(self.oldest, self.now - event.at / 1e9)


def test_on_a_busy_machine_calls_do_not_wait_ever_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in memory is lost with a process that is killed."""
    machine = _BusyMachine()
    one = flusher.Flusher(str(tmp_path), "run", Settings(), "")
    writer = SimpleNamespace(due=False, may_write=False, batch_full=False, gathered=0, write=lambda: None)
    monkeypatch.setattr(one, "_writer", writer)
    monkeypatch.setattr(one, "_encoder", SimpleNamespace(write=machine.encode, roots=None))
    machine.sleep(0.1)

    def ends(seconds: float) -> None:
        machine.sleep(seconds)
        one._closing = machine.now > 1020

    monkeypatch.setattr(flusher, "time", SimpleNamespace(monotonic=machine.monotonic, sleep=ends))
    try:
        one.drain(pause=True)
    finally:
        backlog.queue.clear()
    assert machine.now > 1020 and machine.oldest < 1.5
