"""What an object stores, read without running any of its code.

``getattr`` runs properties, ``__getattribute__`` and mapped attributes that issue SQL; asking a class runs its
metaclass. So classes are read through the C descriptors of ``type``, instance dictionaries through the descriptor that
the interpreter put into the class, slots through their member descriptors.
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
"""A class's own attributes."""
_qualname = type.__dict__["__qualname__"].__get__
_module = type.__dict__["__module__"].__get__
_struct_fields = type(msgspec.Struct).__dict__["__struct_fields__"].__get__
_DECLARED = ("__dataclass_fields__", "__pydantic_fields__", "model_fields", "_fields")
"""Where classes keep the names of their fields: dataclasses, pydantic 2 and before 2.10, named tuples."""
ITERATION = "_iterator"
"""Where the clients that are generated from OpenAPI descriptions (openai, anthropic and their kin) keep it."""
ITERATIONS = (ITERATION, "__next__", "__anext__")
MAX_CLASSES = 10_000


def qualified_name(kind: type) -> str:
    """``package.module.Class``."""
    module = _module(kind)
    return f"{module}.{_qualname(kind)}" if type(module) is str else str(_qualname(kind))


def name_of(kind: type) -> str:
    """The class's own name, with that of the class it stands in."""
    return str(_qualname(kind))


def module_of(kind: type) -> str:
    """A class's ``__module__``; empty if that is not a text."""
    module = _module(kind)
    return module if type(module) is str else ""


def attribute_of(kind: type, name: str) -> Any:
    """What the class, or the first one above it that has it, holds under ``name``; None where none has."""
    return next((members_of(owner)[name] for owner in mro_of(kind) if name in members_of(owner)), None)


class Layout:
    """How the instances of a class store what they hold."""

    __slots__ = (
        "__weakref__", "answers", "base", "dictionary", "extra", "fields", "iterates", "label", "mapping", "name",
        "of_class", "read", "reference", "slots",
    )  # fmt: skip

    def __init__(self, kind: type) -> None:
        self.reference = weakref.ref(kind, functools.partial(layouts.pop, id(kind)))
        """Forgets the layout when the class goes, before anything else can have its ``id``; in C, where no signal
        handler of the host's runs whose exception would be swallowed."""
        self.base = next((base for base in (enum.Enum, tuple) if issubclass(kind, base)), None)
        """``enum.Enum`` or ``tuple`` for what inherits from it."""
        self.mapping = issubclass(kind, dict)
        self.of_class = issubclass(kind, type)
        """The instances are classes themselves."""
        self.label = name_of(kind)
        name = attribute_of(kind, "name")
        self.name = name if type(name) is str else None
        """The text that the class held as ``name`` when this was made."""
        self.dictionary: Any = None
        """Descriptor of the instance's ``__dict__``, None where there is none."""
        self.slots: dict[str, Any] = {}
        self.fields: tuple[str, ...] | None = None
        """Names of the declared fields; None for a class that declares none."""
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
        """The class has something that its instances are iterated by, one item after the other."""
        plain = self.dictionary is not None and not self.of_class and "name" not in self.slots
        self.read = self.dictionary.__get__ if plain else None
        """Gives the dictionary of an instance that keeps a name nowhere else."""
        self.extra = self.slots.get("__pydantic_extra__")
        """Descriptor of the fields that a pydantic model does not declare."""
        if issubclass(kind, msgspec.Struct):
            self.fields = _struct_fields(kind)
        self.answers = self.fields is not None and ITERATION not in self.fields and not self.iterates
        """An instance is an answer: its fields are declared, so it is neither a stream nor an unread response."""

    def stored(self, value: Any) -> Any:
        """The instance's own dictionary, or an empty one."""
        return {} if self.dictionary is None else self.dictionary.__get__(value)

    def held(self, value: Any, without: Collection[str] = ()) -> dict[str, Any]:
        """What ``pairs`` has, but for the fields ``without``; not to be changed."""
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
        """Declared fields that are set, and what a pydantic model holds beyond them. A named tuple's are its items,
        which are not read here."""
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
        """Return the public attributes that an instance of a class without declared fields stores, but for
        ``without``: those of the slots, then those of the dictionary."""
        found: dict[str, Any] = {}
        for name, slot in self.slots.items():
            try:
                found[name] = slot.__get__(value)
            except AttributeError:  # not set
                continue
        stored = found.pop("__dict__", None)  # of ``SimpleNamespace`` and modules it is a member
        stored = stored if type(value) is SimpleNamespace else self.stored(value)
        found.update((name, item) for name, item in dict.items(stored) if type(name) is str)
        return {name: item for name, item in found.items() if not name.startswith("_") and name not in without}

    def undeclared(self, value: Any) -> dict[str, Any]:
        """What a pydantic model holds in fields that its class does not declare; not to be changed."""
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
    """What a dict holds or an object stores, by name; not to be changed, and only read with ``dict.get``. Pydantic's
    undeclared fields included, which compatible servers add."""
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
    """What ``members`` has under ``name``; None where it has nothing."""
    return dict.get(members(value), name)


def stored_name(value: Any) -> str | None:
    """The text that the object, or else its class, stores as ``name``; None where that is no text. A class's is
    read once."""
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
"""By the class's ``id``: to ask a dictionary for a class would run its metaclass's ``__hash__``."""


def layout_of(kind: type) -> Layout:
    """The layout of a class, made once."""
    layout = layouts.get(id(kind))
    if layout is None:
        if len(layouts) >= MAX_CLASSES:  # classes made again and again
            layouts.clear()
        layout = layouts[id(kind)] = Layout(kind)
    return layout


ANSWERING = frozenset({"llm", "tool", "agent", "trajectory"})
"""Roles whose results are answers: of an answer the attributes are read, whatever its class declares."""
_BUILTIN = frozenset(map(id, (str, bytes, dict, type(None), int, float, bool)))


def is_plain(value: Any) -> bool:
    """Whether ``value``, or the first item of such a list, is an object whose class declares no fields."""
    kind = type(value)
    if kind is list or kind is tuple:
        kind = type(value[0]) if value else str
    return id(kind) not in _BUILTIN and layout_of(kind).fields is None
