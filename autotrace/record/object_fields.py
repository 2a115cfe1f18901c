"""Read the stored fields of an object without running any of the object's code.

``getattr`` runs properties, ``__getattribute__`` and mapped attributes that issue SQL; asking a class runs the
metaclass. So classes are read through the C descriptors of ``type``, instance dictionaries through the descriptor that
the interpreter put into the class, and slots through their member descriptors.
"""

from __future__ import annotations

import enum
import functools
import weakref
from collections.abc import Collection, Iterator
from types import GetSetDescriptorType, MemberDescriptorType, SimpleNamespace
from typing import Any

import msgspec

mro_of = type.__dict__["__mro__"].__get__
members_of = type.__dict__["__dict__"].__get__
"""Returns a class's own attributes."""
_qualname = type.__dict__["__qualname__"].__get__
_module = type.__dict__["__module__"].__get__
_struct_fields = type(msgspec.Struct).__dict__["__struct_fields__"].__get__
_DECLARED = ("__dataclass_fields__", "__pydantic_fields__", "model_fields", "_fields")
"""Lists the attributes where classes keep the names of fields: dataclasses, pydantic 2 and before 2.10, named
tuples."""
ITERATION = "_iterator"
"""Names the attribute that holds the iterator in clients generated from OpenAPI descriptions (openai, anthropic and
similar clients)."""
ITERATIONS = (ITERATION, "__next__", "__anext__")
MAX_CLASSES = 10_000


def qualified_name(kind: type) -> str:
    """Return ``package.module.Class``."""
    module = _module(kind)
    return f"{module}.{_qualname(kind)}" if type(module) is str else str(_qualname(kind))


def name_of(kind: type) -> str:
    """Return the class's own name, with the name of the enclosing class."""
    return str(_qualname(kind))


def module_of(kind: type) -> str:
    """Return a class's ``__module__``; empty if ``__module__`` is not a text."""
    module = _module(kind)
    return module if type(module) is str else ""


def attribute_of(kind: type, name: str) -> Any:
    """Return the value that the class, or the first base class with the name, holds under ``name``; None if every class
    lacks the name."""
    return next((members_of(owner)[name] for owner in mro_of(kind) if name in members_of(owner)), None)


