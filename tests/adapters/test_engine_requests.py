"""What the adapters learn about requests, on objects shaped like those of the engines (themselves: tests/engines)."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import AsyncGenerator, Iterator
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autotrace.adapters import engine_requests, hooks, sglang, vllm
from autotrace.patch import engine as patching
from autotrace.record import calls, faults, flusher
from autotrace.record.backlog import backlog
from autotrace.record.timeline import Timeline, Timelines
from autotrace.spool.records import Bind, Close, Open
from tests.record.conftest import Recorder, recorder  # noqa: F401


class EventType(IntEnum):
    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


class Request:
    """A request in vLLM's engine core."""

    def __init__(self, request_id: str) -> None:
        self.request_id = self.req_id = request_id
        self.events: list[Any] = []
        self.status = SimpleNamespace(name="RUNNING")

    def record_event(self, kind: EventType, timestamp: float | None = None) -> None:
        self.events.append(SimpleNamespace(type=kind, timestamp=time.monotonic() if timestamp is None else timestamp))


def module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(members)
    return made


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A scheduler of vLLM's, hooked."""

    class Scheduler:
        def __init__(self, log_stats: bool = False) -> None:
            self.log_stats, self.requests, self.new = log_stats, {}, []  # type: ignore[var-annotated]

        def add_request(self, request: Request) -> None:
            self.requests[request.request_id] = request
            self.new.append(request)

        def schedule(self) -> Any:
            new, self.new = self.new, []
            return SimpleNamespace(scheduled_new_reqs=new)

    monkeypatch.setitem(__import__("sys").modules, "vllm.v1.engine", module("e", EngineCoreEventType=EventType))
    vllm._hook_scheduler(module("vllm.v1.core.sched.scheduler", Scheduler=Scheduler))
    yield Scheduler


def kinds(request: Request) -> list[str]:
    return [event.type.name for event in request.events]


def test_the_core_marks_events_that_log_stats_would_have_made(core: Any) -> None:
    scheduler, request = core(), Request("a-0a1b2c3d")
    scheduler.add_request(request)
    assert kinds(request) == ["QUEUED"]
    scheduler.schedule()
    assert scheduler.schedule().scheduled_new_reqs == []
    assert kinds(request) == ["QUEUED", "SCHEDULED"]
    assert vllm.Preempted().admits((scheduler, request), {})
    request.status.name = "PREEMPTED"
    scheduler.schedule()
    request.status.name = "RUNNING"
    scheduler.schedule()
    scheduler.schedule()
    assert kinds(request) == ["QUEUED", "SCHEDULED", "PREEMPTED", "SCHEDULED"]


def test_with_log_stats_on_the_events_are_vllms_own(core: Any) -> None:
    scheduler, request = core(log_stats=True), Request("a")
    scheduler.add_request(request)
    vllm.Preempted().admits((scheduler, request), {})
    scheduler.schedule()
    assert request.events == []


def test_a_scheduler_built_otherwise_schedules_on(core: Any) -> None:
    scheduler = core()
    faults.counts.clear()
    del scheduler.log_stats
    scheduler.add_request(Request("a"))
    assert len(scheduler.schedule().scheduled_new_reqs) == 1
    scheduler.__dict__[vllm._AGAIN] = [SimpleNamespace()]  # a request without a status
    assert scheduler.schedule().scheduled_new_reqs == []
    assert faults.counts == {"fault:vllm:add_request": 1, "fault:vllm:schedule": 2}
    faults.counts.clear()


def test_times_of_a_request_built_otherwise_are_pickled_as_ever() -> None:
    class Times:
        def __getstate__(self) -> Any:
            return {"a": 1}

    hooks.look("timings", module("sglang.m", Times=Times), "Times", "__getstate__", before=sglang._let_through)
    faults.counts.clear()
    assert Times().__getstate__() == {"a": 1} and faults.counts == {"fault:sglang:__getstate__": 1}
    faults.counts.clear()


