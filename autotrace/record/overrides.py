"""A method and those that it overrides: of a call through ``super()``, one is recorded."""

from __future__ import annotations

from typing import Any

from autotrace.record.context import OpenCall, current
from autotrace.record.object_fields import mro_of, name_of


def is_super_call(above: OpenCall, function: Any, args: tuple[Any, ...]) -> bool:
    """Whether this is the base method that the override being recorded calls through ``super()``: another function for
    the same object, of the same name, and not of a class that comes before the override's."""
    probe, signature = above.probe, above.signature
    if probe is None or not args:
        return False
    owner = args[0]
    if above.owner != id(owner) or signature is None or signature.identity == id(function):
        return False
    if probe.several and signature.name.rpartition(".")[2] != function.__name__:
        return False
    order = [name_of(cls) for cls in mro_of(owner if isinstance(owner, type) else type(owner))]
    here, override = function.__qualname__.rpartition(".")[0], signature.name.rpartition(".")[0]
    return here not in order or override not in order or order.index(here) > order.index(override)


def recording(owner: Any, name: str, key: str) -> bool:
    """Whether the current call is this one: method ``name`` of ``owner``, under another target than ``key``."""
    call = current.get()
    if call is None or call.probe is None or call.signature is None or call.probe.key == key:
        return False
    return call.owner == id(owner) and call.signature.name.rpartition(".")[2] == name
