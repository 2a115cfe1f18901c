"""Copy token lists on the caller's thread."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from autotrace.record import faults
from autotrace.record.backlog import backlog
from autotrace.record.fields import ABSENT
from autotrace.record.origin import is_hosts


def copy_tokens(value: Any) -> Any:
    """Copy a list of numbers so that nobody else changes the copy. None for a value that cannot be copied without
    waiting, and while too much waits to be written."""
    if backlog.watchful:
        if backlog.overloaded():
            return None
        if type(value) in (list, tuple) and backlog.packs():
            return _packed(value)
    if type(value) is list:
        return tuple(value)  # the garbage collector looks through a tuple of numbers once, through a list every time
    if value is ABSENT or value is None:
        return None
    if type(value) is tuple:
        return value
    try:
        tolist = getattr(value, "tolist", None)
        if tolist is None:
            return tuple(value) if issubclass(type(value), (list, tuple)) else None
        device = getattr(value, "device", None)
        if device is not None and str(device) != "cpu":
            return None
        return tuple(tolist())
    except Exception as error:
        faults.failed("tokens", error)
        return None


def _packed(value: Sequence[Any]) -> Any:
    """Pack ``value`` into 4 bytes a number, if ``value`` is a list of token ids."""
    try:
        return array("I", value)
    except (TypeError, OverflowError) as error:
        if is_hosts(error):
            raise
        return tuple(value)


def joined(head: Any, tail: Any) -> Any:
    """Join two copied lists; while much waits, the lists are packed."""
    return head + tail if type(head) is type(tail) else (*(head or ()), *tail)
