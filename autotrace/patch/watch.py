"""Watch functions that a recorded function calls by name, where an ``except`` may hide their errors.

A spec names ``score``. The code of ``score`` has the name ``judge`` and an ``except``, so ``judge``, a function of the
same package, class or closure, is watched. The names are found in the code objects, at the first call of ``score``: a
module may not be complete earlier. Nothing is watched below a function that catches nothing: the record has such an
exception anyway.
"""

from __future__ import annotations

import contextlib
import opcode
import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from autotrace.config.plan import Target
from autotrace.patch import adapting, attach, wrapper
from autotrace.record import template, used_libraries
from autotrace.record.object_fields import attribute_of, module_of

ROLES = frozenset({"trajectory", "agent", "reward", "tool", "env"})
# Limits below a recorded function: levels of calls, watched functions, read functions
LEVELS, MOST, _LOOKED_AT = 3, 40, 200
_POP_EXCEPT = opcode.opmap["POP_EXCEPT"]
_COLLECTS = frozenset({"return_exceptions", "exception"})  # names in code that gets exceptions without an ``except``


def _read(function: FunctionType) -> tuple[set[str], bool]:
    """Return the names in the code of ``function`` and of the functions inside, and whether the code catches
    exceptions."""
    names, catches, waiting = set[str](), False, [wrapper.original_code(function.__code__)]
    for code in waiting:
        waiting += [one for one in code.co_consts if type(one) is CodeType]
        keywords = {word for one in code.co_consts if type(one) is tuple for word in one if type(word) is str}
        names.update(code.co_names)
        catches |= _POP_EXCEPT in code.co_code[::2] or not _COLLECTS.isdisjoint({*code.co_names, *keywords})
    return names, catches


def below(target: Target, function: FunctionType, args: tuple[Any, ...]) -> None:
    """Watch the functions that ``function``, the original of a recorded function, calls. ``args``: the arguments of a
    call."""
    placed = wrapper.placed_of(function)
    if placed is None:
        return
    libraries = {name.partition(".")[0] for name in target.names}
    if target.is_shipped and target.role != "reward" and attach.package(placed.__globals__) in libraries:
        return  # not a function of the user
    owner = type(args[0]) if args and "." in placed.__qualname__ else None
    named, found, waiting = {placed: _read(placed)}, dict[FunctionType, None](), [(placed, 0)]
    for caller, depth in waiting:
        names, catches = named[caller]
        for callee in _called(caller, names, owner):
            if catches and depth < LEVELS:
                found[callee] = None
            if callee not in named and len(named) < _LOOKED_AT:
                named[callee] = _read(callee)
                waiting.append((callee, depth + 1))
    for one in [one for one in found if one in named and _may(one, owner) and not _recurs(one, named)][:MOST]:
        wrapper.watch(one)


def _recurs(function: FunctionType, named: dict[FunctionType, tuple[set[str], bool]]) -> bool:
    """Return whether ``function`` may call itself: each frame of a wrapper would count against the recursion limit."""
    reached, waiting = set[FunctionType](), [function]
    for one in waiting:
        called = [other for other in named if other.__name__ in named[one][0] and other not in reached]
        reached.update(called)
        waiting += called
    return function in reached


def _may(function: FunctionType, owner: type | None) -> bool:
    """Return whether ``function`` may get another code, and has its own code still."""
    return (
        wrapper.original_code(function.__code__) is function.__code__
        and template.kind_of(function.__code__) != template.ASYNC_GENERATOR
        and used_libraries.refusal(function.__module__ or "") is None
        and adapting.refusal(function, owner, function.__name__) is None
        and not attach.looks_at_caller(function, owner)
    )


def _called(function: FunctionType, names: set[str], owner: type | None) -> Iterator[FunctionType]:
    """Yield functions of the package, the folder, the class and the closure of ``function`` whose name is in
    ``names``."""
    globals_, inside = function.__globals__, list[Any]()
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # the cell is empty
            inside.append(cell.cell_contents)
    for value in [*inside, *(globals_[name] for name in names & globals_.keys())]:
        kind = value if issubclass(type(value), type) else type(value)
        module = sys.modules.get(module_of(kind))
        if type(module) is ModuleType and _are_near(vars(module), globals_):
            inside += filter(None, (attribute_of(kind, name) for name in (*names, "__init__", "__call__")))
    for one in attach.called(function, names, owner, *inside):
        if _are_near(one.__globals__, globals_):
            yield one


def _are_near(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two modules belong to the same package or folder (except the folder of installed packages)."""
    folders = [os.path.dirname(file) for names in (one, other) if type(file := names.get("__file__")) is str]
    is_beside = len(folders) == 2 and folders[0] == folders[1] and "-packages" not in folders[0]
    return attach.package(one) == attach.package(other) or is_beside
