"""Replace the single function of the import system with which Python looks for a module.

``importlib._bootstrap._find_spec`` (Python 3.4 to 3.14) asks the entries of ``sys.meta_path`` one after the other. An
entry of autotrace would never hear about a module that an earlier entry finds. Type checkers, pytest and others put
their entries first. Python imports the spec that this function returns, whichever entry the spec comes from.

Standard library only: every Python process of a run imports this module.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    FindSpec = Callable[..., Any]
    """Type of ``(name, path, target=None)``, which returns the spec of a module, or None."""

_NAME = "_find_spec"


def current() -> FindSpec:
    """Return the function that Python calls now."""
    find_spec: FindSpec = getattr(sys.modules["_frozen_importlib"], _NAME)
    return find_spec


def replace(before: FindSpec, after: FindSpec) -> None:
    """Put ``after`` where ``before`` is; leave any other function alone."""
    for name in ("_frozen_importlib", "importlib.util"):  # the second module imported the function by name
        module = sys.modules.get(name)
        if module is not None and vars(module).get(_NAME) is before:
            setattr(module, _NAME, after)
