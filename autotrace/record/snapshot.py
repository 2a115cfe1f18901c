"""Copies of arguments and results, made on the caller's thread: shallow where that is enough, bounded always.

What is copied is what can change under our hands (lists, dicts, fields of dataclasses and pydantic models). Type and
shape are looked at before anything that walks a container. No ``repr``, no user code, nothing that waits for a GPU:
a tensor is its dtype, shape and device. Asked is the type, never ``isinstance``, which asks a proxy's ``__class__``.
Strings are kept by reference and cut later, on the flusher's thread.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Container
from typing import Any
from weakref import WeakKeyDictionary

ATOMS = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose values nobody can change: kept by reference."""
_NUMBERS = frozenset({int, float})
_UNKNOWN: Any = object()
_known_fields: WeakKeyDictionary[type, tuple[str, ...] | None] = WeakKeyDictionary()
MAX_NODES = 2_000
"""Values visited for one argument: the bound on the caller's time whatever is passed (about 0.5 ms)."""


class Limits:
    """How much of a value is copied; mirrors ``config.plan.Settings``."""

    __slots__ = ("depth", "items")

    def __init__(self, depth: int = 6, items: int = 256) -> None:
        self.depth = depth
        self.items = items


def snapshot(value: Any, limits: Limits, without: Container[str] = ()) -> Any:
    """A copy of ``value`` made of dicts, lists, strings, numbers and markers, safe to encode in another thread.

    ``without``: fields of ``value`` itself (an object with fields) that are not looked at.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    # flat containers, the common case: one look at the types in C, one copy in C
    if kind is dict:
        if len(value) <= limits.items and ATOMS.issuperset(map(type, value.values())):
            return value.copy()
    elif kind is list and len(value) <= limits.items and ATOMS.issuperset(map(type, value)):
        return value.copy()
    if without and kind is not list and kind is not tuple and not issubclass(kind, dict):
        return _object(value, kind, limits.depth, limits.items, [MAX_NODES], without)
    return _copy(value, limits.depth, limits.items, [MAX_NODES])


def _copy(value: Any, depth: int, items: int, budget: list[int]) -> Any:
    kind = type(value)
    if kind in ATOMS:
        return value
    budget[0] -= 1
    if budget[0] < 0:
        return {"…": "cut"}
    if kind is list or kind is tuple:
        if value and type(value[0]) in _NUMBERS and type(value[-1]) in _NUMBERS:
            return _numbers(value, items)
        return _sequence(value, depth, items, budget)
    if kind is dict or issubclass(kind, dict):
        if kind is dict and len(value) <= items and ATOMS.issuperset(map(type, value.values())):
            return value.copy()
        return _mapping(dict.items(value), len(value), depth, items, budget)
    return _object(value, kind, depth, items, budget)


def _numbers(value: Any, items: int) -> Any:
    if len(value) <= items:
        return list(value)
    return {"…": f"{len(value)} numbers", "first": list(value[:16])}


def _sequence(value: Any, depth: int, items: int, budget: list[int]) -> Any:
    if depth <= 0:
        return {"…": f"{len(value)} items"}
    copied = [
        item.copy()  # a message of a conversation, as a rule
        if type(item) is dict and len(item) <= items and depth > 1 and ATOMS.issuperset(map(type, item.values()))
        else _copy(item, depth - 1, items, budget)
        for item in value[:items]
    ]
    if len(value) > items:
        copied.append({"…": f"{len(value) - items} more"})
    return copied


def _mapping(pairs: Any, size: int, depth: int, items: int, budget: list[int]) -> Any:
    if depth <= 0:
        return {"…": f"{size} keys"}
    copied: dict[Any, Any] = {}
    for number, (name, item) in enumerate(pairs):
        if number >= items:
            copied["…"] = f"{size - items} more"
            break
        copied[name] = _copy(item, depth - 1, items, budget)
    return copied


def _object(value: Any, kind: type, depth: int, items: int, budget: list[int], without: Container[str] = ()) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if issubclass(kind, numpy.generic):
            return _copy(value.item(), depth, items, budget)
        if issubclass(kind, numpy.ndarray):
            return _array(value, items, depth, budget)
    shape = getattr(kind, "shape", None)
    if shape is not None and hasattr(kind, "dtype"):
        return {
            "…": "tensor",
            "dtype": str(value.dtype),
            "shape": [int(n) for n in value.shape],
            "device": _device(value),
        }
    if issubclass(kind, enum.Enum):
        return str(value.name)
    fields = _known_fields.get(kind, _UNKNOWN)
    if fields is _UNKNOWN:
        fields = _known_fields[kind] = _fields(kind)
    if fields is not None:
        stored = getattr(value, "__dict__", None)
        pairs = [
            (name, stored[name] if stored and name in stored else getattr(value, name, None))
            for name in fields
            if name not in without
        ]
        copied = _mapping(pairs, len(pairs), depth, items, budget)
        return {"type": kind.__qualname__, **copied}
    if issubclass(kind, (list, tuple)):
        return _sequence(list(value[:items]), depth, items, budget)
    if issubclass(kind, (set, frozenset)):
        return _sequence(list(value)[:items], depth, items, budget)
    if issubclass(kind, (str, int, float)):
        for plain in (str, int, float):
            if issubclass(kind, plain):
                return plain.__str__(value) if plain is str else plain(value)
    if issubclass(kind, BaseException):
        return {"type": kind.__qualname__, "args": _copy(value.args, depth - 1, items, budget)}
    if kind.__module__ in ("datetime", "uuid", "decimal", "pathlib", "pathlib._local"):
        return str(value)
    if kind.__module__.startswith("PIL."):  # without importing it
        width, height = value.size
        return {"…": f"image {width}x{height}", "mode": str(value.mode)}
    return {"…": f"{kind.__module__}.{kind.__qualname__}"}


def _array(value: Any, items: int, depth: int, budget: list[int]) -> Any:
    if value.dtype == object:
        return _sequence(value.ravel()[:items].tolist(), depth, items, budget)
    if value.size <= 16:
        return value.tolist()
    head = value.ravel()[:4].tolist() if value.flags.c_contiguous else []
    return {"…": "array", "dtype": str(value.dtype), "shape": list(value.shape), "first": head}


def _device(value: Any) -> str:
    device = getattr(value, "device", "")
    return str(device)


def _fields(kind: type) -> tuple[str, ...] | None:
    """Field names of a dataclass, pydantic model, attrs class, msgspec struct or named tuple; None for others."""
    for attribute in ("__dataclass_fields__", "__pydantic_fields__", "model_fields", "__struct_fields__", "_fields"):
        found = kind.__dict__.get(attribute)
        if found is None:
            found = getattr(kind, attribute, None) if attribute != "model_fields" else None
        if isinstance(found, dict):
            return tuple(found)
        if isinstance(found, tuple) and all(type(name) is str for name in found):
            return found
    attrs = getattr(kind, "__attrs_attrs__", None)
    return tuple(field.name for field in attrs) if isinstance(attrs, tuple) else None
