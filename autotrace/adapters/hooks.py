"""Attach adapters to a library: followers to targets, and functions that see the calls of other methods.

Such other methods are not targets: nothing is recorded for the calls.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from autotrace.patch import adapting, engine
from autotrace.record import calls, faults
from autotrace.record.follower import Follower

Shown = Callable[..., None]
"""Takes the arguments before a call; after the call, the result and then the arguments."""


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
