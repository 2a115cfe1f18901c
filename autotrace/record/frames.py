"""Frames of ours that lie between two frames of the host, made transparent to code that counts frames."""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar

FILE = "<autotrace importlib._bootstrap>"
"""``co_filename`` of such a frame. The two words make ``warnings`` (``stacklevel``) and ``logging`` (``findCaller``,
from Python 3.11) pass over it as they pass over the import system's own, so both name the line they named before."""

Function = TypeVar("Function", bound=Any)


def transparent(function: Function) -> Function:
    """``function`` with ``FILE`` as the file of its code."""
    assert type(function) is FunctionType
    function.__code__ = function.__code__.replace(co_filename=FILE)
    return function