def test_outputs_fill_the_timeline_of_their_request() -> None:
    followed = SimpleNamespace(prompt_token_ids=[1, 2], detokenizer=None)
    followed.detokenizer = SimpleNamespace(output_token_ids=[7, 8])
    timeline = Timeline()
    processor = SimpleNamespace(request_states={"a": followed})
    vllm.attend(processor, "a", timeline)
    timelines = getattr(processor, vllm._TIMELINES)
    events = [SimpleNamespace(type=kind, timestamp=at) for kind, at in ((1, 9.0), (2, 9.5))]
    outputs = [
        SimpleNamespace(request_id="a", new_token_ids=[7], events=events),
        SimpleNamespace(request_id="b", new_token_ids=[7], events=None),
        SimpleNamespace(request_id="gone", new_token_ids=[7], events=None),
    ]
    empty = SimpleNamespace(request_id="a", new_token_ids=[], events=None)
    last = SimpleNamespace(request_id="a", new_token_ids=[8, 9], events=None)
    states = {"a": followed, "b": SimpleNamespace()}
    for at, step in ((10.0, outputs), (10.5, [empty]), (11.0, [last])):
        vllm.take(timelines, *vllm.noted(states, step), at, 113 + int(at))
    vllm.take(timelines, *vllm.noted({}, [last]), 12.0, 126)  # after a stop string the core sends one more
    told = timeline.read(0)
    assert (told["queue_s"], told["prefill_s"], told["decode_s"], told["outputs"]) == (0.5, 0.5, 1.0, 2)
    assert timeline.prompt == [1, 2] and timeline.response is not None and timeline.response() == [7, 8]
    assert timeline.first_ns == 123
    del timeline, told
    assert not timelines, "a request that is over is followed no longer"


@pytest.mark.parametrize("given", [None, {}, {"traceparent": "theirs"}, "no such field"])
def test_vllms_own_trace_hangs_under_ours_unless_the_request_came_with_a_parent(recorder: Recorder, given: Any) -> None:  # noqa: F811
    request = SimpleNamespace() if isinstance(given, str) else SimpleNamespace(trace_headers=given)
    recorder.wrap(lambda: None, key="k")
    span = calls.begin(lambda: None, "k", (), {})
    assert span is not None
    vllm.pass_on(span, SimpleNamespace(tracing_enabled=False), request)
    assert getattr(request, "trace_headers", given) == given
    vllm.pass_on(span, SimpleNamespace(tracing_enabled=True), request)
    ours = {"traceparent": f"00-{span.trace.id.hex()}-{span.id & 0xFFFFFFFFFFFFFFFF:016x}-01"}
    assert getattr(request, "trace_headers", given) == (given if given else ours)
    calls.end(span, None)


def test_aborts_of_the_engines_own_making_are_not_shown() -> None:
    outside = vllm.FromOutside()
    assert outside.admits(("engine", "id"), {}) and outside.admits(("engine", "id", False), {})
    assert not outside.admits(("engine", "id", True), {}) and not outside.admits(("engine", "id"), {"internal": True})


def test_a_request_of_the_synchronous_engine_ends_in_the_step_that_finishes_it(recorder: Recorder) -> None:  # noqa: F811
    class LLMEngine:
        model_config = None

        def add_request(self, request_id: str, prompt: Any) -> str:
            return request_id

        def step(self) -> list[Any]:
            return [SimpleNamespace(request_id="a", finished=False), SimpleNamespace(request_id="b", finished=True)]

        def abort_request(self, request_ids: list[str], internal: bool = False) -> None: ...

    LLMEngine.add_request = recorder.wrap(LLMEngine.add_request, key="add")  # type: ignore[method-assign]
    hooks.follow("add", vllm.OfflineRequest())
    vllm._hook_offline(module("vllm.v1.engine.llm_engine", LLMEngine=LLMEngine))
    engine = LLMEngine()
    for request_id in ("a", "b", "c"):
        engine.add_request(request_id, "text")
    assert recorder.records(Close) == []
    engine.step()
    engine.abort_request(["a-0a1b2c3d"], internal=True)
    engine.abort_request(["c"])
    spans = {record.inputs["request_id"]: record.span for record in recorder.records(Open)}
    ended = {record.span: record.status for record in recorder.records(Close)}
    assert [ended[spans[name]] for name in "abc"] == ["CANCELLED", "OK", "CANCELLED"]
    assert engine.__dict__[vllm._REQUESTS] == {}


# -- SGLang -----------------------------------------------------------------------------------------------------------


class Stats:
    """The scheduler's times of one request, as they travel."""

    completion_time = 0.0
    enable_metrics = has_timing_data = False

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__) if self.enable_metrics or self.has_timing_data else {}


def test_the_schedulers_times_travel_with_the_last_output_only() -> None:
    sglang._hook_stats(module("sglang.srt.observability.req_time_stats", SchedulerReqTimeStats=Stats))
    stats = Stats()
    stats.wait_queue_entry_time = 1.0  # type: ignore[attr-defined]
    assert Stats.__getstate__(stats) == {}
    stats.completion_time = 2.0
    assert pickle.loads(pickle.dumps(stats)).wait_queue_entry_time == 1.0


