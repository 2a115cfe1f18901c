"""Thread pools: work submitted inside a recorded call belongs to that call.

``asyncio.to_thread`` takes the context along, ``loop.run_in_executor`` does not; veRL's reward managers run the user's
``compute_score`` through the latter, and its span would be nobody's child. ``ThreadPoolExecutor.submit`` is where both
event loops (asyncio's and uvloop's) hand work over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from autotrace.patch import adapting
from autotrace.record.context import OpenCall, current

_MARK = "__autotrace_submit__"


def install() -> None:
    """Make thread pools carry the current span. Idempotent."""
    original: Callable[..., Future[Any]] = ThreadPoolExecutor.submit
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = current.get()
        if call is None:
            return original(self, fn, *args, **kwargs)
        return original(self, _inside, call, fn, args, kwargs)

    setattr(submit, _MARK, True)
    adapting.put(ThreadPoolExecutor, "submit", submit)


def _inside(call: OpenCall, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    token = current.set(call)
    try:
        return function(*args, **kwargs)
    finally:
        current.reset(token)
