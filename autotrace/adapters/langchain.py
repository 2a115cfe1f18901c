"""Choose which calls of LangChain and LangGraph are recorded, because calls contain each other.

``invoke`` of a graph calls the graph's ``stream``, and the frameworks put small chains into everything.
"""

from __future__ import annotations

from typing import Any

from autotrace.adapters.hooks import follow
from autotrace.record.context import current_call
from autotrace.record.follower import Follower
from autotrace.record.object_fields import stored_name

_PREGEL = "langgraph.pregel.main.Pregel"
_CHAIN = "langchain_core.runnables.base.RunnableSequence"


def install() -> None:
    """Attach to the targets. Idempotent."""
    for kind, follower in ((_PREGEL, Outermost()), (_CHAIN, Alone())):
        for method in ("invoke", "ainvoke", "stream", "astream"):
            follow(f"{kind}.{method}", follower)
    for name in ("run_with_retry", "arun_with_retry"):
        follow(f"langgraph.pregel._retry.{name}", GraphNode())


class Outermost(Follower):
    """Admits only the first of a graph's methods that call each other."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        call = current_call()
        if call is None or call.probe is None or call.probe.follower is not self:
            return True
        return call.owner != id(args[0] if args else None)


class Alone(Follower):
    """Admits a chain outside any other call."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return current_call() is None


class GraphNode(Follower):
    """Admits a node that a user wrote: the first node of every graph only hands the input on."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return stored_name(args[0] if args else kwargs.get("task")) != "__start__"
