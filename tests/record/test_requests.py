"""Requests of an engine: what its adapter learns while they run, how they end, and what of their arguments is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from autotrace.config.plan import Settings
from autotrace.record import calls, context, faults, flusher
from autotrace.record.backlog import backlog
from autotrace.record.context import OpenCall
from autotrace.record.follower import Follower
from autotrace.record.timeline import EngineOutputs, Timeline
from autotrace.record.token_prefixes import packed
from autotrace.spool.records import Close, Counters, Open
from tests.waiting import until

from .conftest import Recorder


def timeline(**given: Any) -> Timeline:
    made = Timeline()
    for name, value in given.items():
        setattr(made, name, value)
    return made


def test_times_of_a_request() -> None:
    told = timeline(queued=1.25, scheduled=[1.75], first_ns=3_000_000_000)
    for at in (2.25, 2.35, 2.45, 2.85):
        told.arrivals.append(at)
    assert told.read(1_000_000_000) == {
        "ttft_s": 2.0,
        "dispatch_s": 0.25,
        "queue_s": 0.5,
        "prefill_s": 0.5,
        "decode_s": 0.6,
        "outputs": 4,
        "itl_mean_ms": 200.0,
        "itl_p99_ms": 400.0,
        "itl_max_ms": 400.0,
    }


def test_an_engine_that_tells_nothing_leaves_what_our_own_clock_knows() -> None:
    told = timeline(first_ns=5)
    told.arrivals.append(7.0)
    assert told.read(0) == {"decode_s": 0.0, "outputs": 1}
    assert timeline(first_ns=5_000).read(0) == {}
    assert Timeline().read(1) == {}


def test_the_clock_of_another_machine_is_not_compared_with_ours() -> None:
    told = timeline(queued=5_000.0, scheduled=[5_000.5], first_ns=3_000_000_000)
    assert told.read(1_000_000_000) == {"ttft_s": 2.0, "queue_s": 0.5}


def test_outputs_in_lumps_tell_the_mean_only() -> None:
    told = timeline(coarse=True)
    told.arrivals.append(1.0)
    told.arrivals.append(2.0)
    assert told.read(0, generated=11) == {"decode_s": 1.0, "itl_mean_ms": 100.0}


def test_what_the_engine_tells_at_the_end_is_asked_for_first() -> None:
    told = timeline(queued=1.0, settle=lambda timeline: timeline.scheduled.append(1.5))
    assert told.read(0) == {"queue_s": 0.5}


def test_preempted_requests_wait_until_they_are_taken_up_again() -> None:
    told = timeline(queued=1.0, scheduled=[1.0, 3.0], preempted=[2.0, 4.0])
    told.arrivals.append(1.5)
    told.arrivals.append(4.5)
    found = told.read(0)
    assert (found["preemptions"], found["preempted_s"], found["queue_s"]) == (2, 1.5, 0.0)


def test_the_99th_percentile_is_a_gap_that_was_seen() -> None:
    told = Timeline()
    at = 0.0
    for number in range(201):
        told.arrivals.append(at)
        at += 0.005 if number < 197 else 0.05
    found = told.read(0)
    assert (found["itl_p99_ms"], found["itl_max_ms"], found["outputs"]) == (50.0, 50.0, 201)


class Engine(Follower):
    """Hands out timelines, admits what does not ask to be left alone, and ends nothing by itself."""

    def __init__(self, holds: bool = False) -> None:
        self.open: list[OpenCall] = []
        self.keeps_open = holds

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return "unseen" not in kwargs

    def opened(self, call: OpenCall, arguments: Mapping[str, Any]) -> None:
        call.timeline = timeline(prompt=[1, 2, 3], response=lambda: (4, 5))
        self.open.append(call)

    def holds(self, call: OpenCall, result: Any) -> bool:
        return self.keeps_open


def follow(key: str, follower: Follower) -> None:
    calls.probes[key].follower = follower


def test_a_follower_leaves_calls_alone(recorder: Recorder) -> None:
    def add(**options: Any) -> str:
        return "added"

    traced = recorder.wrap(add, key="add", role="engine")
    engine = Engine()
    follow("add", engine)
    assert traced(text="a") == traced(unseen=True) == "added"
    (opened,) = recorder.records(Open)
    assert [span.id for span in engine.open] == [opened.span] and calls.probes["add"].counts.calls == 2


def test_a_request_ends_when_its_adapter_says_so(recorder: Recorder) -> None:
    def add(prompt: str) -> str:
        assert context.current.get() is not None
        return "id"

    traced = recorder.wrap(add, key="add", attributes={"finish_reason": ("result.reason",)})
    engine = Engine(holds=True)
    follow("add", engine)
    assert traced("text") == "id" and context.current.get() is None
    assert recorder.records(Close) == []
    calls.close(engine.open[0], SimpleNamespace(reason="stop"))
    traced("text")
    calls.aborted(engine.open[1])
    done, aborted = recorder.records(Close)
    assert (done.status, done.attributes["finish_reason"]) == ("OK", "stop")
    assert (aborted.status, aborted.attributes["outcome"]) == ("CANCELLED", "aborted")


def test_what_an_adapter_saw_is_read_in_order_and_what_cannot_be_costs_only_that(recorder: Recorder) -> None:
    def add(prompt: str) -> str:
        return "id"

    def read(timeline: Timeline, at: float) -> None:
        timeline.arrivals.append(at)

    traced = recorder.wrap(add, key="add")
    engine = Engine(holds=True)
    follow("add", engine)
    traced("text")
    (span,) = engine.open
    for seen in ((span.timeline, 1.0), (None, 1.5), (span.timeline, 2.0)):
        backlog.put(EngineOutputs(read, seen))
    calls.close(span, SimpleNamespace())
    (done,) = recorder.records(Close)
    assert (done.attributes["outputs"], done.attributes["decode_s"]) == (2, 1.0)
    assert faults.counts == {"fault:encode:EngineOutputs": 1}
    faults.counts.clear()


async def test_a_prompt_known_only_inside_the_engine_is_written_with_the_response(recorder: Recorder) -> None:
    async def generate(prompt: Any) -> AsyncGenerator[Any, None]:
        yield SimpleNamespace(ids=[5], done=True)

    tokens = {"prompt": ("prompt.ids",), "response": ("result.ids",)}
    traced = recorder.wrap(generate, key="generate", tokens=tokens, final=("item.done",))
    follow("generate", Engine())
    async for _ in traced("text"):
        pass
    async for _ in traced({"ids": [7, 8]}):
        pass
    from_text, from_ids = recorder.records(Close)
    assert (from_text.skip, from_text.response.new) == (3, packed([1, 2, 3, 4, 5]))
    assert (from_ids.skip, from_ids.response.new, from_ids.response.total) == (0, packed([4, 5]), 4)


@pytest.mark.parametrize("reason", ["abort", "aborted", "stop"])
def test_an_aborted_request_is_not_ok(recorder: Recorder, reason: str) -> None:
    def generate() -> Any:
        return {"reason": reason}

    recorder.wrap(generate, key="generate", attributes={"finish_reason": ("result.reason",)})()
    (close,) = recorder.records(Close)
    expected = ("OK", None) if reason == "stop" else ("CANCELLED", "aborted")
    assert (close.status, close.attributes.get("outcome")) == expected


def test_the_engines_side_of_a_call_counts_prompt_and_response(recorder: Recorder) -> None:
    def serve(prompt_ids: list[int]) -> list[int]:
        return [7, 8]

    def call() -> bytes | None:
        return context.current_carrier()

    client = recorder.wrap(call, key="client", role="llm", tokens={"prompt": ("prompt_ids",)})
    traced = recorder.wrap(serve, key="serve", tokens={"prompt": ("prompt_ids",), "response": ("result",)})
    with context.attach(client()):
        traced([1, 2, 3])
    opened, closed = recorder.records(Open)[-1], recorder.records(Close)[-1]
    assert (opened.prompt.total, opened.prompt.new) == (3, b"")
    assert (closed.response.total, closed.response.new) == (5, b"")


def test_members_of_arguments_are_captured_under_their_own_names(recorder: Recorder) -> None:
    def serve(request: Any, raw: Any = None) -> str:
        return "answer"

    request = SimpleNamespace(messages=[{"role": "user", "content": "hi"}], model="m", secret="x" * 100)
    include = ("request.messages", "request.tools", "result")
    recorder.wrap(serve, key="serve", include=include)(request, raw=3)
    recorder.use(Settings(content="none"))
    recorder.wrap(serve, key="none", include=include)(request)
    shown, hidden = recorder.records(Open)
    assert shown.inputs == {"messages": [{"role": "user", "content": "hi"}]}
    assert not hidden.inputs and recorder.records(Close)[0].output == "answer"


def test_a_follower_sees_calls_that_are_only_counted(recorder: Recorder) -> None:
    seen: list[Any] = []

    class Watching(Follower):
        def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
            seen.append(args)
            return 1 / (2 - len(seen)) > 0

    def preempt(request: str) -> str:
        return request

    traced = recorder.wrap(preempt, key="preempt", mode="count")
    follow("preempt", Watching())
    assert [traced("a"), traced("b")] == ["a", "b"]
    assert seen == [("a",), ("b",)] and calls.probes["preempt"].counts.calls == 2 and recorder.records(Open) == []


def test_what_is_only_counted_is_written_without_any_span(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def step() -> int:
        return 1

    traced = recorder.wrap(step, key="step", mode="count")
    monkeypatch.setattr(flusher, "calls_of", lambda: {"step": calls.probes["step"].counts.calls})
    assert [traced() for _ in range(3)] == [1, 1, 1]
    until(lambda: list((recorder.folder / "spool").glob("*.seg")))
    assert [record.calls for record in recorder.records(Counters)][-1] == {"step": 3}
