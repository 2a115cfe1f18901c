"""Let code that counts frames pass over frames of ours between two frames of the host."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

FILE = "<autotrace importlib._bootstrap>"
"""Marks such a frame in ``co_filename``. The two words let ``warnings`` (``stacklevel``) and ``logging``
(``findCaller``, from Python 3.11) pass over the frame like over frames of the import system, so both name the same line
as without autotrace."""

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
