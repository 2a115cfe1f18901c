"""Record a callable at one name: a ``wrapt.FunctionWrapper`` stands there instead of the callable.

The way of callables without Python code to exchange: functions in C and Cython, ufuncs, partials and caches of these,
descriptors, instances. Only users of the name call the wrapper, so an entry names such a callable itself.
"""

from __future__ import annotations

import copy
import functools
import inspect
import keyword
import pkgutil
import sys
from types import FunctionType
from typing import Any

import wrapt

from autotrace.record import template
from autotrace.record.object_fields import members_of


class _Bound(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]
    """Bind a replaced method. Copies and pickles are those of the method by its name."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return getattr, (self._self_instance, self._self_parent._self_attribute)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return getattr(copy.deepcopy(self._self_instance, memo), self._self_parent._self_attribute)


class Replacement(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """Stand for ``raw`` at ``module:qualname`` and record the calls for the target ``key``.

    A pickle holds the name, and a callable of the standard library that looks the name up: a process without autotrace
    finds the original there. Another process may have no such name in ``__main__`` or below a function: a pickle then
    holds the original. A copy of an instance is a copy of the host's instance.
    """

    __bound_function_wrapper__ = _Bound

    def __init__(self, raw: Any, place: str, key: str, shape: FunctionType) -> None:
        super().__init__(raw, functools.partial(_recorded, raw, shape, key))
        self._self_place, self._self_key, self._self_attribute = place, key, place.rpartition(".")[2]

    def __reduce_ex__(self, protocol: Any) -> Any:
        module, _, qualname = self._self_place.partition(":")
        if module != "__main__" and "<locals>" not in qualname:
            return pkgutil.resolve_name, (self._self_place,)
        raw = self.__wrapped__
        return qualname if type(raw) is FunctionType else (copy.copy, (raw,))

    def __copy__(self) -> Any:
        return self if (made := copy.copy(self.__wrapped__)) is self.__wrapped__ else made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self if (made := copy.deepcopy(self.__wrapped__, memo)) is self.__wrapped__ else made


def replacement(raw: Any, function: FunctionType | None, module: str, qualname: str, key: str) -> Replacement:
    """Build what stands for ``raw`` at ``module:qualname``. ``function``: the Python function inside, if any."""
    return Replacement(raw, f"{module}:{qualname}", key, function or _shape(raw, module, qualname))


def _recorded(
    raw: Any, shape: FunctionType, key: str, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call ``wrapped`` as ``plain`` of ``importlib_bootstrap/wrappers.py`` does. wrapt gives a function in C the module
    as the instance."""
    calls = sys.modules.get("autotrace.record.calls")
    call = None
    try:
        if calls is not None:
            given = args if wrapped is raw or instance is None else (instance, *args)
            call = calls.begin(shape, key, given, kwargs)
        result = wrapped(*args, **kwargs)
        return result if calls is None or call is None else calls.end(call, result)
    except BaseException as error:
        if calls is not None:
            if call is not None:
                try:
                    calls.fail(call, error)
                except BaseException as again:
                    calls.fail(call, again)
                    raise
            calls.without_frame(error)
        raise


_recorded.__code__ = _recorded.__code__.replace(co_filename=template.FILE)  # ``warnings`` passes over the frame


def _shape(raw: Any, module: str, qualname: str) -> FunctionType:
    """Build a function with the name and the parameters of ``raw``, for ``arguments.Signature``. Nothing calls the
    function. Parameters that ``raw`` does not tell are ``*args`` and ``**kwargs``."""
    declared = "*args, **kwargs"
    known: Any = raw if inspect.isroutine(raw) else members_of(type(raw)).get("__call__")
    try:
        if inspect.isbuiltin(known) or inspect.ismethoddescriptor(known) or type(known) is FunctionType:
            parameters = [*inspect.signature(known).parameters.values()][known is not raw :]
            if not any(keyword.iskeyword(one.name) for one in parameters):
                bare = [one.replace(default=one.empty, annotation=one.empty) for one in parameters]
                declared = str(inspect.Signature(bare))[1:-1]
    except (TypeError, ValueError):  # C code without a signature, as most of torch
        pass
    names: dict[str, Any] = {"__name__": module}
    exec(f"def shape({declared}): pass", names)
    made: FunctionType = names["shape"]
    made.__qualname__, made.__name__ = qualname, qualname.rpartition(".")[2]
    return made
