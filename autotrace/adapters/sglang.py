"""Follow SGLang's requests where a spec cannot.

- Times of a request's tokens: ``TokenizerManager._handle_batch_output`` sees every output of every request; the caller
  of a request without streaming sees a single output.
- Queueing and prefill. The scheduler keeps the times of each request but sends the times along only with metrics on.
  With metrics off the times are let through with a request's last output, and nothing else is switched on.
- A batch is one call and many requests: each request is recorded separately, when its answer is awaited.
- If the user switched on SGLang's own OpenTelemetry, SGLang's spans hang under ours.

No reference to a generator of SGLang is kept anywhere: a suspended generator holds the lock that a weight update waits
for. Read in 0.4.6.post5 to 0.5.23, run with 0.5.23. Anything unexpected is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from autotrace.adapters.engine_requests import (
    InsideATrace,
    Streaming,
    WeightUpdate,
    arrived,
    id_in_header,
    introduce,
    register,
    timeline_here,
    traceparent,
)
from autotrace.adapters.hooks import follow, look
from autotrace.config.originals import time
from autotrace.patch import adapting
from autotrace.record.context import OpenCall, RetainingCall
from autotrace.record.follower import Follower
from autotrace.record.timeline import Timeline, Timelines

_MANAGER = "sglang.srt.managers.tokenizer_manager"
GENERATE = f"{_MANAGER}.TokenizerManager.generate_request"
MEMBER = f"{_MANAGER}.TokenizerManager._wait_one_response"
UPDATES = tuple(f"{_MANAGER}.TokenizerManager.update_weights_from_{kind}" for kind in ("distributed", "tensor"))
BATCHES = ("sglang.srt.entrypoints.engine.Engine.generate", "sglang.srt.entrypoints.engine.Engine.async_generate")
HANDLER = "sglang.srt.entrypoints.openai.serving_base.OpenAIServingBase.handle_request"

TIMINGS = "sglang request timings"
"""Key of the methods in reports."""
_REQUESTS = "_autotrace_requests"
"""Attribute of ``TokenizerManager`` that holds ``Requests``."""
_monotonic = time.monotonic


def install() -> None:
    """Attach to the targets and register the hooks on the modules below. Called once, after ``sglang`` was imported."""
    follow(GENERATE, SglangRequest())
    follow(MEMBER, MemberOfABatch())
    follow(HANDLER, Streaming())
    for key in UPDATES:
        follow(key, WeightUpdate("obj"))
    for key in BATCHES:
        follow(key, InsideATrace())
    adapting.when_imported(_MANAGER, _hook_manager)
    adapting.when_imported("sglang.srt.observability.req_time_stats", _hook_stats)


# -- requests ---------------------------------------------------------------------------------------------------------


class SglangRequest(Follower):
    """Follows a single request to ``TokenizerManager``."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        request = args[1] if len(args) > 1 else kwargs.get("obj")
        return not is_batch(request) and not is_health_check(request)

    def shows(self, arguments: dict[str, Any]) -> None:
        if getattr(arguments.get("obj"), "rid", None) is None:
            arguments["client"] = {"request_id": id_in_header(arguments.get("request"))}

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        manager, request = arguments.get("self"), arguments.get("obj")
        call.timeline = Timeline()
        call.timeline.coarse = not getattr(request, "stream", False)
        _pass_on(call, manager, request, arguments.get("request"))
        introduce(call, manager, _tokenizer, _limit)


class MemberOfABatch(Follower):
    """Follows a request of a batch; a single request is already recorded when its answer is awaited."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return timeline_here() is None and not is_health_check(args[1] if len(args) > 1 else kwargs.get("obj"))

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        manager, request = arguments["self"], arguments["obj"]
        call.timeline = Timeline()
        call.timeline.coarse = not getattr(request, "stream", False)
        watch(manager, request.rid, call.timeline)
        introduce(call, manager, _tokenizer, _limit)


def is_batch(request: Any) -> bool:
    """Tell whether the request is several, before SGLang decides (``normalize_batch_and_arguments``)."""
    text, ids = getattr(request, "text", None), getattr(request, "input_ids", None)
    if isinstance(text, list) or (isinstance(ids, list) and bool(ids) and isinstance(ids[0], list)):
        return True
    params = getattr(request, "sampling_params", None)
    return isinstance(params, list) or (isinstance(params, dict) and (params.get("n") or 1) > 1)


def is_health_check(request: Any) -> bool:
    """Tell whether SGLang asks itself.

    ``/health_generate`` sends a token through the engine at every probe of Kubernetes. Such a trace every ten seconds
    is nobody's trajectory (``HEALTH_CHECK_RID_PREFIX`` of ``srt/constants.py``).
    """
    request_id = getattr(request, "rid", None)
    return isinstance(request_id, str) and request_id.startswith("HEALTH_CHECK")


def _pass_on(call: OpenCall, manager: Any, request: Any, http: Any) -> None:
    """Make ``call`` the parent of SGLang's own spans, unless the request came with a parent."""
    if not getattr(manager, "enable_trace", False) or getattr(request, "external_trace_header", 0) is not None:
        return
    headers = getattr(http, "headers", None)
    if headers is None or "traceparent" not in headers:
        request.external_trace_header = {"traceparent": traceparent(call)}


