"""What adapters of libraries may do: hear of imports, exchange attributes, say what is not to be wrapped. What the
engine itself replaces is exchanged here too.

``patch`` itself knows no library. An adapter adds its rules when its library is imported, which is before anything that
uses the library can be bound. All of it ends with the engine, but for the rules.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from autotrace.record import faults

Refusal = Callable[[Any, Any, str], "str | None"]
"""``(value, owner, attribute)``: why ``value`` of ``owner.__dict__`` must not be wrapped; None: it may."""
ClassBehind = Callable[[Any], "type | None"]
"""The class that has the methods of what a decorator left in the class's place; None for anything else."""

waiting: dict[str, list[Callable[[Any], None]]] = {}
"""By module: whom to tell when it is imported. By ``module:class``: when the program, which is that module, made the
class."""
ABSENT: Any = object()
"""What stands where nothing stands."""
_exchanged: list[tuple[Any, str, Any, Any]] = []
"""Owner, attribute, what was there, what is there now."""
_hooked: WeakKeyDictionary[ModuleType, set[Callable[[ModuleType], None]]] = WeakKeyDictionary()
"""What adapters did to a module must not be done again."""
_refusals: list[Refusal] = []
_classes: list[ClassBehind] = []


def when_imported(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call ``callback(module)`` right after module ``name`` was imported; now, if it already is. Never raises."""
    module = sys.modules.get(name)
    if module is not None and not initialising(module):
        tell(callback, module)
    else:
        waiting.setdefault(name, []).append(callback)


def when_run(module: str, name: str, callback: Callable[[type], None]) -> None:
    """Call ``callback(cls)`` right after class ``name`` was made, if ``module`` is what ``python -m`` runs: it is never
    imported then."""
    waiting.setdefault(f"{module}:{name}", []).append(callback)


def put(owner: Any, name: str, made: Any) -> None:
    """Set ``owner.name`` to ``made`` until the engine stops; ``owner`` is a module or a class.

    Classes made inside functions are not remembered: the host's garbage must stay garbage. What was set there stays and
    passes calls through. Raises ``TypeError`` for an owner that cannot be changed (a C type).
    """
    before = vars(owner).get(name, ABSENT)
    setattr(owner, name, made)
    if not isinstance(owner, type) or "<locals>" not in owner.__qualname__:
        _exchanged.append((owner, name, before, made))


def add(*, refusal: Refusal | None = None, class_behind: ClassBehind | None = None) -> None:
    """Ask these from now on. Adding one again changes nothing."""
    if refusal is not None and refusal not in _refusals:
        _refusals.append(refusal)
    if class_behind is not None and class_behind not in _classes:
        _classes.append(class_behind)


def refusal(value: Any, owner: Any, attribute: str) -> str | None:
    """Why ``value`` of ``owner.attribute`` must not be wrapped, as some library's adapter knows it."""
    return next((reason for rule in _refusals if (reason := rule(value, owner, attribute)) is not None), None)


def class_behind(value: Any) -> Any:
    """The class whose methods are to be wrapped, where ``value`` stands in its place; ``value`` otherwise."""
    return next((cls for rule in _classes if (cls := rule(value)) is not None), value)


def module_of(value: Any, owner: Any) -> str:
    """The module of ``value``; of its owner, where it does not say."""
    module = getattr(value, "__module__", None) if type(value) is FunctionType else None
    if module is None:
        module = owner.__name__ if inspect.ismodule(owner) else getattr(owner, "__module__", None)
    return module if type(module) is str else ""


def initialising(module: Any) -> bool:
    """Whether ``module`` is half imported."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def tell(callback: Callable[[ModuleType], None], module: ModuleType) -> None:
    """``callback(module)``, once. Never raises."""
    try:
        done = _hooked.setdefault(module, set())
        if callback not in done:
            done.add(callback)
            callback(module)
    except Exception as error:
        faults.failed(f"hook:{module.__name__}", error)


def stop() -> None:
    """Put everything back, last change first, and tell nobody any more. What somebody replaced meanwhile is left
    alone."""
    waiting.clear()
    _hooked.clear()
    while _exchanged:
        owner, name, before, made = _exchanged.pop()
        try:
            if vars(owner).get(name) is not made:
                continue
            if before is ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        except Exception as error:
            faults.failed("restore", error)