def batch(**more: Any) -> Any:
    stats = SimpleNamespace(
        wait_queue_entry_time=1.0, forward_entry_time=1.5, prefill_finished_time=2.0, queue_duration_s=0.5
    )
    return SimpleNamespace(rids=["x", "a"], finished_reasons=[None, {"type": "stop"}], time_stats=[None, stats], **more)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_batch_of_outputs_fills_the_timelines_of_its_requests(streamed: bool) -> None:
    timeline = Timeline()
    timeline.coarse = not streamed
    manager = SimpleNamespace(rid_to_state={"a": SimpleNamespace(output_ids=[4, 5, 6])})
    sglang.watch(manager, "a", timeline)
    followed = manager.__dict__[sglang._REQUESTS]
    sglang.begun(followed, "a", manager.rid_to_state["a"])
    sglang.take(followed.timelines, ["x", "a"], batch(), 4.5)
    assert not followed.fresh and timeline.response is not None and timeline.response() == [4, 5, 6]
    timeline.arrivals[-1] = 4.0
    told = timeline.read(500_000_000 if not streamed else 0, generated=3)
    assert told["queue_s"] == 0.5
    if streamed:
        assert told["prefill_s"] == 2.5 and told["decode_s"] == 0.0
    else:
        assert (told["prefill_s"], told["decode_s"], told["ttft_s"], told["itl_mean_ms"]) == (0.5, 2.0, 1.5, 1000.0)


def test_a_retracted_request_counts_all_its_waiting() -> None:
    timeline = Timeline()
    timeline.arrivals.append(9.0)
    stats = SimpleNamespace(wait_queue_entry_time=5.0, forward_entry_time=1.5, queue_duration_s=2.5)
    sglang.settle(timeline, SimpleNamespace(time_stats=[stats]), 0)
    assert timeline.read(0)["queue_s"] == 2.5


@pytest.mark.parametrize("stats", [None, [], [SimpleNamespace()], b"still pickled"])
def test_releases_that_tell_nothing_leave_our_own_clock(stats: Any) -> None:
    timeline = Timeline()
    timeline.arrivals.append(1.0)
    sglang.settle(timeline, SimpleNamespace(time_stats=stats), 0)
    assert timeline.read(0) == {"decode_s": 0.0, "outputs": 1}


@pytest.mark.parametrize(
    ("request_", "several"),
    [
        ({"text": "a"}, False),
        ({"text": ["a"]}, True),
        ({"input_ids": [1, 2]}, False),
        ({"input_ids": [[1], [2]]}, True),
        ({"text": "a", "sampling_params": {"n": 2}}, True),
        ({"text": "a", "sampling_params": {"n": 1}}, False),
        ({"input_ids": []}, False),
    ],
)
def test_batches_are_told_from_requests(request_: dict[str, Any], several: bool) -> None:
    assert sglang.is_batch(SimpleNamespace(**request_)) is several


def test_probes_of_health_are_nobodys_requests() -> None:
    probe, asked = SimpleNamespace(rid="HEALTH_CHECK_1f", text="a"), SimpleNamespace(rid="agent-1", text="a")
    for follower in (sglang.SglangRequest(), sglang.MemberOfABatch()):
        assert not follower.admits((object(), probe), {}) and not follower.admits((object(),), {"obj": probe})
        assert follower.admits((object(), asked), {})


async def test_a_request_and_the_members_of_a_batch_are_recorded_once_each(recorder: Recorder) -> None:  # noqa: F811
    class Manager:
        def __init__(self) -> None:
            self.rid_to_state: dict[str, Any] = {}

        async def generate_request(self, obj: Any, request: Any = None) -> AsyncGenerator[Any, None]:
            members = obj.text if isinstance(obj.text, list) else None
            if members is None:
                await self._tokenize_one_request(obj)
                async for item in self._wait_one_response(obj, request):
                    yield item
                return
            objects = [SimpleNamespace(text=text, rid=text, stream=False) for text in members]
            for member in objects:
                await self._tokenize_one_request(member)
            streams = [self._wait_one_response(member, request) for member in objects]
            yield list(await asyncio.gather(*(stream.__anext__() for stream in streams)))

        async def _tokenize_one_request(self, obj: Any) -> Any:
            return SimpleNamespace(input_ids=[1, 2, 3])

        async def _wait_one_response(self, obj: Any, request: Any) -> AsyncGenerator[Any, None]:
            yield {"output_ids": [9], "meta_info": {"id": obj.rid, "finish_reason": {"type": "stop"}}}

        async def _handle_batch_output(self, recv_obj: Any) -> None: ...

    spec = {"role": "engine", "final": ("item.meta_info.finish_reason",), "include": ("obj.text",)}
    for name, follower in (
        ("generate_request", sglang.SglangRequest()),
        ("_wait_one_response", sglang.MemberOfABatch()),
    ):
        setattr(Manager, name, recorder.wrap(getattr(Manager, name), key=name, **spec))
        hooks.follow(name, follower)
    sglang._hook_manager(module("sglang.srt.managers.tokenizer_manager", TokenizerManager=Manager))
    manager = Manager()
    await manager.generate_request(SimpleNamespace(text="one", rid="one", stream=False)).__anext__()
    await manager.generate_request(SimpleNamespace(text=["two", "three"], rid=None, stream=False)).__anext__()
    opens = recorder.records(Open)
    assert [record.inputs["text"] for record in opens] == ["one", "two", "three"]
    assert all(record.parent == 0 for record in opens) and len(recorder.records(Close)) == 3
    followed = manager.__dict__[sglang._REQUESTS]
    assert not followed.fresh and not followed.timelines, "what is over is followed no longer"