def _tokenizer(manager: Any) -> tuple[Any, Any, Any]:
    arguments = getattr(manager, "server_args", None)
    path = getattr(arguments, "tokenizer_path", None) or getattr(manager, "model_path", None)
    return path, getattr(arguments, "revision", None), getattr(arguments, "trust_remote_code", None)


def _limit(manager: Any) -> Any:
    model = getattr(manager, "model_config", None)
    return getattr(model, "context_len", getattr(manager, "context_len", None))


# -- outputs of the engine, in the front end --------------------------------------------------------------------------


def _hook_manager(module: ModuleType) -> None:
    look(TIMINGS, module, "TokenizerManager", "_tokenize_one_request", after=_tokenized)
    look(TIMINGS, module, "TokenizerManager", "_handle_batch_output", before=_outputs_came)


class Requests(NamedTuple):
    """Holds the followed requests of a ``TokenizerManager``, by id."""

    timelines: Timelines
    fresh: Timelines
    """Timelines without any output yet."""


def watch(manager: Any, request_id: Any, timeline: Timeline) -> None:
    """Fill ``timeline`` from now on with the events of the request ``request_id``."""
    requests = manager.__dict__.get(_REQUESTS)
    if requests is None:
        requests = manager.__dict__[_REQUESTS] = Requests(Timelines(), Timelines())
    register(requests.timelines, request_id, timeline)
    requests.fresh[request_id] = timeline


def _tokenized(tokenized: Any, manager: Any, obj: Any, *args: Any, **kwargs: Any) -> None:
    timeline = timeline_here()
    if timeline is not None:
        ids = getattr(tokenized, "input_ids", None)
        timeline.prompt = None if ids is None else list(ids)
        watch(manager, obj.rid, timeline)


def _outputs_came(manager: Any, recv_obj: Any, *args: Any, **kwargs: Any) -> None:
    requests = manager.__dict__.get(_REQUESTS)
    if requests is not None and requests.timelines:
        noted(requests, recv_obj, manager.rid_to_state)


def noted(requests: Requests, batch: Any, states: Mapping[str, Any]) -> None:
    """Note outputs of several requests from the engine. The batch is kept only if some outputs are the last."""
    if requests.fresh:
        for request_id in set(requests.fresh).intersection(batch.rids):
            begun(requests, request_id, states.get(request_id))
    last = batch if any(batch.finished_reasons) else None
    arrived(take, requests.timelines, batch.rids, last, _monotonic())


def begun(requests: Requests, request_id: str, state: Any) -> None:
    """Note the first output of a request: only now SGLang has surely made the ``state`` that gathers outputs."""
    timeline = requests.fresh.pop(request_id, None)
    if timeline is not None:
        timeline.response = lambda: getattr(state, "output_ids", None) or None


def take(timelines: Timelines, request_ids: Iterable[str], last: Any, now: float) -> None:
    """Take outputs of several requests that came from the engine at ``now`` (seconds); see ``noted``."""
    for request_id in request_ids:
        timeline = timelines.get(request_id)
        if timeline is not None:
            if not timeline.coarse and not timeline.first_ns:
                timeline.first_ns = int(now * 1e9)
            timeline.arrivals.append(now)
    if last is not None:
        for number, (request_id, reason) in enumerate(zip(last.rids, last.finished_reasons, strict=True)):
            timeline = None if reason is None else timelines.get(request_id)
            if timeline is not None:
                timeline.settle = functools.partial(settle, batch=last, number=number)


def settle(timeline: Timeline, batch: Any, number: int) -> None:
    """Take the scheduler's own times of a request from the batch with the last output (``perf_counter`` seconds, which
    on Linux is the monotonic clock)."""
    stats = getattr(batch, "time_stats", None)
    if not isinstance(stats, list) or number >= len(stats):
        return
    queued, scheduled, first = (
        float(getattr(stats[number], name, 0.0) or 0.0)
        for name in ("wait_queue_entry_time", "forward_entry_time", "prefill_finished_time")
    )
    waited = float(getattr(stats[number], "queue_duration_s", 0.0) or 0.0)
    if not queued or not scheduled:
        return
    retracted = queued > scheduled  # the request waited again: the entry time is the last wait's
    if not retracted:
        timeline.queued, timeline.scheduled = queued, [scheduled]
    elif waited:
        timeline.attributes["queue_s"] = round(waited, 6)
        timeline.scheduled = [scheduled]
    if first and timeline.coarse:
        timeline.first_ns = int(first * 1e9)
        timeline.arrivals.insert(0, first)


# -- the scheduler ----------------------------------------------------------------------------------------------------


def _hook_stats(module: ModuleType) -> None:
    if hasattr(getattr(module, "SchedulerReqTimeStats", None), "has_timing_data"):
        look(TIMINGS, module, "SchedulerReqTimeStats", "__getstate__", before=_let_through)


def _let_through(times: Any) -> None:
    """Send a request's times with the last output, as with metrics on; before that SGLang does not pickle the times."""
    if times.completion_time and not times.enable_metrics:
        times.has_timing_data = True
