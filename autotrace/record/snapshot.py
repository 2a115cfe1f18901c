"""Copies of arguments and results, made on the caller's thread: bounded always, and without running any of the host's
code.

What is copied is what can change under our hands (lists, dicts, fields of dataclasses and pydantic models). Every value
is looked at: its type first, which is asked of the object's header and never of the object (``isinstance`` asks a
proxy's ``__class__``), then its length. Exact builtin types are read in C; their subclasses through the methods of the
builtin type; of other objects what they store (``record.object_fields``). No ``repr``, nothing that waits for a GPU.
"""

from __future__ import annotations

import enum
import sys
from collections import deque
from collections.abc import Collection
from itertools import islice
from typing import Any

import msgspec

from autotrace.config.scalars import LONGEST_INTEGER, integer, shortened, too_long
from autotrace.record import arrays
from autotrace.record.object_fields import layout_of, layouts, module_of, name_of, qualified_name
from autotrace.redact.images import described

FIXED = frozenset(map(id, (int, float, bool, type(None))))
"""Types whose values are small and cannot change: kept by reference. Their ``id()``, because to ask a set for a class
runs its metaclass's ``__hash__``."""
SHORT = 512
"""Characters of a text that is kept by reference everywhere, uncounted."""
NODE_BYTES = 256
"""Memory of a copied container, about."""
_NUMBERS = frozenset(map(id, (int, float)))
MAX_NODES = 2_000
"""Collections of one argument that are copied, of which each ``PER_NODE`` items count as one more: the bound on the
caller's time whatever is passed."""
PER_NODE = 4
FIRST = 16
"""Numbers shown of a long list."""
LONGEST_KEY = 256
"""Characters kept of a key."""
BEHIND_THE_CUT = 1_024
"""Characters kept beyond the limit, for the flusher's thread to recognise a credential that stands across it."""
_UNKNOWN: Any = object()


class Limits:
    """How much of a value is copied; mirrors ``config.plan.Settings``."""

    __slots__ = ("depth", "items", "string", "walks", "weight")

    def __init__(self, depth: int = 6, items: int = 256, string: int = 65_536) -> None:
        self.depth = depth
        self.items = items
        self.string = string + BEHIND_THE_CUT
        """Characters; the flusher cuts at the limit itself."""
        self.weight = 0
        """Bytes of the copies made under these limits, until ``take_weight``."""
        self.walks = 0
        """Of the next values, how many are copied without an attempt to encode them (``record.pickled``)."""

    def take_weight(self) -> int:
        """Bytes of the copies made since the last time. Another thread's may be among them, and are then not counted
        there: the sum is right."""
        weight, self.weight = self.weight, 0
        return weight


def snapshot(value: Any, limits: Limits, without: Collection[str] = ()) -> Any:
    """A copy of ``value`` made of dicts, lists, strings, numbers and markers, safe to encode in another thread.

    ``without``: fields of ``value`` itself (an object with fields) that are not looked at.
    """
    kind = type(value)
    if id(kind) in FIXED:
        return value
    if kind is str:
        if len(value) > SHORT:
            limits.weight += min(_size(value), 4 * limits.string)
        return value if len(value) <= limits.string else shortened(value, limits.string)
    if (kind is dict or kind is list or kind is tuple) and len(value) <= limits.items:
        copied = flat(value, kind)
        if copied is not None:
            limits.weight += NODE_BYTES
            return copied
    return walked(value, kind, limits, without)


def walked(value: Any, kind: type, limits: Limits, without: Collection[str] = (), opens: bool = False) -> Any:
    """``snapshot`` of what is neither a number nor a text, and not ``flat``. ``opens``: see ``_Copier``."""
    copier = _Copier(limits.items, limits.string, opens=opens)
    if kind is dict or kind is list or kind is tuple:
        copied = copier.copy(value, limits.depth)
    else:
        copier.nodes -= 1
        copied = copier.object(value, kind, limits.depth, without)
    limits.weight += copier.weight + (MAX_NODES - copier.nodes) * NODE_BYTES
    return copied


def snapshot_below(value: Any, limits: Limits) -> tuple[Any, int]:
    """A copy of an item of a list, as ``snapshot`` makes it of the list; and how many nodes it has."""
    copier = _Copier(limits.items, limits.string)
    copied = copier.copy(value, limits.depth - 1)
    return copied, MAX_NODES - copier.nodes


_size = str.__sizeof__


