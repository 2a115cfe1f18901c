"""Share the handling of an engine's requests between the adapters of vLLM and SGLang."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from types import AsyncGeneratorType
from typing import Any

from autotrace.record import context, drivers, statements
from autotrace.record.backlog import backlog
from autotrace.record.context import OpenCall, RetainingCall
from autotrace.record.follower import Follower
from autotrace.record.origin import is_hosts
from autotrace.record.timeline import EngineOutputs, Timeline, Timelines

BETWEEN = "\n"
"""Separator of request ids in ``arrived``."""


class InsideATrace(Follower):
    """Records an entry point for many requests at once (``LLM.generate``) as part of its caller.

    Without a recorded caller each request is a separate trace; a span around a batch would make a single enormous
    trace.
    """

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        parent = context.current_call()
        if parent is None or parent.probe is None:
            return parent is not None
        return not isinstance(parent.probe.follower, InsideATrace)  # LLM.chat calls LLM.generate in old releases


def id_in_header(request: Any) -> str | None:
    """Return the client's name for an HTTP request (``x-request-id``), if any."""
    headers = getattr(request, "headers", None)
    name = None if headers is None else headers.get("x-request-id")
    return name if type(name) is str else None


class Handler(Follower):
    """Follows a handler of HTTP requests. Paths read the client's name of the request as ``client.request_id``."""

    def shows(self, arguments: dict[str, Any]) -> None:
        arguments["client"] = {"request_id": id_in_header(arguments.get("raw_request"))}


class Streaming(Handler):
    """Follows a handler whose HTTP response has a stream as body: the span ends with the stream."""

    def holds(self, call: OpenCall, result: Any) -> bool:
        body = getattr(result, "body_iterator", None)
        if type(body) is not AsyncGeneratorType or not drivers.is_unstarted(body):
            return False
        result.body_iterator = drivers.through(call, body)
        return True


class WeightUpdate(Follower):
    """Counts the tensors and bytes of new weights for the engine, if the request lists tensors. Never keeps a
    tensor."""

    def __init__(self, argument: str) -> None:
        self.argument = argument

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        call.timeline = Timeline()
        call.timeline.attributes.update(sizes(arguments.get(self.argument)))


def sizes(request: Any) -> dict[str, int]:
    """Return ``tensors`` and ``bytes`` of a request to update weights; empty if the request does not list tensors.

    vLLM (``WeightTransferUpdateRequest.update_info``) and SGLang (``UpdateWeightsFromDistributedReqInput``) list names,
    types and shapes; SGLang's ``UpdateWeightsFromTensorReqInput`` carries pickled tensors, one string for each rank.
    """
    info = getattr(request, "update_info", None)
    read = info.get if isinstance(info, Mapping) else functools.partial(getattr, request)
    packed = read("serialized_named_tensors", None)
    if isinstance(packed, list):
        return {"bytes": sum(len(part) for part in packed if isinstance(part, (str, bytes)))}
    names, shapes = read("names", None), read("shapes", None)
    if not isinstance(names, list):
        return {}
    types = read("dtype_names", None) or read("dtypes", None)
    if not isinstance(shapes, list) or not isinstance(types, list):
        return {"tensors": len(names)}
    widths = [int((re.findall(r"\d+", str(kind)) or ["8"])[0]) // 8 for kind in types]  # "bfloat16", "float8_e4m3fn"
    pairs = zip(shapes, widths, strict=False)
    return {"tensors": len(names), "bytes": sum(math.prod(shape) * width for shape, width in pairs)}


def timeline_here() -> Timeline | None:
    """Return the timeline of the request that the running code hands to the engine."""
    call = context.current.get()
    return call.timeline if isinstance(call, RetainingCall) else None


def register(timelines: Timelines, request_id: Any, timeline: Timeline) -> None:
    """Fill ``timeline`` from now on with the outputs that have ``arrived`` for ``request_id``.

    An id in use again (veRL up to 0.6 has a single id for all turns of a trajectory) changes hands in the order of the
    queue, where outputs of the earlier request may still wait.
    """
    if type(request_id) is not str or BETWEEN in request_id:
        return
    if timelines.get(request_id) is None:
        timelines[request_id] = timeline
    else:
        backlog.put(EngineOutputs(timelines.__setitem__, (request_id, timeline)))


def arrived(read: Callable[..., None], timelines: Timelines, request_ids: list[Any], *more: Any) -> None:
    """Have ``read(timelines, ids, *more)`` called in the flusher's thread, in order.

    The ids travel as one string. Keeping the engine's own objects until then costs the event loop more than everything
    else, because another core must look at the objects before their memory is free.
    """
    if backlog.watchful and (not backlog.accepts() or backlog.overloaded()):
        return
    try:
        ids = BETWEEN.join(request_ids)
    except TypeError as error:  # an id of the user's that is not text
        if is_hosts(error):
            raise
        ids = BETWEEN.join([name for name in request_ids if type(name) is str])
    backlog.charge(len(ids))
    backlog.append(EngineOutputs(_split, (read, timelines, ids, *more), len(ids)))


def _split(read: Callable[..., None], timelines: Timelines, ids: str, *more: Any) -> None:
    read(timelines, ids.split(BETWEEN), *more)


def traceparent(call: OpenCall) -> str:
    """Format ``call`` as W3C trace context, the parent that an engine's own OpenTelemetry takes."""
    return f"00-{call.trace.id.hex()}-{call.id & 0xFFFFFFFFFFFFFFFF:016x}-01"


_BOUND, _LIMITED = "_autotrace_tokenizer", "_autotrace_limits"


def introduce(
    call: OpenCall, engine: Any, tokenizer: Callable[[Any], tuple[Any, Any, Any]], limit: Callable[[Any], Any]
) -> None:
    """Publish the shipper's needs of an engine with the first request.

    ``tokenizer(engine)`` returns the place that the tokenizer was loaded from, the revision, and whether its code is
    trusted; the shipper decodes with that tokenizer. ``limit(engine)`` returns the tokens that a prompt and the answer
    may have together, as the engine resolved the limit: a trainer's configuration may leave the limit to the engine,
    which may have measured the memory.
    """
    if _is_first(engine, _LIMITED):
        length = limit(engine)
        if type(length) is int and length > 0:
            statements.bind("engine", {"max_model_len": length})
    if not call.trace.elsewhere and _is_first(engine, _BOUND):
        path, revision, trusted = tokenizer(engine)
        if isinstance(path, str) and path:
            about = {"path": path, "revision": revision, "trust_remote_code": trusted is True}
            statements.bind("tokenizer", about)


def _is_first(engine: Any, mark: str) -> bool:
    if engine is None or getattr(engine, mark, None) == context.epoch:
        return False
    setattr(engine, mark, context.epoch)
    return True
