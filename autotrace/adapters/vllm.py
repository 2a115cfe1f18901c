"""Follow vLLM's requests where a spec cannot.

- Times of a request's tokens and of its waits, for every kind of output (the caller of a request without streaming sees
  a single output): from ``OutputProcessor``, which all outputs of ``AsyncLLM`` and ``LLM`` pass.
- Times at which the engine core's scheduler queued, scheduled and preempted a request. The core has a vehicle, the
  events of a request, but fills the events only with log stats on. With log stats off (veRL's default) the adapter adds
  the events, and nothing else is switched on: the front end ignores the events.
- A request of the synchronous engine (``LLM``) begins in ``add_request`` and ends in some later ``step``.
- If the user switched on vLLM's own OpenTelemetry, vLLM's span hangs under ours.

Read in 0.8.5 to 0.33, run with 0.27.1. Anything unexpected is left alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from autotrace.adapters.engine_requests import (
    Handler,
    InsideATrace,
    WeightUpdate,
    arrived,
    introduce,
    register,
    traceparent,
)
from autotrace.adapters.hooks import follow, look
from autotrace.config.originals import time
from autotrace.patch import adapting
from autotrace.record import calls, context, faults
from autotrace.record.context import OpenCall, RetainingCall
from autotrace.record.follower import Follower
from autotrace.record.timeline import Timeline, Timelines

GENERATE = "vllm.v1.engine.async_llm.AsyncLLM.generate"
ABORT = "vllm.v1.engine.async_llm.AsyncLLM.abort"
ADD_REQUEST = "vllm.v1.engine.llm_engine.LLMEngine.add_request"
UPDATE = "vllm.v1.engine.async_llm.AsyncLLM.update_weights"
PREEMPT = "vllm.v1.core.sched.scheduler.Scheduler._preempt_request"
BATCHES = ("vllm.entrypoints.llm.LLM.generate", "vllm.entrypoints.llm.LLM.chat")
HANDLERS = tuple(
    f"vllm.entrypoints.{name}"
    for name in (
        "openai.chat_completion.serving.OpenAIServingChat.create_chat_completion",
        "openai.completion.serving.OpenAIServingCompletion.create_completion",
        "openai.responses.serving.OpenAIServingResponses.create_responses",
        "scale_out.token_in_token_out.serving.ServingTokens.serve_tokens",
    )
)

TIMINGS = "vllm request timings"
"""Key of the methods in reports."""
QUEUED, SCHEDULED, PREEMPTED = 1, 2, 3
"""Values of ``vllm.v1.engine.EngineCoreEventType``"""
_TIMELINES = "_autotrace_timelines"
"""Attribute of ``OutputProcessor`` that holds ``Timelines``."""
_REQUESTS = "_autotrace_requests"
"""Attribute of ``LLMEngine`` that maps a request id to the open call."""
_AGAIN = "_autotrace_again"
"""Attribute of ``Scheduler`` that lists requests preempted and not resumed since."""
_monotonic_ns = time.monotonic_ns


def install() -> None:
    """Attach to the targets and register the hooks on the modules below. Called once, after ``vllm`` was imported."""
    follow(GENERATE, VllmRequest())
    follow(ADD_REQUEST, OfflineRequest())
    follow(ABORT, FromOutside())
    follow(UPDATE, WeightUpdate("request"))
    follow(PREEMPT, Preempted())
    for key in BATCHES:
        follow(key, InsideATrace())
    for key in HANDLERS:
        follow(key, Handler())
    adapting.when_imported("vllm.v1.engine.output_processor", _hook_outputs)
    adapting.when_imported("vllm.v1.engine.llm_engine", _hook_offline)
    adapting.when_imported("vllm.v1.core.sched.scheduler", _hook_scheduler)


# -- requests ---------------------------------------------------------------------------------------------------------


class VllmRequest(Follower):
    """Follows a request to ``AsyncLLM``."""

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        engine = arguments.get("self")
        call.timeline = Timeline()
        introduce(call, engine, _tokenizer, _limit)


class OfflineRequest(VllmRequest):
    """Follows a request to ``LLMEngine``, which ``LLM`` drives."""

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        super().opened(call, arguments)
        vars(arguments["self"]).setdefault(_REQUESTS, {})[arguments["request_id"]] = call

    def holds(self, call: OpenCall, result: Any) -> bool:
        return True


class FromOutside(Follower):
    """Admits an abort that somebody requested; ``generate`` aborts its own request when its caller is gone."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return not (args[2] if len(args) > 2 else kwargs.get("internal"))


def _tokenizer(engine: Any) -> tuple[Any, Any, Any]:
    model = getattr(engine, "model_config", None)
    path, revision = getattr(model, "tokenizer", None), getattr(model, "tokenizer_revision", None)
    return path, revision, getattr(model, "trust_remote_code", None)


def _limit(engine: Any) -> Any:
    return getattr(getattr(engine, "model_config", None), "max_model_len", None)


# -- outputs of the engine, in the front end --------------------------------------------------------------------------


def _hook_outputs(module: ModuleType) -> None:
    look(TIMINGS, module, "OutputProcessor", "add_request", after=_added)
    look(TIMINGS, module, "OutputProcessor", "process_outputs", before=_outputs_came)


def _added(_: Any, processor: Any, request: Any, *args: Any, **kwargs: Any) -> None:
    call = context.current.get()
    if isinstance(call, RetainingCall) and call.timeline is not None:
        pass_on(call, processor, request)
        if call.timeline.response is None:  # of n > 1 samples the first
            attend(processor, request.request_id, call.timeline)


