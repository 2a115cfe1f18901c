"""Adapters' rules for the objects of their library: what not to wrap, and which class stands behind a value.

``patch`` itself knows no library. An adapter adds its rules when its library is imported, which is before anything that
uses the library can be bound.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

Refusal = Callable[[Any, Any, str], "str | None"]
"""``(value, owner, attribute)``: why ``value`` of ``owner.__dict__`` must not be wrapped; None: it may."""
ClassBehind = Callable[[Any], "type | None"]
"""The class that has the methods of what a decorator left in the class's place; None for anything else."""

_refusals: list[Refusal] = []
_classes: list[ClassBehind] = []


def add(*, refusal: Refusal | None = None, class_behind: ClassBehind | None = None) -> None:
    """Ask these from now on. Adding one again changes nothing."""
    if refusal is not None and refusal not in _refusals:
        _refusals.append(refusal)
    if class_behind is not None and class_behind not in _classes:
        _classes.append(class_behind)


def refusal(value: Any, owner: Any, attribute: str) -> str | None:
    """Why ``value`` of ``owner.attribute`` must not be wrapped, as some library's adapter knows it."""
    for rule in _refusals:
        reason = rule(value, owner, attribute)
        if reason is not None:
            return reason
    return None


def class_behind(value: Any) -> Any:
    """The class whose methods are to be wrapped, where ``value`` stands in its place; ``value`` otherwise."""
    for rule in _classes:
        cls = rule(value)
        if cls is not None:
            return cls
    return value


def module_of(value: Any, owner: Any) -> str:
    """The module of ``value``; of its owner, where it does not say."""
    module = getattr(value, "__module__", None) if type(value) is FunctionType else None
    if module is None:
        module = owner.__name__ if inspect.ismodule(owner) else getattr(owner, "__module__", None)
    return module if type(module) is str else ""
