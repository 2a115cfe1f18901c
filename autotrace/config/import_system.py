"""Where Python looks for a module: the one function of the import system that autotrace stands in for.

``importlib._bootstrap._find_spec`` (Python 3.4 to 3.14) asks the entries of ``sys.meta_path`` one after the other. An
entry of our own would never hear of a module that an entry before it finds by itself, and type checkers, pytest and
others put theirs first. What this function returns is what is imported, whichever entry it comes from.

Standard library only: every Python process of a run imports this.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    FindSpec = Callable[..., Any]
    """``(name, path, target=None)``: the spec of a module, or None."""

_NAME = "_find_spec"


def current() -> FindSpec:
    """The function that is asked now."""
    find_spec: FindSpec = getattr(sys.modules["_frozen_importlib"], _NAME)
    return find_spec


def replace(before: FindSpec, after: FindSpec) -> None:
    """Have ``after`` asked where ``before`` is; where somebody else's stands instead, theirs is left alone."""
    for name in ("_frozen_importlib", "importlib.util"):  # the second has taken it by name
        module = sys.modules.get(name)
        if module is not None and vars(module).get(_NAME) is before:
            setattr(module, _NAME, after)
