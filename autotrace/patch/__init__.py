"""Find targets, wrap, report what bound. What adapters may use is here; for the rest start at ``engine``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from autotrace.config.plan import Settings, Target


def when_imported(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call ``callback(module)`` right after module ``name`` was imported; now, if it already is. Never raises."""
    from autotrace.patch import engine

    if engine.engine is not None:
        engine.engine.when_imported(name, callback)


def when_run(module: str, name: str, callback: Callable[[type], None]) -> None:
    """Call ``callback(cls)`` right after class ``name`` was made, if ``module`` is what ``python -m`` runs: it is never
    imported then. Never raises."""
    from autotrace.patch import engine

    if engine.engine is not None:
        engine.engine.when_run(module, name, callback)


def settings() -> Settings:
    """How this run records."""
    from autotrace.patch import engine

    return engine.engine.plan.settings if engine.engine is not None else Settings()


def wrap_function(function: Any, *, key: str, role: str = "span", name: str | None = None, **target: Any) -> Any:
    """``function`` recorded under a target made here: for what a list cannot name, a function from a user's file, say.

    Takes functions and partials of functions; anything else comes back as it is. ``target``: further fields of
    ``config.plan.Target``.
    """
    from autotrace.patch import engine, wrapper
    from autotrace.record import calls

    if isinstance(function, functools.partial):
        inner = wrap_function(function.func, key=key, role=role, name=name, **target)
        return function if inner is function.func else functools.partial(inner, *function.args, **function.keywords)
    if type(function) is not FunctionType or wrapper.key_of(function) is not None:
        return function
    if key not in calls.probes:
        engine.add(Target(key, (key,), role=role, label=name, **target), settings())
    engine.report(key, f"{function.__module__}:{function.__qualname__}", "bound", "")
    return wrapper.wrap(function, key)