class _Copier(msgspec.Struct, gc=False):
    items: int
    string: int
    nodes: int = MAX_NODES
    weight: int = 0
    """Bytes of the strings that the copy holds."""
    opens: bool = False
    """Objects are copied whose class declares no fields."""

    def copy(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return value if len(value) <= SHORT else self.text(value)
        if id(kind) in FIXED:
            return value
        self.nodes -= 1
        if self.nodes < 0:
            return {"…": "cut"}
        if kind is dict:
            return self.exact(value, depth) if len(value) <= self.items and depth > 0 else self.mapping(value, depth)
        if kind is list or kind is tuple:
            return self.sequence(value, len(value), depth)
        return self.object(value, kind, depth)

    def exact(self, value: dict[Any, Any], depth: int) -> Any:
        """Of an exact dict: a copy made in C, in which what has to be is replaced."""
        return self.replaced(value.copy(), value, depth)

    def replaced(self, copied: dict[Any, Any], value: dict[Any, Any], depth: int) -> Any:
        """``copied``, which is ours and holds what ``value`` holds, with copies in their places."""
        self.nodes -= len(copied) // PER_NODE
        for key, item in copied.items():
            if type(key) is not str or len(key) > LONGEST_KEY:
                return self.mapping(value, depth)
            kind = type(item)
            if kind is str:
                if len(item) > SHORT:
                    copied[key] = self.text(item)
            elif kind is dict and depth > 1 and len(item) <= self.items and self.nodes > 0:
                self.nodes -= 1
                copied[key] = self.replaced(item.copy(), item, depth - 1) if item else {}
            elif kind is list and depth > 1 and self.nodes > 0:
                self.nodes -= 1
                copied[key] = self.sequence(item, len(item), depth - 1) if item else []
            elif kind is not int and kind is not float and kind is not bool and item is not None:
                copied[key] = self.copy(item, depth - 1)
        return copied

    def text(self, value: str) -> str:
        """Of an exact string that is not short."""
        if len(value) > self.string:
            value = shortened(value, self.string)
        self.weight += _size(value)
        return value

    def sequence(self, value: Any, size: int, depth: int) -> Any:
        """Of an exact list or tuple."""
        items, below = self.items, depth - 1
        if size > items and _are_numbers(value, items):
            return {"…": f"{size} numbers", "first": list(value[:FIRST])}
        if depth <= 0:
            return {"…": f"{size} items"}
        copied = [*value] if size <= items else [*value[:items]]
        self.nodes -= len(copied) // PER_NODE
        for number, item in enumerate(copied):
            kind = type(item)
            if kind is str:
                if len(item) > SHORT:
                    copied[number] = self.text(item)
            elif kind is dict and below > 0 and len(item) <= items and self.nodes > 0:
                self.nodes -= 1
                copied[number] = self.replaced(item.copy(), item, below)
            elif kind is not int and kind is not float and kind is not bool and item is not None:
                copied[number] = self.copy(item, below)
        if size > items:
            copied.append({"…": f"{size - items} more"})
        return copied

    def mapping(self, value: dict[Any, Any], depth: int) -> Any:
        """Of a dict or of an instance of a class that inherits from it."""
        size = dict.__len__(value)
        if depth <= 0:
            return {"…": f"{size} keys"}
        copied: dict[str, Any] = {}
        self.nodes -= min(size, self.items) // PER_NODE
        for key, item in list(islice(dict.items(value), self.items)):
            name = key if type(key) is str and len(key) <= LONGEST_KEY else _key(key)
            if name in copied:  # 1 and "1", two objects of one class
                name = f"{name} #{len(copied)}"
            copied[name] = self.copy(item, depth - 1)
        if size > self.items:
            copied["…"] = f"{size - self.items} more"
        return copied

    def object(self, value: Any, kind: type, depth: int, without: Collection[str] = ()) -> Any:
        """Of any other type. The builtin types' own methods are used for what inherits from them."""
        layout = layouts.get(id(kind)) or layout_of(kind)
        if layout.base is None:
            if layout.fields is not None:
                fields = layout.held(value, without)
                if depth > 0 and len(fields) <= self.items:
                    return self.replaced({"type": layout.label, **fields}, fields, depth)
                copied = self.mapping(fields, depth)
                return {"type": name_of(kind), **copied} if depth > 0 else copied
        elif layout.base is tuple:
            return self._tuple(value, layout.fields, name_of(kind), depth, without)
        else:
            name = dict.get(layout.stored(value), "_name_")
            return name if type(name) is str else {"…": qualified_name(kind)}
        if kind is bytes:
            return described(value)
        if (builtin := self._inherited(value, kind, depth)) is not _UNKNOWN:
            return builtin
        if (objects := arrays.objects(value, kind, self.items)) is not None:
            return self.sequence(*objects, depth)
        if (description := arrays.described(value, kind)) is not None:
            return description
        text = _text(value, kind)
        held = layout.attributes(value, without) if self.opens and depth > 0 and type(text) is dict else None
        return {"type": layout.label, **self.mapping(held, depth)} if held else text

    def _tuple(self, value: Any, fields: Any, name: str, depth: int, without: Collection[str]) -> Any:
        items = list(islice(tuple.__iter__(value), self.items))
        size = tuple.__len__(value)
        if fields is None or len(fields) != size:
            return self.sequence(items, len(items), depth)
        named = {field: item for field, item in zip(fields, items, strict=False) if field not in without}
        copied = self.mapping(named, depth)
        return {"type": name, **copied} if depth > 0 else copied

    def _inherited(self, value: Any, kind: type, depth: int) -> Any:
        if issubclass(kind, dict):
            return self.mapping(value, depth)
        if issubclass(kind, str):
            size = str.__len__(value)
            text = str.__getitem__(value, slice(0, self.string))
            self.weight += _size(text)
            return text if size <= self.string else f"{text}… ({size - self.string} characters more)"
        if issubclass(kind, int):
            return _integer(value)
        if issubclass(kind, float):
            return float.__float__(value)
        if issubclass(kind, list):
            return self.sequence(list.__getitem__(value, slice(0, self.items)), list.__len__(value), depth)
        if issubclass(kind, set):
            return self.sequence(list(islice(set.__iter__(value), self.items)), set.__len__(value), depth)
        if issubclass(kind, frozenset):
            return self.sequence(list(islice(frozenset.__iter__(value), self.items)), frozenset.__len__(value), depth)
        if issubclass(kind, deque):
            items = list(islice(deque.__iter__(value), self.items))
            return self.sequence(items, max(deque.__len__(value), len(items)), depth)
        if issubclass(kind, BaseException):
            arguments = _arguments(value)
            return {"type": name_of(kind), "args": self.sequence(arguments, len(arguments), depth - 1)}
        return _UNKNOWN


_arguments = BaseException.__dict__["args"].__get__


def flat(value: Any, kind: type) -> Any:
    """A copy of an exact dict, list or tuple that holds short texts, numbers and None only; else None."""
    if kind is dict:
        copied = value.copy()
        for key, item in copied.items():
            if type(key) is not str or len(key) > LONGEST_KEY:
                return None
            kind = type(item)
            if kind is str:
                if len(item) > SHORT:
                    return None
            elif kind is not int and kind is not float and kind is not bool and item is not None:
                return None
        return copied
    copied = list(value)
    for item in copied:
        kind = type(item)
        if kind is str:
            if len(item) > SHORT:
                return None
        elif kind is not int and kind is not float and kind is not bool and item is not None:
            return None
    return copied


def _are_numbers(value: Any, shown: int) -> bool:
    """Whether a list that is too long to be shown holds numbers, as far as it would be shown."""
    return _NUMBERS.issuperset(map(id, map(type, value[:shown])))


def _integer(value: int) -> Any:
    """Of an instance of a class that inherits from int; one that is too long is not even copied."""
    return integer(int.__int__(value)) if int.bit_length(value) < LONGEST_INTEGER else too_long(value)


def _key(key: Any) -> str:
    """A key of a dict as text; the limit keeps a record's names short."""
    kind = type(key)
    if kind is str:
        return shortened(key, LONGEST_KEY) if len(key) > LONGEST_KEY else key
    if id(kind) in FIXED:
        return str(integer(key))
    if kind is tuple:
        parts = [_key(part) if type(part) is not tuple else "(…)" for part in key[:8]]
        return f"({', '.join(parts)}{', …' if len(key) > len(parts) else ''})"
    if issubclass(kind, enum.Enum):
        name = dict.get(layout_of(kind).stored(key), "_name_")
        return name if type(name) is str else name_of(kind)
    if issubclass(kind, str):
        return str.__getitem__(key, slice(0, LONGEST_KEY))
    if issubclass(kind, int):
        return str(_integer(key))
    text = _text(key, kind)
    return text if type(text) is str else name_of(kind)


def _text(value: Any, kind: type) -> Any:
    """Text of the standard library's own dates, paths, numbers and ids; of anything else its type."""
    module = module_of(kind)
    if module in ("datetime", "uuid", "decimal", "pathlib", "pathlib._local", "fractions"):
        loaded = sys.modules.get(module)
        if loaded is not None and loaded.__dict__.get(name_of(kind)) is kind and _is_plain_date(value, kind, module):
            return str(value) if _is_short(value, module) else {"…": f"long {name_of(kind)}"}
    return {"…": qualified_name(kind)}


def _is_short(value: Any, module: str) -> bool:
    """Whether a number is to be written out; the others are never long."""
    if module == "fractions":
        parts = (value.numerator, value.denominator)
        return all(type(part) is int and part.bit_length() < LONGEST_INTEGER for part in parts)
    return module != "decimal" or sys.getsizeof(value) < LONGEST_INTEGER


def _is_plain_date(value: Any, kind: type, module: str) -> bool:
    """A date's time zone may be an object of the host's, and is asked for its name."""
    if module != "datetime" or name_of(kind) not in ("datetime", "time"):
        return True
    zone = type(kind.__dict__["tzinfo"].__get__(value))
    return zone is type(None) or qualified_name(zone) in ("datetime.timezone", "zoneinfo.ZoneInfo")
