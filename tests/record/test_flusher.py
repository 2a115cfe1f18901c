"""When a process gets a file of its own."""

from __future__ import annotations

from autotrace.record import faults, flusher
from autotrace.spool.records import Counters, Seal
from tests.record.conftest import Recorder


def test_a_process_that_has_nothing_to_say_leaves_no_file(recorder: Recorder) -> None:
    flusher.shutdown()
    assert not list(recorder.folder.rglob("*.seg"))


def test_what_was_dropped_is_something_to_say(recorder: Recorder) -> None:
    faults.count("drop:memory_limit")
    flusher.shutdown()
    assert recorder.records(Counters)[-1].drops == {"drop:memory_limit": 1}  # they are cumulative
    assert recorder.records(Seal)
