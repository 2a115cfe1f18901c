"""What a glob takes: the public functions of a module and the public methods of its public classes.

Only what was written in Python and right there. Nothing here looks at an object's attributes before its type: what
stands in a module may be a lazy proxy that does something, or raises, when it is asked.
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

from autotrace.record.object_fields import members_of, module_of, name_of


def members_of_module(module: ModuleType) -> tuple[list[str], list[type]]:
    """Names of the functions, and the classes, that were defined in ``module``."""
    functions: list[str] = []
    classes: list[type] = []
    for name, value in list(vars(module).items()):
        if name.startswith("_"):
            continue
        kind = type(value)
        if kind is FunctionType:
            if value.__module__ == module.__name__:
                functions.append(name)
        elif issubclass(kind, type) and module_of(value) == module.__name__ and name_of(value) == name:
            classes.append(value)
    return functions, classes


def members_of_class(cls: type) -> list[str]:
    """Names of the methods that were defined in ``cls``."""
    if any(word.startswith("_") for word in name_of(cls).split(".")):
        return []
    return [name for name, raw in list(members_of(cls).items()) if not name.startswith("_") and _method(cls, raw)]


def _method(cls: type, raw: Any) -> bool:
    function = raw.__func__ if type(raw) in (staticmethod, classmethod) else raw
    if type(function) is not FunctionType:
        return False
    # ``encoder = json_encoder`` keeps a function from elsewhere, which is pickled by the name it has there
    owner = function.__qualname__.rpartition(".")[0]
    return owner == name_of(cls) or owner.endswith("<locals>")
