"""Attach a greenlet that is made inside a recorded call to that call, for greenlet and gevent.

A greenlet begins with an empty context, as a thread does. A greenlet of gevent gets the current call where the greenlet
is spawned. Any other greenlet runs while its parent waits, so the parent has the current call.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from autotrace.adapters.threads import holding
from autotrace.patch import adapting, engine
from autotrace.record import context, faults
from autotrace.record.context import OpenCall, current, current_call, standing


def install() -> None:
    """Make calls travel. Idempotent."""
    if engine.settings().follow_threads:
        adapting.when_imported("greenlet", _follow_parents)
        adapting.when_imported("gevent", _follow_spawns)


def _follow_parents(module: ModuleType) -> None:
    parent_of, context_of = (vars(module.greenlet)[name].__get__ for name in ("parent", "gr_context"))

    def of_the_parent() -> OpenCall | None:
        try:
            parent = parent_of(module.getcurrent())
            held = None if parent is None else context_of(parent)
            return None if held is None else standing(held.copy().run(current.get))  # the context may be entered
        except Exception as error:
            faults.failed("greenlet", error)
            return None

    adapting.put(context, "of_the_parent", of_the_parent)


def _follow_spawns(module: ModuleType) -> None:
    module.Greenlet.add_spawn_callback(_spawned)


def _spawned(greenlet: Any) -> None:
    try:
        call = current_call()
        if call is not None and greenlet.gr_context is None:
            greenlet.gr_context = holding(call)
    except Exception as error:
        faults.failed("gevent", error)
