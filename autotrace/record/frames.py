"""Frames of ours that lie between two frames of the host, made transparent to code that counts frames."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

FILE = "<autotrace importlib._bootstrap>"
"""``co_filename`` of such a frame. The two words make ``warnings`` (``stacklevel``) and ``logging`` (``findCaller``,
from Python 3.11) pass over it as they pass over the import system's own, so both name the line they named before."""

_RAISE, _RERAISE = b"\x01\0\x82\0", b"\x5c\x03\x77\0"
"""On Python 3.10: ``POP_TOP; RAISE_VARARGS 0`` and ``UNPACK_SEQUENCE 3; RERAISE 0``."""

Function = TypeVar("Function", bound=Any)


def transparent(function: Function) -> Function:
    """Make ``FILE`` the file of the function's code. Return the function.

    On Python 3.10, a bare ``raise`` raises with the traceback of before. So a ``raise`` there after ``without_frame``
    (``errors``) becomes an instruction that raises the three values returned by ``without_frame``.
    """
    code = function.__code__.replace(co_filename=FILE)
    if sys.version_info < (3, 11):
        code = code.replace(co_code=code.co_code.replace(_RAISE, _RERAISE), co_stacksize=code.co_stacksize + 2)
    function.__code__ = code
    return function
