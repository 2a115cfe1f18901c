"""No frame above the limit is written: what makes a record too large is left out, and counted."""

from __future__ import annotations

import pytest

from autotrace.config.plan import Settings
from autotrace.record import faults, flusher, record_writer
from autotrace.record.backlog import backlog
from autotrace.spool.records import Close, Fact, Open
from tests.record.conftest import Recorder


def test_what_makes_a_record_too_large_is_left_out(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "MAX_WRITTEN", 10_000)
    recorder.use(Settings(flush_interval=0.01))
    traced = recorder.wrap(lambda text: text, key="call")
    traced("x" * 20_000)
    traced("short")
    opens, closes = recorder.records(Open), recorder.records(Close)
    assert [record.span for record in opens] == [record.span for record in closes]
    assert opens[0].inputs["…"].startswith("left out: the record would have 20")
    assert closes[0].output["…"].startswith("left out: the record would have 20")
    assert (opens[1].inputs, closes[1].output) == ({"text": "short"}, "short")
    assert faults.counts == {"drop:too_large": 2}
    assert max(path.stat().st_size for path in (recorder.folder / "spool").iterdir()) < 10_000


def test_tokens_that_are_too_many_are_not_referred_to(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "MAX_WRITTEN", 10_000)
    recorder.use(Settings(flush_interval=0.01))
    generate = recorder.wrap(lambda ids: None, key="llm", tokens={"prompt": ("ids",)})

    def rollout() -> None:
        generate(list(range(5_000)))
        generate(list(range(2_000)))
        generate(list(range(2_100)))

    recorder.wrap(rollout, key="rollout", role="trajectory")()
    prompts = [record.prompt for record in recorder.records(Open) if record.parent]
    assert prompts[0] is None
    assert [(prompt.base, len(prompt.new)) for prompt in prompts[1:]] == [(-1, 8_000), (prompts[1].sequence, 400)]
    assert faults.counts == {"drop:too_large": 1}


def test_a_fact_that_is_too_large_is_dropped_and_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "MAX_WRITTEN", 10_000)
    recorder.use(Settings(flush_interval=0.01))
    for value in ("x" * 20_000, 1.0):
        backlog.put(Fact(b"", {"uid": "1"}, "reward", value, 1))
    flusher.flush()
    assert [record.value for record in recorder.records(Fact)] == [1.0]
    assert faults.counts == {"drop:too_large": 1} and backlog.waiting() == 0
