"""Slots for objects that every call looks at: read as quickly as can be, and written down once, where they are set."""

from __future__ import annotations

import dis
from typing import TypeVar

Class = TypeVar("Class", bound=type)


def slotted(cls: Class) -> Class:
    """``cls`` with a slot for each attribute that its ``__init__`` sets; for a class that inherits from none."""
    names = {step.argval for step in dis.get_instructions(vars(cls)["__init__"]) if step.opname == "STORE_ATTR"}
    members = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    made: Class = type(cls)(cls.__name__, (), {**members, "__slots__": (*sorted(names), "__weakref__")})
    return made
