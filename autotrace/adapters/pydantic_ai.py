"""pydantic-ai: ``run_stream`` is a context manager, and the call lasts as long as its generator. And an agent without a
name takes that of the variable it stands in, in the frame that calls it: our frames are not to be in between."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import AsyncGeneratorType, FrameType
from typing import Any

from autotrace.record import calls, drivers, template
from autotrace.record.follower import Follower
from autotrace.record.object_fields import layout_of

_AGENT = "pydantic_ai.agent.abstract"
_MARK = "__autotrace_frames__"
_OURS = template.__file__.rpartition("/")[0]


def install() -> None:
    """Attach to the target, and look past our frames. Idempotent."""
    from autotrace import patch

    probe = calls.probes.get(f"{_AGENT}.AbstractAgent.run_stream")
    if probe is not None:
        probe.follower = Stream()
    patch.when_imported(_AGENT, _hook)


def _hook(module: Any) -> None:
    kind = getattr(module, "AbstractAgent", None)
    original = getattr(kind, "_infer_name", None)
    if callable(original) and not hasattr(original, _MARK):
        setattr(kind, "_infer_name", _past_ours(original))  # noqa: B010 - mypy knows no such method


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
        dict.__setitem__(stored, "gen", drivers.stream(call, inner))
        return True
