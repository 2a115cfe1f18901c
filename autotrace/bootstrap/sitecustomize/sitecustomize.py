"""Activate autotrace for users who cannot install: this folder and the package's parent are on ``PYTHONPATH``.

Any interpreter that inherits the variable runs this file, old and foreign interpreters included. The code is therefore
valid in every Python and does nothing unless asked. The ``sitecustomize`` that would have run without autotrace still
runs, under its own name.
"""

import os
import sys

if os.environ.get("AUTOTRACE", "").lower() in ("1", "true", "yes", "on") and sys.version_info >= (3, 10):
    try:  # noqa: SIM105
        import autotrace.bootstrap.activate  # noqa: F401
    except Exception:  # law 1: a broken agent must not keep the host from starting
        pass

if sys.version_info >= (3, 5):  # noqa: UP036
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    _here = os.path.dirname(os.path.abspath(__file__))
    _spec = PathFinder.find_spec("sitecustomize", [_entry for _entry in sys.path if os.path.abspath(_entry) != _here])
    if _spec is not None and _spec.loader is not None:
        # Errors of that file are the user's own: `site` reports the errors as without autotrace.
        sys.modules["sitecustomize"] = module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules["sitecustomize"])
