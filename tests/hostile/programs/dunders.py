"""Objects that count what is called on them: recording calls nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from . import report

called: Counter[str] = Counter()
NAMES = (
    "__getitem__", "__iter__", "__len__", "__int__", "__index__", "__float__", "__bool__", "__repr__",
    "__str__", "__eq__", "__hash__", "__contains__", "__getattr__", "__getattribute__", "__format__",
    "__bytes__", "__reduce_ex__", "__array__", "__dir__", "__call__", "__copy__", "__deepcopy__", "__sizeof__",
    "__length_hint__", "__enter__", "__class_getitem__", "__reversed__", "__missing__", "__getstate__",
    "__fspath__", "__lt__", "__complex__", "__next__", "__await__",
)  # fmt: skip
PROPERTIES = ("shape", "dtype", "device", "data", "items", "keys", "model_dump", "value", "name", "text")


def _counting(name: str, base: type) -> Callable[..., Any]:
    original = getattr(base, name, None)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        called[f"{base.__name__}.{name}"] += 1
        if original is None:
            raise AttributeError(name)
        return original(self, *args, **kwargs)

    return method


def spy(base: type) -> type:
    """A subclass of ``base`` all of whose methods and properties count."""
    names = [name for name in NAMES if name != "__class_getitem__" and (hasattr(base, name) or base is object)]
    if base is not object:
        names += [
            name for name in ("items", "keys", "values", "get", "encode", "index", "count") if hasattr(base, name)
        ]
    body: dict[str, Any] = {name: _counting(name, base) for name in names}
    if "__eq__" in body:
        body.setdefault("__hash__", base.__hash__)
    for name in PROPERTIES:
        if name not in body:
            body[name] = property(_counting(name, base))
    return type(f"Spy{base.__name__}", (base,), body)


def take(value: object, named: object = None) -> object:
    """Gives back what it was given, untouched."""
    return value


class Owner:
    """Whose method is traced; ``self`` counts, too."""

    def __getattr__(self, name: str) -> Any:
        called[f"Owner.{name}"] += 1
        raise AttributeError(name)

    def __repr__(self) -> str:
        called["Owner.__repr__"] += 1
        return "owner"

    def method(self, value: object) -> object:
        """As ``take``."""
        return value


def _values() -> list[Any]:
    return [spy(object)(), spy(dict)(a=1), spy(list)([1, 2]), spy(tuple)((1, 2)), spy(str)("text"), spy(int)(3),
            spy(float)(0.5), spy(set)({1}), spy(bytes)(b"b")]  # fmt: skip


def main(variant: str) -> None:
    """``arguments``, ``nested`` in containers, ``methods`` of an object that counts."""
    values, owner = _values(), Owner()
    called.clear()
    for value in values:
        if variant == "arguments":
            take(value, named=value)
        elif variant == "nested":
            take([value, {"key": value}, (1, value, 2.0)])
        else:
            owner.method(value)
    report(called=dict(called))