def pass_on(call: OpenCall, processor: Any, request: Any) -> None:
    """Make ``call`` the parent of vLLM's own span.

    Needs tracing that the user switched on (``--otlp-traces-endpoint``) and a request without a parent. ``request`` is
    on the way to the engine core.
    """
    tracing = getattr(processor, "tracing_enabled", False) or getattr(processor, "tracer", None)
    if tracing and not getattr(request, "trace_headers", True):  # None, or {} from the HTTP handlers
        request.trace_headers = {"traceparent": traceparent(call)}


def attend(processor: Any, request_id: str, timeline: Timeline) -> None:
    """Fill ``timeline`` from now on with the events of the request in vLLM's ``OutputProcessor``."""
    state = processor.request_states[request_id]
    detokenizer = getattr(state, "detokenizer", None)
    timeline.prompt = getattr(state, "prompt_token_ids", None)
    timeline.response = lambda: getattr(detokenizer, "output_token_ids", None)
    timelines = getattr(processor, _TIMELINES, None)
    if timelines is None:
        timelines = Timelines()
        setattr(processor, _TIMELINES, timelines)
    register(timelines, request_id, timeline)


def _outputs_came(
    processor: Any, engine_core_outputs: Any, engine_core_timestamp: Any = None, *args: Any, **kwargs: Any
) -> None:
    timelines = getattr(processor, _TIMELINES, None)
    if timelines and len(engine_core_outputs):  # a list; early releases split the list with numpy
        now = _monotonic_ns()
        ids, events = noted(processor.request_states, engine_core_outputs)
        arrived(take, timelines, ids, events, engine_core_timestamp or now / 1e9, now)


def noted(states: Mapping[str, Any], outputs: Iterable[Any]) -> tuple[list[str], list[tuple[str, Any]]]:
    """Return the requests of a step's outputs that have new tokens, and events by request.

    Outputs of a request that the front end has ended (a stop string) no longer count, as in vLLM.
    """
    ids = [out.request_id for out in outputs if out.new_token_ids and out.request_id in states]
    return ids, [(out.request_id, out.events) for out in outputs if out.events]


def take(timelines: Timelines, ids: Iterable[str], events: Iterable[tuple[str, Any]], at: float, now: int) -> None:
    """Take outputs (see ``noted``) that left the engine core at ``at`` (seconds) and came to the front end at ``now``
    (nanoseconds)."""
    for request_id in ids:
        timeline = timelines.get(request_id)
        if timeline is not None:
            timeline.first_ns = timeline.first_ns or now
            timeline.arrivals.append(at)
    for request_id, happenings in events:
        timeline = timelines.get(request_id)
        if timeline is not None:
            happened(timeline, happenings)


def happened(timeline: Timeline, events: Iterable[Any]) -> None:
    """Take the engine core's events of one request."""
    for event in events:
        if event.type == QUEUED:
            timeline.queued = timeline.queued or event.timestamp
        elif event.type == SCHEDULED:
            timeline.scheduled.append(event.timestamp)
        elif event.type == PREEMPTED:
            timeline.preempted.append(event.timestamp)


# -- the synchronous engine -------------------------------------------------------------------------------------------


def _hook_offline(module: ModuleType) -> None:
    look(TIMINGS, module, "LLMEngine", "step", after=_stepped)
    look(TIMINGS, module, "LLMEngine", "abort_request", after=_aborted)


def _stepped(outputs: Any, engine: Any, *args: Any, **kwargs: Any) -> None:
    requests = engine.__dict__.get(_REQUESTS)
    for output in outputs if requests and outputs else ():
        if output.finished:
            call = requests.pop(output.request_id, None)
            if call is not None:
                calls.close(call, output)


def _aborted(_: Any, engine: Any, request_ids: Any, internal: bool = False, *args: Any, **kwargs: Any) -> None:
    requests = engine.__dict__.get(_REQUESTS) or {}
    for request_id in request_ids:
        # inside the engine a request's name is its own id and eight more digits
        call = requests.pop(request_id.rpartition("-")[0] if internal else request_id, None)
        if call is not None:
            calls.aborted(call)


# -- the scheduler, in the engine core --------------------------------------------------------------------------------


class Preempted(Follower):
    """Follows the scheduler when a running request leaves the batch."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        scheduler, request = args[:2]
        if not scheduler.log_stats:
            mark([request], PREEMPTED)
            scheduler.__dict__.setdefault(_AGAIN, []).append(request)
        return True


def _hook_scheduler(module: ModuleType) -> None:
    look(TIMINGS, module, "Scheduler", "add_request", before=_queued)
    look(TIMINGS, module, "Scheduler", "schedule", after=_scheduled)


def _queued(scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> None:
    if not scheduler.log_stats:
        mark([request], QUEUED)


def _scheduled(output: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
    new = getattr(output, "scheduled_new_reqs", None)
    if new and not scheduler.log_stats:
        mark([scheduler.requests.get(request.req_id) for request in new], SCHEDULED)
    if _AGAIN in scheduler.__dict__:
        again = scheduler.__dict__.pop(_AGAIN)
        mark([request for request in again if request.status.name == "RUNNING"], SCHEDULED)
        if rest := [request for request in again if request.status.name == "PREEMPTED"]:
            scheduler.__dict__[_AGAIN] = rest


def mark(requests: Iterable[Any], kind: int) -> None:
    """Add an event to each request as the scheduler does with log stats on; the event leaves with the next output."""
    try:
        event = importlib.import_module("vllm.v1.engine").EngineCoreEventType(kind)
        for request in requests:
            if request is not None:
                request.record_event(event)
    except Exception as error:
        faults.failed("vllm:mark", error)
