"""pydantic-ai: ``run_stream`` and ``request_stream`` are context managers: the call lasts as long as their generator.
Which exceptions of tools are no errors. And an agent without a
name takes that of the variable it stands in, in the frame that calls it: our frames are not to be in between."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import AsyncGeneratorType, FrameType
from typing import Any

from autotrace.record import calls, drivers, errors, template
from autotrace.record.follower import Follower
from autotrace.record.object_fields import layout_of, member, members
from autotrace.record.snapshot import Limits, snapshot
from autotrace.record.yielded import NO_KEEPER, Keeper, Yielded

_AGENT = "pydantic_ai.agent.abstract"
_MARK = "__autotrace_frames__"
_OURS = template.__file__.rpartition("/")[0]


def install() -> None:
    """Attach to the target, and look past our frames. Idempotent."""
    from autotrace import patch

    for key in (f"{_AGENT}.AbstractAgent.run_stream", "pydantic_ai.models.Model.request_stream"):
        probe = calls.probes.get(key)
        if probe is not None:
            probe.follower = Stream()
    patch.when_imported(_AGENT, _hook)
    patch.when_imported("pydantic_ai.exceptions", _hook_exceptions)


def _hook(module: Any) -> None:
    kind = getattr(module, "AbstractAgent", None)
    original = getattr(kind, "_infer_name", None)
    if callable(original) and not hasattr(original, _MARK):
        setattr(kind, "_infer_name", _past_ours(original))  # noqa: B010 - mypy knows no such method


def _hook_exceptions(module: Any) -> None:
    for name, outcome in (("CallDeferred", "deferred"), ("ApprovalRequired", "waits for approval")):
        kind = getattr(module, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            errors.control_flow.append((kind, outcome))


def _past_ours(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def infer_name(self: Any, function_frame: FrameType | None, *args: Any, **kwargs: Any) -> Any:
        return original(self, _above(function_frame), *args, **kwargs)

    setattr(infer_name, _MARK, True)
    return infer_name


def _above(frame: FrameType | None) -> FrameType | None:
    """``frame``, or what stands in its place where we are around it: its caller is what would be without us."""
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    while frame is not None and _is_ours(frame.f_back):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_OURS)


class Stream(Follower):
    """A run whose answer is streamed: the call ends with the generator of its context manager."""

    def holds(self, call: Any, result: Any) -> bool:
        stored = layout_of(type(result)).stored(result)
        inner = dict.get(stored, "gen")
        if type(inner) is not AsyncGeneratorType or not drivers.is_unstarted(inner):
            return False
        if call.probe.role == "llm":
            call.yielded = StreamedAnswer(call.probe.limits)
        dict.__setitem__(stored, "gen", drivers.stream(call, inner))
        return True


class StreamedAnswer(Yielded):
    """What a model says in a stream: its manager yields one object, which collects the parts of the answer."""

    kept = -1  # the object is no item of the stream

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streamed: Any = None

    def add(self, item: Any) -> Keeper:
        """Take that object."""
        self._streamed = item
        return NO_KEEPER

    def value(self) -> Any:
        """As a request without a stream returns it."""
        manager = members(member(self._streamed, "_parts_manager"))
        held, buffers = dict.get(manager, "_parts"), dict.get(manager, "_string_buffers")
        parts = snapshot(held, self._limits) if type(held) is list else None
        for number, pieces in [*buffers.items()] if type(buffers) is dict else ():
            part = parts[number] if type(parts) is list and number < len(parts) else None
            if type(part) is dict and type(pieces) is list:  # texts that are not joined yet
                part["args" if "args" in part else "content"] = "".join(pieces)
        stored = members(self._streamed)
        told = {name: dict.get(stored, f"_{name}") for name in ("model_name", "usage")}
        told["finish_reason"] = dict.get(stored, "finish_reason")
        return {"kind": "response", "parts": parts, **snapshot(told, Limits(3, 64, 256))}
