"""Attach adapters to a library: followers to targets, and functions that see or change the calls of other methods.

Such other methods are not targets: nothing is recorded for the calls::

    adapting.put(owner, "log", showing(owner.log, "library:log", after=logged))      # sees each result
    adapting.put(owner, "init", changing(owner.init, "library:init", with_ours))     # changes the arguments
    adapting.put(owner, "send", within(owner.send, named))                           # runs inside a context manager
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from autotrace.patch import adapting, engine
from autotrace.record import calls, faults
from autotrace.record.follower import Follower

Shown = Callable[..., None]
"""Takes the arguments before a call; after the call, the result and then the arguments."""
Changed = tuple[tuple[Any, ...], dict[str, Any]]
"""Holds the arguments of a call, by position and by name."""


def follow(key: str, follower: Follower) -> None:
    """Attach ``follower`` to the target ``key``, if the plan has the target."""
    probe = calls.probes.get(key)
    if probe is not None:
        probe.follower = follower


def showing(original: Any, site: str, *, before: Shown | None = None, after: Shown | None = None) -> Any:
    """Wrap ``original`` so that ``before`` and ``after`` see the calls; callers notice nothing.

    ``site`` counts faults. For a coroutine function, ``after`` gets the awaited result.
    """

    def show(shown: Shown, /, *args: Any, **kwargs: Any) -> None:
        try:
            shown(*args, **kwargs)
        except Exception as error:
            faults.failed(site, error)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            show(before, *args, **kwargs)
        result = original(*args, **kwargs)
        if after is not None:
            show(after, result, *args, **kwargs)
        return result

    @functools.wraps(original)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            show(before, *args, **kwargs)
        result = await original(*args, **kwargs)
        if after is not None:
            show(after, result, *args, **kwargs)
        return result

    return call_async if inspect.iscoroutinefunction(original) else call


def changing(original: Any, site: str, change: Callable[..., Changed]) -> Any:
    """Wrap ``original`` to get the arguments that ``change`` returns for the arguments of a call.

    If ``change`` fails, ``original`` gets the arguments of the call; ``site`` counts faults.
    """

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            args, kwargs = change(*args, **kwargs)
        except Exception as error:
            faults.failed(site, error)
        return original(*args, **kwargs)

    return call


def within(original: Any, around: Callable[..., AbstractContextManager[Callable[[Any], Any] | None]]) -> Any:
    """Wrap ``original`` to run inside the context manager that ``around`` returns for the arguments of a call. If the
    context manager gives a function, the function gets the result and returns what the caller gets."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with around(*args, **kwargs) as seen:
            result = original(*args, **kwargs)
            return result if seen is None else seen(result)

    @functools.wraps(original)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        with around(*args, **kwargs) as seen:
            result = await original(*args, **kwargs)
            return result if seen is None else seen(result)

    return call_async if inspect.iscoroutinefunction(original) else call


def look(
    key: str, module: ModuleType, cls: str, method: str, *, before: Shown | None = None, after: Shown | None = None
) -> None:
    """Show the calls of ``module.cls.method``. A method that this release does not have is reported under ``key``."""
    location = f"{module.__name__}:{cls}.{method}"
    library = module.__name__.partition(".")[0]
    try:
        owner = getattr(module, cls)
        made = showing(owner.__dict__[method], f"{library}:{method}", before=before, after=after)
        adapting.put(owner, method, made)
    except (AttributeError, KeyError):
        engine.report(key, location, "pending", "this release has no such method; its timings are missing")
    except Exception as error:
        faults.failed(key, error)
    else:
        engine.report(key, location, "bound", "")
