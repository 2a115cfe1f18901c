"""Copy arguments and results on the caller's thread: always bounded, and without running any of the host's code.

Only values that can change under our hands are copied (lists, dicts, fields of dataclasses and pydantic models). Each
value's type is read first, from the object's header and never from the object (``isinstance`` asks a proxy's
``__class__``), then the length. Exact builtin types are read in C; subclasses through the methods of the builtin type;
other objects by stored fields (``record.object_fields``). No ``repr``, nothing that waits for a GPU.
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
"""Holds types whose values are small and cannot change: kept by reference. Held by ``id()``, because asking a set for a
class runs the metaclass's ``__hash__``."""
SHORT = 512
"""Limits the characters of a text that is kept by reference everywhere, uncounted."""
NODE_BYTES = 256
"""Counts the memory of a copied container, about."""
_NUMBERS = frozenset(map(id, (int, float)))
MAX_NODES = 2_000
"""Limits the copied collections of an argument; every ``PER_NODE`` items count as another collection. Bounds the
caller's time whatever is passed."""
PER_NODE = 4
FIRST = 16
"""Counts the numbers shown of a long list."""
LONGEST_KEY = 256
"""Limits the characters kept of a key."""
BEHIND_THE_CUT = 1_024
"""Counts the characters kept beyond the limit, for the flusher's thread to recognise a credential across the limit."""
_UNKNOWN: Any = object()


class Limits:
    """Limits the copy of a value; mirrors ``config.plan.Settings``."""

    __slots__ = ("depth", "items", "string", "walks", "weight")

    def __init__(self, depth: int = 6, items: int = 256, string: int = 65_536) -> None:
        self.depth = depth
        self.items = items
        self.string = string + BEHIND_THE_CUT
        """Counts characters; the flusher cuts at the limit itself."""
        self.weight = 0
        """Counts the bytes of the copies under these limits, until ``take_weight``."""
        self.walks = 0
        """Counts the next values that are copied without an attempt to encode (``record.pickled``)."""

    def take_weight(self) -> int:
        """Return the bytes copied since the last call. Bytes of another thread's copies may be included, and are then
        not counted there: the sum is right."""
        weight, self.weight = self.weight, 0
        return weight


def snapshot(value: Any, limits: Limits, without: Collection[str] = ()) -> Any:
    """Copy ``value`` as dicts, lists, strings, numbers and markers, safe to encode in another thread.

    ``without``: fields of ``value`` itself (an object with fields) that are not read.
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
    """Copy a value that is neither a number nor a text, and not ``flat``. ``opens``: see ``_Copier``."""
    copier = _Copier(limits.items, limits.string, opens=opens)
    if kind is dict or kind is list or kind is tuple:
        copied = copier.copy(value, limits.depth)
    else:
        copier.nodes -= 1
        copied = copier.object(value, kind, limits.depth, without)
    limits.weight += copier.weight + (MAX_NODES - copier.nodes) * NODE_BYTES
    return copied


def snapshot_below(value: Any, limits: Limits) -> tuple[Any, int]:
    """Return (the copy of a list's item, as ``snapshot`` of the list would copy the item, the number of nodes)."""
    copier = _Copier(limits.items, limits.string)
    copied = copier.copy(value, limits.depth - 1)
    return copied, MAX_NODES - copier.nodes


_size = str.__sizeof__


class _Copier(msgspec.Struct, gc=False):
    items: int
    string: int
    nodes: int = MAX_NODES
    weight: int = 0
    """Counts the bytes of the strings in the copy."""
    opens: bool = False
    """Tells whether objects are copied whose class declares no fields."""

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
        """Copy an exact dict in C and replace values where necessary."""
        return self.replaced(value.copy(), value, depth)

    def replaced(self, copied: dict[Any, Any], value: dict[Any, Any], depth: int) -> Any:
        """Replace values of ``copied``, which is ours and holds the items of ``value``, by copies."""
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
        """Shorten an exact string that is not short."""
        if len(value) > self.string:
            value = shortened(value, self.string)
        self.weight += _size(value)
        return value

    def sequence(self, value: Any, size: int, depth: int) -> Any:
        """Copy an exact list or tuple."""
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
        """Copy a dict or an instance of a class that inherits from dict."""
        size = dict.__len__(value)
        if depth <= 0:
            return {"…": f"{size} keys"}
        copied: dict[str, Any] = {}
        self.nodes -= min(size, self.items) // PER_NODE
        for key, item in list(islice(dict.items(value), self.items)):
            name = key if type(key) is str and len(key) <= LONGEST_KEY else _key(key)
            if name in copied:  # 1 and "1", two objects of the same class
                name = f"{name} #{len(copied)}"
            copied[name] = self.copy(item, depth - 1)
        if size > self.items:
            copied["…"] = f"{size - self.items} more"
        return copied

    def object(self, value: Any, kind: type, depth: int, without: Collection[str] = ()) -> Any:
        """Copy a value of any other type. A subclass of a builtin type is read with the builtin type's own methods."""
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
    """Copy an exact dict, list or tuple that holds short texts, numbers and None only; else None."""
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
    """Tells whether the shown items of a list that is too long to be shown are numbers."""
    return _NUMBERS.issuperset(map(id, map(type, value[:shown])))


def _integer(value: int) -> Any:
    """Convert an instance of a subclass of int; an integer that is too long is not even copied."""
    return integer(int.__int__(value)) if int.bit_length(value) < LONGEST_INTEGER else too_long(value)


def _key(key: Any) -> str:
    """Convert a key of a dict to text; the limit keeps a record's names short."""
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
    """Return the text of the standard library's own dates, paths, numbers and ids, and the type of any other value."""
    module = module_of(kind)
    if module in ("datetime", "uuid", "decimal", "pathlib", "pathlib._local", "fractions"):
        loaded = sys.modules.get(module)
        if loaded is not None and loaded.__dict__.get(name_of(kind)) is kind and _is_plain_date(value, kind, module):
            return str(value) if _is_short(value, module) else {"…": f"long {name_of(kind)}"}
    return {"…": qualified_name(kind)}


def _is_short(value: Any, module: str) -> bool:
    """Tells whether a number is to be written out; dates, paths and ids are never long."""
    if module == "fractions":
        parts = (value.numerator, value.denominator)
        return all(type(part) is int and part.bit_length() < LONGEST_INTEGER for part in parts)
    return module != "decimal" or sys.getsizeof(value) < LONGEST_INTEGER


def _is_plain_date(value: Any, kind: type, module: str) -> bool:
    """Tells whether ``value`` has no time zone of the host's: ``str`` would ask such a zone for a name."""
    if module != "datetime" or name_of(kind) not in ("datetime", "time"):
        return True
    zone = type(kind.__dict__["tzinfo"].__get__(value))
    return zone is type(None) or qualified_name(zone) in ("datetime.timezone", "zoneinfo.ZoneInfo")
