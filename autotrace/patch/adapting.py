"""Let adapters of libraries wait for imports, exchange attributes, and refuse targets. The engine's own replacements
are exchanged here too.

``patch`` itself knows no library. An adapter adds its rules when its library is imported, before any user of the
library can be bound. When the engine stops, everything ends except the rules.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from autotrace.record import faults

Refusal = Callable[[Any, Any, str], "str | None"]
"""Return why ``value`` of ``owner.__dict__`` must not be wrapped, from ``(value, owner, attribute)``; None: wrapping is
allowed."""
ClassBehind = Callable[[Any], "type | None"]
"""Return the class that has the methods of an object that a decorator left in the class's place; None for any other
object."""

waiting: dict[str, list[Callable[[Any], None]]] = {}
"""Map module -> callbacks after the module's import, and ``module:class`` -> callbacks after the program, which is the
module, created the class."""
ABSENT: Any = object()
"""Mark a place without a value."""
_exchanged: list[tuple[Any, str, Any, Any]] = []
"""List owner, attribute, the value before, the value now."""
_once_builtin: list[Any] = []
"""Hold every replacement that ``builtins`` no longer has. ``torch._dynamo.trace_rules`` remembers the ``id()`` of each
builtin; a function of the host that got the ``id()`` of a freed replacement would not compile any more."""
_hooked: WeakKeyDictionary[ModuleType, set[Callable[[ModuleType], None]]] = WeakKeyDictionary()
"""Map module -> callbacks that have run and must not run again."""
_refusals: list[Refusal] = []
_classes: list[ClassBehind] = []


def when_imported(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call ``callback(module)`` right after module ``name`` was imported; at once if the module already is. Never
    raises."""
    module = sys.modules.get(name)
    if module is not None and not initialising(module):
        tell(callback, module)
    else:
        waiting.setdefault(name, []).append(callback)


def when_run(module: str, name: str, callback: Callable[[type], None]) -> None:
    """Call ``callback(cls)`` right after class ``name`` was created, if ``python -m`` runs ``module``: the module is
    then never imported."""
    waiting.setdefault(f"{module}:{name}", []).append(callback)


def put(owner: Any, name: str, made: Any) -> None:
    """Set ``owner.name`` to ``made`` until the engine stops; ``owner`` is a module or a class.

    Classes made inside functions are not remembered: the host's garbage must stay garbage. A value that was set on such
    a class stays and passes calls through. Raises ``TypeError`` for an owner that cannot be changed (a C type).
    """
    before = vars(owner).get(name, ABSENT)
    setattr(owner, name, made)
    if not isinstance(owner, type) or "<locals>" not in owner.__qualname__:
        _exchanged.append((owner, name, before, made))


def add(*, refusal: Refusal | None = None, class_behind: ClassBehind | None = None) -> None:
    """Add rules that are asked from now on. Adding a rule again changes nothing."""
    if refusal is not None and refusal not in _refusals:
        _refusals.append(refusal)
    if class_behind is not None and class_behind not in _classes:
        _classes.append(class_behind)


def refusal(value: Any, owner: Any, attribute: str) -> str | None:
    """Return why ``value`` of ``owner.attribute`` must not be wrapped, according to the adapter of some library."""
    return next((reason for rule in _refusals if (reason := rule(value, owner, attribute)) is not None), None)


def class_behind(value: Any) -> Any:
    """Return the class whose methods are wrapped, if ``value`` is in the class's place; otherwise ``value``."""
    return next((cls for rule in _classes if (cls := rule(value)) is not None), value)


def module_of(value: Any, owner: Any) -> str:
    """Return the module of ``value``, or of its owner if ``value`` does not tell."""
    module = getattr(value, "__module__", None) if type(value) is FunctionType else None
    if module is None:
        module = owner.__name__ if inspect.ismodule(owner) else getattr(owner, "__module__", None)
    return module if type(module) is str else ""


def initialising(module: Any) -> bool:
    """Return whether ``module`` is half imported."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def tell(callback: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Call ``callback(module)``, once. Never raises."""
    try:
        done = _hooked.setdefault(module, set())
        if callback not in done:
            done.add(callback)
            callback(module)
    except Exception as error:
        faults.failed(f"hook:{module.__name__}", error)


def stop() -> None:
    """Restore everything, last change first, and drop all callbacks. An attribute that somebody replaced meanwhile is
    left alone."""
    waiting.clear()
    _hooked.clear()
    while _exchanged:
        owner, name, before, made = _exchanged.pop()
        if owner is builtins:
            _once_builtin.append(made)
        try:
            if vars(owner).get(name) is not made:
                continue
            if before is ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        except Exception as error:
            faults.failed("restore", error)