class Layout:
    """Describes how the instances of a class store fields."""

    __slots__ = (
        "__weakref__", "answers", "base", "dictionary", "extra", "fields", "iterates", "label", "mapping", "name",
        "of_class", "read", "reference", "slots",
    )  # fmt: skip

    def __init__(self, kind: type) -> None:
        self.reference = weakref.ref(kind, functools.partial(layouts.pop, id(kind)))
        """Drops the layout when the class goes, before anything else can have the class's ``id``. The callback is in C,
        where no signal handler of the host's runs whose exception would be swallowed."""
        self.base = next((base for base in (enum.Enum, tuple) if issubclass(kind, base)), None)
        """Holds ``enum.Enum`` or ``tuple`` for a class that inherits from either."""
        self.mapping = issubclass(kind, dict)
        self.of_class = issubclass(kind, type)
        """Tells whether the instances are classes themselves."""
        self.label = name_of(kind)
        name = attribute_of(kind, "name")
        self.name = name if type(name) is str else None
        """Holds the text that the class had as ``name`` when the layout was created."""
        self.dictionary: Any = None
        """Holds the descriptor of the instance's ``__dict__``, or None without a ``__dict__``."""
        self.slots: dict[str, Any] = {}
        self.fields: tuple[str, ...] | None = None
        """Names the declared fields; None for a class that declares no fields."""
        for owner in mro_of(kind):
            members = members_of(owner)
            own = members.get("__dict__")
            if self.dictionary is None and type(own) is GetSetDescriptorType and owner is not type:
                self.dictionary = own
            for name, descriptor in members.items():
                if type(descriptor) is MemberDescriptorType and type(name) is str:
                    self.slots.setdefault(name, descriptor)
            if self.fields is None:
                self.fields = _declared(members)
        self.iterates = any(attribute_of(kind, each) is not None for each in ITERATIONS)
        """Tells whether the class has an attribute that iterates an instance, an item at a time."""
        plain = self.dictionary is not None and not self.of_class and "name" not in self.slots
        self.read = self.dictionary.__get__ if plain else None
        """Returns the dictionary of an instance that keeps a name nowhere else."""
        self.extra = self.slots.get("__pydantic_extra__")
        """Holds the descriptor of the fields that a pydantic model does not declare."""
        if issubclass(kind, msgspec.Struct):
            self.fields = _struct_fields(kind)
        self.answers = self.fields is not None and ITERATION not in self.fields and not self.iterates
        """Tells whether an instance is an answer: the fields are declared, so the instance is neither a stream nor an
        unread response."""

    def stored(self, value: Any) -> Any:
        """Return the instance's own dictionary, or an empty dictionary."""
        return {} if self.dictionary is None else self.dictionary.__get__(value)

    def held(self, value: Any, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the fields of ``pairs`` except the fields ``without``; not to be changed."""
        if self.dictionary is not None and not self.slots and self.fields is not None:
            stored = self.dictionary.__get__(value)
            if type(stored) is dict:
                if tuple(stored) != self.fields:
                    return {name: stored[name] for name in self.fields if name in stored and name not in without}
                if without:
                    stored = stored.copy()
                    for name in without:
                        stored.pop(name, None)
                return stored
        return {name: item for name, item in self.pairs(value) if name not in without}

    def pairs(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield declared fields that are set, and the undeclared fields of a pydantic model. The fields of a named
        tuple are its items, and ``pairs`` does not read items."""
        stored = self.stored(value)
        for name in self.fields or ():
            if dict.__contains__(stored, name):
                yield name, dict.__getitem__(stored, name)
            elif name in self.slots:
                try:
                    yield name, self.slots[name].__get__(value)
                except AttributeError:  # not set
                    continue
        yield from self.undeclared(value).items()

    def attributes(self, value: Any, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the public attributes that an instance of a class without declared fields stores, except ``without``:
        the slots first, then the dictionary."""
        found: dict[str, Any] = {}
        for name, slot in self.slots.items():
            try:
                found[name] = slot.__get__(value)
            except AttributeError:  # not set
                continue
        stored = found.pop("__dict__", None)  # a member of ``SimpleNamespace`` and modules
        stored = stored if type(value) is SimpleNamespace else self.stored(value)
        found.update((name, item) for name, item in dict.items(stored) if type(name) is str)
        return {name: item for name, item in found.items() if not name.startswith("_") and name not in without}

    def undeclared(self, value: Any) -> dict[str, Any]:
        """Return the fields of a pydantic model that the class does not declare; not to be changed."""
        if self.extra is None:
            return _NOTHING
        try:
            more = self.extra.__get__(value)
        except AttributeError:  # not set
            return _NOTHING
        return more if type(more) is dict else _NOTHING


def _declared(members: Any) -> tuple[str, ...] | None:
    for attribute in _DECLARED:
        names = members.get(attribute)
        kind = type(names)
        if (kind is dict or kind is tuple) and all(type(name) is str for name in names):
            return tuple(names)
    attrs = members.get("__attrs_attrs__")
    if not isinstance(attrs, tuple):
        return None
    read = [members_of(type(field)).get("name") for field in tuple.__iter__(attrs)]
    if not all(type(descriptor) is MemberDescriptorType for descriptor in read):
        return None
    return tuple(descriptor.__get__(field) for descriptor, field in zip(read, tuple.__iter__(attrs), strict=True))


_NOTHING: dict[str, Any] = {}


def members(value: Any) -> dict[str, Any]:
    """Return the items of a dict or the stored fields of an object by name; not to be changed, and only read with
    ``dict.get``. Includes pydantic's undeclared fields, which compatible servers add."""
    kind = type(value)
    if kind is dict:
        return value  # type: ignore[no-any-return]
    if value is None or kind is str or kind is int:
        return _NOTHING
    layout = layouts.get(id(kind))
    if layout is None:
        layout = layout_of(kind)
    if layout.mapping:
        return dict(dict.items(value))
    if layout.dictionary is None:
        return dict(layout.pairs(value)) if layout.fields is not None else _NOTHING
    stored: dict[str, Any] = layout.dictionary.__get__(value)
    more = layout.undeclared(value)
    return {**more, **stored} if more else stored


def member(value: Any, name: str) -> Any:
    """Return the value of ``members`` under ``name``; None if absent."""
    return dict.get(members(value), name)


def stored_name(value: Any) -> str | None:
    """Return the text that the object, or else the class, stores as ``name``; None if the value is not a text. The name
    of a class is read once."""
    layout = layouts.get(id(type(value))) or layout_of(type(value))
    if layout.read is not None:
        held = dict.get(layout.read(value), "name")
        if held is None:
            return layout.name
        return held if type(held) is str else None
    if layout.of_class:
        held = attribute_of(value, "name")
        return held if type(held) is str else None
    held = None if layout.dictionary is None else dict.get(layout.dictionary.__get__(value), "name")
    if held is None and "name" in layout.slots:
        try:
            held = layout.slots["name"].__get__(value)
        except AttributeError:  # not set
            return None
    if held is None:
        return layout.name
    return held if type(held) is str else None


layouts: dict[int, Layout] = {}
"""Map the class's ``id`` to the layout: looking a class up in a dictionary would run the metaclass's ``__hash__``."""


def layout_of(kind: type) -> Layout:
    """Return the layout of a class, created once."""
    layout = layouts.get(id(kind))
    if layout is None:
        if len(layouts) >= MAX_CLASSES:  # classes made again and again
            layouts.clear()
        layout = layouts[id(kind)] = Layout(kind)
    return layout


ANSWERING = frozenset({"llm", "tool", "agent", "trajectory"})
"""Lists roles whose results are answers: the attributes of an answer are read even without declared fields."""
_BUILTIN = frozenset(map(id, (str, bytes, dict, type(None), int, float, bool)))


def is_plain(value: Any) -> bool:
    """Tells whether ``value``, or the first item of a list of values, is an object whose class declares no fields."""
    kind = type(value)
    if kind is list or kind is tuple:
        kind = type(value[0]) if value else str
    return id(kind) not in _BUILTIN and layout_of(kind).fields is None
