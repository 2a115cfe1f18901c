"""Being told of the calls of a function that is no target: it is looked at, and records nothing itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from autotrace.patch import adapting
from autotrace.record import faults

Given = Mapping[str, Any]
Observer = Callable[[Any, Given], None]
"""Receives the result (None before the call) and the arguments by name."""


def observe(owner: Any, name: str, *, before: Observer | None = None, after: Observer | None = None) -> None:
    """Call ``before`` or ``after`` with every call of ``owner.name``; its callers notice nothing. What is no function
    written in Python is left alone."""
    original = vars(owner).get(name) if owner is not None else None
    if not inspect.isfunction(original):
        return
    signature = inspect.signature(original)
    library = original.__module__.partition(".")[0]

    def notify(observer: Observer | None, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if observer is None:
            return
        try:
            observer(result, signature.bind(*args, **kwargs).arguments)
        except Exception as error:
            faults.failed(f"{library}:{name}", error)

    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        notify(before, None, args, kwargs)
        result = original(*args, **kwargs)
        notify(after, result, args, kwargs)
        return result

    adapting.put(owner, name, observed)
