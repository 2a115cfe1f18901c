"""Give a recorded function the cache key of its original in datasets and dask.

Both libraries keep a function's results under a key made from the function's code. With the original's key, a cache
that a bare run filled serves a recorded run, and the other way round. Only the pickles that become such a key are
changed: a recorded function that is sent to another process stays recorded.

Read in datasets 5.2, dill 0.4 and dask 2026.8.
"""

from __future__ import annotations

import functools
import io
import sys
from collections import ChainMap
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from autotrace.patch import adapting
from autotrace.patch.wrapper import original_code

_OF_ORIGINAL = "_autotrace_of_original"
"""Attribute that marks each of autotrace's replacements for functions of datasets and dask."""


def install() -> None:
    """Install the hooks right after one of the libraries was imported. Idempotent."""
    detect, datasets = sys.modules.get("dill.detect"), sys.modules.get("datasets.utils._dill")
    if detect is not None and datasets is not None:
        if not hasattr(detect.nestedglobals, _OF_ORIGINAL):
            adapting.put(detect, "nestedglobals", _reading(detect.nestedglobals, 0))
        dispatch = datasets.Pickler.dispatch
        if not hasattr(dispatch[CodeType], _OF_ORIGINAL):
            dispatch[CodeType] = _reading(dispatch[CodeType], 1)
    tokenize = sys.modules.get("dask.tokenize")
    if tokenize is not None and not hasattr(tokenize.cloudpickle.dumps, _OF_ORIGINAL):
        adapting.put(tokenize, "cloudpickle", _bare(tokenize.cloudpickle))


def _reading(function: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Wrap ``function`` so that the code argument at ``position`` is the original's code."""

    @functools.wraps(function)
    def of_original(*args: Any, **kwargs: Any) -> Any:
        code = args[position]
        if type(code) is CodeType:
            args = (*args[:position], original_code(code), *args[position + 1 :])
        return function(*args, **kwargs)

    setattr(of_original, _OF_ORIGINAL, True)
    return of_original


def _bare(cloudpickle: ModuleType) -> ModuleType:
    """Build a module like ``cloudpickle`` whose ``dumps`` treats recorded functions as their originals."""
    pickler: Any = cloudpickle.Pickler
    reduced = _reading(pickler.dispatch_table[CodeType], 0)
    table = {"dispatch_table": ChainMap({CodeType: reduced}, pickler.dispatch_table)}
    bare: Any = type("Pickler", (pickler,), table)

    def dumps(obj: Any, protocol: int | None = None, buffer_callback: Any = None) -> bytes:
        with io.BytesIO() as file:
            bare(file, protocol=protocol, buffer_callback=buffer_callback).dump(obj)
            return file.getvalue()

    made = ModuleType(cloudpickle.__name__)
    made.__dict__.update(cloudpickle.__dict__, dumps=dumps)
    setattr(dumps, _OF_ORIGINAL, True)
    return made
