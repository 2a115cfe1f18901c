"""What is recorded of an exception that ended a call."""

from __future__ import annotations

import asyncio
from typing import Any

from autotrace.record import faults
from autotrace.record.snapshot import Limits, snapshot

_LIMITS = Limits(2, 16)
_MAX_FRAMES = 40


def status_of(error: BaseException) -> str:
    """How a call ended that ``error`` ended."""
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        return "CANCELLED"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)) or type(error).__name__.endswith(
        ("Timeout", "TimeoutError")
    ):
        return "TIMEOUT"
    return "ERROR"


def described(error: BaseException) -> tuple[str, Any, list[tuple[str, int | None, str]]]:
    """Type, arguments and frames, without keeping the traceback (it would keep the host's locals alive)."""
    frames: list[tuple[str, int | None, str]] = []
    trace = error.__traceback__
    while trace is not None and len(frames) < _MAX_FRAMES:
        code = trace.tb_frame.f_code
        frames.append((code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name, _message(error, kind), frames


def _message(error: BaseException, kind: type[BaseException]) -> Any:
    """The error's arguments; its text if it was made without any and has a ``__str__`` of its own (urllib's
    ``HTTPError``, pydantic's ``ValidationError``)."""
    try:
        if error.args or kind.__str__ is BaseException.__str__:
            return snapshot(error.args, _LIMITS)
        return [str(error)]
    except Exception as again:
        faults.failed("message", again)
        return []
