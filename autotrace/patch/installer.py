"""What was put in the place of something else, to be put back: overrides of inherited functions, functions that stand
where another one shall not be changed, and what adapters exchange."""

from __future__ import annotations

from typing import Any

from autotrace.record import faults

ABSENT: Any = object()
"""What stands where nothing stands."""


class Installer:
    """What was set in this process.

    Classes made inside functions are not remembered: the host's garbage must stay garbage. What was set there stays and
    passes calls through.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, before: Any, made: Any) -> None:
        """Set ``owner.name``, which is ``before``, to ``made``. Raises ``TypeError`` for an owner that cannot be
        changed (a C type)."""
        setattr(owner, name, made)
        if not isinstance(owner, type) or "<locals>" not in owner.__qualname__:
            self._undo.append((owner, name, before, made))

    def restore(self) -> None:
        """Put everything back, last change first. What somebody replaced meanwhile is left alone."""
        while self._undo:
            owner, name, before, made = self._undo.pop()
            try:
                if vars(owner).get(name) is not made:
                    continue
                if before is ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
            except Exception as error:
                faults.failed("restore", error)
