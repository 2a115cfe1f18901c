"""Keep a call open for the body of a ``with``: calls of functions under ``contextlib.contextmanager`` and
``asynccontextmanager``.

The body runs in the caller's context while the generator is suspended. So the call stays current in the body; the call
of a stream does not. The exception is a call of role ``llm``, which gives the body an answer to read: the work of the
body on the answer is not a part of the call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

from autotrace.record import closing
from autotrace.record.context import CLOSED, OpenCall
from autotrace.record.origin import is_hosts
from autotrace.record.snapshot import Limits, snapshot
from autotrace.record.yielded import NO_KEEPER, Keeper, Yielded


class Given(Yielded):
    """Holds the object that ``with`` bound, read when the body ends. An object that takes no weak reference is copied
    when the body begins."""

    bound = True

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._read: Callable[[], Any] = lambda: None

    def add(self, item: Any) -> Keeper:
        """Take the bound object."""
        try:
            self._read = weakref.ref(item)
        except TypeError:
            copy = snapshot(item, self._limits)
            self._read = lambda: copy
        return NO_KEEPER

    def value(self) -> Any:
        """Return the object if the object still exists, or else the copy."""
        return self._read()


_block: ContextVar[None] = ContextVar("autotrace_with")
"""Set from the beginning of a body to the end. The token alone tells whether both are in the same context."""


def entered(call: OpenCall, value: Any) -> Token[None] | None:
    """Begin the body with ``value``. Returns the token that ``resumed`` wants. A call may not keep the token, because
    the token refers to the whole context."""
    call.items = 1  # until the body ends: the value is not an item of a stream
    probe = call.probe
    if probe is not None:
        if probe.is_model:
            closing.leave(call)
        try:
            if call.yielded is None and probe.needs_items:
                call.yielded = Given(probe.capture.yields)
            if call.yielded is not None:
                call.yielded.add(value)
        except Exception as error:
            probe.trouble("enter", error)
        if probe.is_model:
            return None
    return _block.set(None)


def resumed(call: OpenCall, block: Token[None] | None) -> None:
    """End the body."""
    call.items = 0
    if call.probe is not None and call.probe.is_model:
        closing.enter(call)
    if block is None:
        return
    try:
        _block.reset(block)
    except (LookupError, ValueError) as error:  # in another task or thread, which does not hear of the end
        if is_hosts(error):
            raise
        call.recorded = False
        if call.probe is None:
            call.epoch = CLOSED
