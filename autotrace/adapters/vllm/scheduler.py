"""vLLM's scheduler, in the engine core: when a request was queued, scheduled and preempted.

The engine core has a vehicle for that, the events of a request, but fills it only with log stats on. With log stats off
(veRL's default) the events are added here, in the core, and nothing else is switched on: the front end ignores them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from autotrace.adapters.engine_requests import Hooks, follow
from autotrace.patch import adapting
from autotrace.record import faults
from autotrace.record.follower import Follower

PREEMPT = "vllm.v1.core.sched.scheduler.Scheduler._preempt_request"
HOOKS = Hooks("vllm request timings")
QUEUED, SCHEDULED, PREEMPTED = 1, 2, 3
"""``vllm.v1.engine.EngineCoreEventType``"""
_AGAIN = "_autotrace_again"
"""Attribute of ``Scheduler``: requests that were preempted and not taken up since."""


def install() -> None:
    """Attach to the target and register the hooks. Called once, after ``vllm`` was imported."""
    follow(PREEMPT, Preempted())
    adapting.when_imported("vllm.v1.core.sched.scheduler", _hook_scheduler)


class Preempted(Follower):
    """The scheduler takes a running request out of the batch."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        scheduler, request = args[:2]
        if not scheduler.log_stats:
            mark([request], PREEMPTED)
            scheduler.__dict__.setdefault(_AGAIN, []).append(request)
        return True


def _hook_scheduler(module: ModuleType) -> None:
    HOOKS.wrap(module, "Scheduler", "add_request", _queued)
    HOOKS.wrap(module, "Scheduler", "schedule", _scheduled)


def _queued(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if not self.log_stats:
                mark([request], QUEUED)
        except Exception as error:
            faults.failed("vllm:queued", error)
        return original(self, request, *args, **kwargs)

    return add_request


def _scheduled(original: Callable[..., Any]) -> Callable[..., Any]:
    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        try:
            new = getattr(output, "scheduled_new_reqs", None)
            if new and not self.log_stats:
                mark([self.requests.get(request.req_id) for request in new], SCHEDULED)
            if _AGAIN in self.__dict__:
                again = self.__dict__.pop(_AGAIN)
                running = [request for request in again if request.status.name == "RUNNING"]
                mark(running, SCHEDULED)
                if rest := [request for request in again if request.status.name == "PREEMPTED"]:
                    self.__dict__[_AGAIN] = rest
        except Exception as error:
            faults.failed("vllm:scheduled", error)
        return output

    return schedule


def mark(requests: Iterable[Any], kind: int) -> None:
    """Add an event to each request as the scheduler does with log stats on; it leaves with the next output."""
    try:
        event = importlib.import_module("vllm.v1.engine").EngineCoreEventType(kind)
        for request in requests:
            if request is not None:
                request.record_event(event)
    except Exception as error:
        faults.failed("vllm:mark", error)