class Front:
    """A front end's own state, as both engines have it."""

    def __init__(self) -> None:
        self.request_states = {"a": SimpleNamespace(prompt_token_ids=[1], detokenizer=None)}
        self.rid_to_state = {"a": SimpleNamespace(output_ids=[7])}
        self.seen: list[Any] = []


def step(asynchronous: bool) -> Any:
    """SGLang's method: a coroutine function, or, in older releases, none."""

    class Manager(Front):
        def _handle_batch_output(self, recv_obj: Any) -> Any:
            self.seen.append(recv_obj)

    class AsynchronousManager(Front):
        async def _handle_batch_output(self, recv_obj: Any) -> Any:
            self.seen.append(recv_obj)

    return AsynchronousManager if asynchronous else Manager


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_outputs_reach_sglang_whatever_kind_of_function_takes_them(
    recorder: Recorder,  # noqa: F811
    asynchronous: bool,
) -> None:
    kind = step(asynchronous)
    hooks.look("t", module("m", Manager=kind), "Manager", "_handle_batch_output", before=sglang._outputs_came)
    manager, timeline = kind(), Timeline()
    sglang.watch(manager, "a", timeline)
    done = manager._handle_batch_output(batch())
    if asynchronous:
        await done
    assert len(manager.seen) == 1
    flusher.flush()
    assert len(timeline.arrivals) == 1 and timeline.response is not None and timeline.settle is not None


def test_outputs_reach_vllm_whatever_holds_them(recorder: Recorder) -> None:  # noqa: F811
    import numpy

    class OutputProcessor(Front):
        def process_outputs(self, engine_core_outputs: Any, engine_core_timestamp: float) -> None:
            self.seen.append(engine_core_outputs)

    hooks.look("t", module("m", O=OutputProcessor), "O", "process_outputs", before=vllm._outputs_came)
    processor, timeline = OutputProcessor(), Timeline()
    vllm.attend(processor, "a", timeline)
    outputs = [SimpleNamespace(request_id=name, new_token_ids=[7], events=None) for name in ("a", "b", "c")]
    faults.counts.clear()
    for held in (outputs, *numpy.array_split(numpy.array(outputs, dtype=object), 2)):
        processor.process_outputs(held, 5.0)
    flusher.flush()
    assert len(timeline.arrivals) == 2 and len(processor.seen) == 3 and faults.counts == {}


def test_an_id_in_use_again_changes_hands_in_the_order_of_the_queue(recorder: Recorder) -> None:  # noqa: F811
    timelines, turns = Timelines(), [Timeline(), Timeline()]
    took: list[tuple[int, int]] = []

    def take(found: Any, ids: list[str], number: int) -> None:
        (place,) = [turns.index(found[name]) for name in ids]
        took.append((number, place))

    engine_requests.register(timelines, "a", turns[0])
    engine_requests.arrived(take, timelines, ["a"], 0)
    engine_requests.register(timelines, "a", turns[1])
    engine_requests.arrived(take, timelines, ["a", 5], 1)
    flusher.flush()
    assert sorted(took) == [(0, 0), (1, 1)]
    assert backlog.waiting() == 0
    for odd in (5, None, "a\nb"):
        engine_requests.register(timelines, odd, turns[0])
    assert list(timelines) == ["a"]


# -- both -------------------------------------------------------------------------------------------------------------


