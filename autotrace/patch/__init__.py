"""Find targets, wrap, report what bound. What adapters may use is here; for the rest start at ``engine``."""

from __future__ import annotations

import ast
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


def cell(tree: ast.Module) -> ast.Module:
    """A part of the program that a prompt or notebook is about to run, whose functions are seen as they are made."""
    from autotrace.patch import engine

    return tree if engine.engine is None else engine.engine.cell(tree)


def put(owner: Any, name: str, made: Any) -> None:
    """Set ``owner.name`` to ``made`` until the engine stops; ``owner`` (a module or a class) lives on until then.
    Raises ``TypeError`` for an owner that cannot be changed."""
    from autotrace.patch.installer import ABSENT, adapted

    adapted.set(owner, name, vars(owner).get(name, ABSENT), made)


def settings() -> Settings:
    """How this run records."""
    from autotrace.patch import engine

    return engine.engine.plan.settings if engine.engine is not None else Settings()


def copied(function: Any) -> Any:
    """A function like ``function``, to be recorded where ``function`` itself shall not."""
    from autotrace.patch import wrapper

    return wrapper.copied(function)


def record_function(function: Any, *, key: str, role: str = "span", name: str | None = None, **target: Any) -> None:
    """Record the calls of ``function`` under a target made here: for what a list cannot name, a function from a user's
    file, say.

    Takes functions and partials of functions; anything else is left alone. ``target``: further fields of
    ``config.plan.Target``.
    """
    from autotrace.patch import attach, engine, wrapper
    from autotrace.record import calls

    while isinstance(function, functools.partial):
        function = function.func
    if type(function) is not FunctionType or wrapper.key_of(function) is not None:
        return
    if key not in calls.probes:
        engine.add(Target(key, (key,), role=role, label=name, **target), settings())
    engine.report(key, f"{function.__module__}:{function.__qualname__}", "bound", attach.IN_PLACE)
    wrapper.place(function, key)
