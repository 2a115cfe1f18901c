"""Choose the run among the methods of a pydantic-ai agent that call one another, and read streamed answers.

An agent without a name takes the name of its variable in the caller's frame, so the adapter hides our frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

from autotrace.adapters.hooks import Changed, changing, follow
from autotrace.patch import adapting
from autotrace.record import template
from autotrace.record.context import RetainingCall, current
from autotrace.record.follower import Follower
from autotrace.record.object_fields import member, members
from autotrace.record.snapshot import Limits, snapshot
from autotrace.record.yielded import NO_KEEPER, Keeper, Yielded

_AGENT = "pydantic_ai.agent.abstract"
_WRAPPERS = 16
"""Limits the wrappers around an agent."""
_OURS = (template.__file__.rpartition("/")[0], *template.IN_PLACE)


def install() -> None:
    """Attach to the targets, and look past our frames. Idempotent."""
    follow(f"{_AGENT}.AbstractAgent.run", AgentRun())
    follow(f"{_AGENT}.AbstractAgent.run_stream", AgentRun())
    follow(f"{_AGENT}.AbstractAgent.iter", Iteration())
    follow("pydantic_ai.models.Model.request_stream", StreamedRequest())
    adapting.when_imported(_AGENT, _hook)
    adapting.when_imported("pydantic_ai._display", _hook_display)


def _hook(module: Any) -> None:
    kind = getattr(module, "AbstractAgent", None)
    original = getattr(kind, "_infer_name", None)
    if callable(original):
        adapting.put(kind, "_infer_name", changing(original, "pydantic_ai", _past_ours))


def _hook_display(module: Any) -> None:
    """Count our frames as the package's own, because the package asks whether an installed package began the run."""
    own = getattr(module, "_OWN_PACKAGES", None)
    if isinstance(own, (set, frozenset)) and "autotrace" not in own:
        adapting.put(module, "_OWN_PACKAGES", own | {"autotrace"})


def _past_ours(agent: Any, function_frame: FrameType | None, *args: Any, **kwargs: Any) -> Changed:
    return (agent, _above(function_frame), *args), kwargs


def _above(frame: FrameType | None) -> FrameType | None:
    """Return the frame that would be the caller without autotrace, starting at ``frame``."""
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    while frame is not None and _is_ours(frame.f_back):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_OURS)


class AgentRun(Follower):
    """Follows a run of an agent."""

    def opened(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """Keep the agent."""
        call.arguments = {"self": arguments["self"], **(call.arguments or {})}


class Iteration(AgentRun):
    """Follows a run that the caller steps through, unless another call begins with the run.

    ``run`` and ``run_stream`` enter such a run of the same agent; a wrapper's run enters a run of the wrapped agent.
    """

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return False before the body of the ``with`` of such a call; calls that the body begins are recorded."""
        above = current.get()
        if type(above) is not RetainingCall or above.items or above.probe is None:
            return True
        agent = (above.arguments or {}).get("self") if isinstance(above.probe.follower, AgentRun) else None
        for _ in range(_WRAPPERS):
            if agent is None or agent is args[0]:
                break
            agent = member(agent, "wrapped")
        return agent is not args[0]


class StreamedRequest(Follower):
    """Follows a request with a streamed answer."""

    def opened(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """Choose how the answer is put together."""
        call.yielded = StreamedAnswer(call.probe.capture.limits)


class StreamedAnswer(Yielded):
    """Collects a model's streamed answer: ``with`` binds a single object, which collects the parts of the answer."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streamed: Any = None

    def add(self, item: Any) -> Keeper:
        """Take that object."""
        self._streamed = item
        return NO_KEEPER

    def value(self) -> Any:
        """Return the answer as a request without a stream returns the answer."""
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