async def test_a_streamed_response_ends_its_handlers_span_when_it_was_read(recorder: Recorder) -> None:  # noqa: F811
    async def body() -> AsyncGenerator[str, None]:
        yield "a"
        yield "b"

    async def handle() -> Any:
        return SimpleNamespace(body_iterator=body())

    traced = recorder.wrap(handle, key="handle")
    hooks.follow("handle", engine_requests.Streaming())
    response = await traced()
    assert recorder.records(Close) == []
    assert [part async for part in response.body_iterator] == ["a", "b"]
    assert [record.status for record in recorder.records(Close)] == ["OK"]


async def test_a_body_that_was_begun_already_stays_the_hosts(recorder: Recorder) -> None:  # noqa: F811
    """A driver is not begun, and what is sent into it first would be an error."""

    async def body() -> AsyncGenerator[str, str]:
        sent = yield "a"
        yield sent

    async def handle() -> Any:
        stream = body()
        assert await stream.__anext__() == "a"
        return SimpleNamespace(body_iterator=stream)

    traced = recorder.wrap(handle, key="handle")
    hooks.follow("handle", engine_requests.Streaming())
    response = await traced()
    assert await response.body_iterator.asend("b") == "b"
    assert [record.status for record in recorder.records(Close)] == ["OK"]


def test_an_entry_point_for_batches_is_recorded_inside_a_trace_only(recorder: Recorder) -> None:  # noqa: F811
    def generate() -> int:
        return 1

    traced = recorder.wrap(generate, key="generate")
    chat = recorder.wrap(lambda: traced(), key="chat")
    for key in ("generate", "chat"):
        hooks.follow(key, engine_requests.InsideATrace())
    assert traced() == chat() == 1 and recorder.records(Open) == []
    recorder.wrap(lambda: (traced(), chat()), key="agent")()
    assert len(recorder.records(Open)) == 3, "the agent, generate, and chat without the generate it calls"


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (
            {"update_info": {"names": ["a", "b"], "dtype_names": ["bfloat16", "float32"], "shapes": [[2, 3], [4]]}},
            (2, 28),
        ),
        ({"names": ["a"], "dtypes": ["float8_e4m3fn"], "shapes": [[2, 3]], "group_name": "g"}, (1, 6)),
        ({"names": ["a"], "dtypes": ["torch.int64"], "shapes": [[]]}, (1, 8)),
        ({"names": ["a", "b"]}, (2, None)),
        ({"serialized_named_tensors": [b"12345", "123", object()]}, (None, 8)),
        ({}, (None, None)),
    ],
)
def test_a_weight_update_says_how_much_it_moves(request_: dict[str, Any], told: tuple[int | None, int | None]) -> None:
    found = engine_requests.sizes(SimpleNamespace(**request_))
    assert (found.get("tensors"), found.get("bytes")) == told


def test_a_weight_updates_size_is_on_its_span(recorder: Recorder) -> None:  # noqa: F811
    def update(obj: Any) -> bool:
        return True

    traced = recorder.wrap(update, key="update", include=())
    hooks.follow("update", engine_requests.WeightUpdate("obj"))
    assert traced(SimpleNamespace(serialized_named_tensors=["pickled"]))
    assert [record.attributes for record in recorder.records(Close)] == [{"bytes": 7}]
    assert [record.inputs for record in recorder.records(Open)] == [None]


def test_what_a_release_lacks_is_reported_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(patching, "report", lambda key, place, state, reason: said.append((place, state)))

    class Old:
        def step(self) -> int:
            return 1

    shown: list[int] = []
    hooks.look("timings", module("m", Old=Old), "Old", "step", after=lambda result, engine: shown.append(result))
    hooks.look("timings", module("m", Old=Old), "Old", "schedule")
    hooks.look("timings", module("m"), "New", "step")
    assert said == [("m:Old.step", "bound"), ("m:Old.schedule", "pending"), ("m:New.step", "pending")]
    assert Old().step() == 1 and shown == [1]


@pytest.mark.parametrize(
    ("library", "engine"),
    [
        (vllm, SimpleNamespace(model_config=SimpleNamespace(max_model_len=700))),
        (sglang, SimpleNamespace(model_config=SimpleNamespace(context_len=700), context_len=1)),
        (sglang, SimpleNamespace(context_len=700)),
    ],
)
def test_an_engine_says_once_how_long_prompt_and_answer_may_be(
    library: Any,
    engine: Any,
    recorder: Recorder,  # noqa: F811
) -> None:
    call: Any = SimpleNamespace(trace=SimpleNamespace(elsewhere=False))
    for owner in (engine, engine, None, SimpleNamespace(), SimpleNamespace(model_config=SimpleNamespace())):
        engine_requests.introduce(call, owner, library._tokenizer, library._limit)
    assert [(record.name, record.value) for record in recorder.records(Bind)] == [("engine", {"max_model_len": 700})]
