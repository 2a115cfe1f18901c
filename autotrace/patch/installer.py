"""Where wrappers stand, and what stood there before: installed through wrapt, put back on request.

All names that one module or class has for a function get the same wrapper, and so have the modules that took it with
``from ... import`` before it was wrapped: two names for one function stay one function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

from autotrace.record import faults

_ABSENT: Any = object()


class Installer:
    """What was replaced in this process, to be put back.

    Classes made inside functions are not remembered: what stood on them refers to them (``super()`` keeps the class
    in a closure), and the host's garbage must stay garbage. Their wrappers stay and pass calls through.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def install(self, owner: Any, attribute: str, factory: Callable[[Any], Any]) -> bool:
        """Replace ``owner.attribute`` by ``factory(what stands there)``; False if that is the same object.

        An inherited attribute is overridden on ``owner`` itself. Raises what ``factory`` raises, ``AttributeError``
        when nothing is there, ``TypeError`` for an owner that cannot be changed (a C type).
        """
        import wrapt

        seen: list[Any] = []

        def replacement(raw: Any) -> Any:
            made = factory(raw)
            seen.extend((raw, made))
            if made is raw:
                raise _Unchanged
            return made

        before = vars(owner).get(attribute, _ABSENT)
        try:
            wrapt.wrap_object(owner, attribute, replacement)  # type: ignore[arg-type]
        except _Unchanged:
            return False
        raw, made = seen
        self._remember(owner, attribute, before, made)
        if type(raw) is FunctionType and before is raw:
            for name, value in list(vars(owner).items()):
                if value is raw:
                    self.set(owner, name, raw, made)
        return True

    def set(self, owner: Any, name: str, before: Any, made: Any) -> None:
        """Set ``owner.name``, which is ``before``, to ``made``."""
        setattr(owner, name, made)
        self._remember(owner, name, before, made)

    def spread(self, replaced: dict[int, tuple[Any, Any]], modules: Iterable[ModuleType]) -> None:
        """Replace in ``modules`` the functions of ``replaced`` (``id(raw)`` -> raw, wrapper) they took by name."""
        for module in modules:
            for name, value in list(vars(module).items()):
                if type(value) is FunctionType and id(value) in replaced:
                    self.set(module, name, *replaced[id(value)])

    def restore(self) -> None:
        """Put everything back, last change first. What somebody replaced meanwhile is left alone."""
        while self._undo:
            owner, name, before, made = self._undo.pop()
            try:
                if vars(owner).get(name) is not made:
                    continue
                if before is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
            except Exception as error:
                faults.failed("restore", error)

    def _remember(self, owner: Any, name: str, before: Any, made: Any) -> None:
        if not isinstance(owner, type) or "<locals>" not in owner.__qualname__:
            self._undo.append((owner, name, before, made))


class _Unchanged(Exception):
    """Nothing is to be replaced."""
