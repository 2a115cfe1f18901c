"""Read paths such as ``result.extra_fields.global_steps``: attributes, keys and indexes; absent instead of an error."""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotrace.record.origin import is_hosts

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__bool__": lambda self: False})()


class Path:
    """Holds a compiled path. ``root`` is the first word (an argument, ``self``, ``kwargs``, ``result`` or ``item``)."""

    __slots__ = ("missed", "root", "roots", "steps", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.missed = 0
        """Counts how often neither the path nor an alternative was present. A path that is present costs nothing
        more."""
        self.root, *steps = text.split(".")
        self.roots = (self.root,)
        self.steps: tuple[tuple[str, int | None], ...] = tuple((step, _index(step)) for step in steps)

    def read(self, roots: Mapping[str, Any]) -> Any:
        """Return the value at this path, whose first word is a key of ``roots``; ``ABSENT`` if no value exists. User
        code may run (properties). Exceptions of user code count as absent, unless the exception is the host's (see
        ``origin``)."""
        value = roots.get(self.root, ABSENT)
        steps = self.steps
        if not steps or value is ABSENT:
            return value
        try:
            for step, index in steps:
                kind = type(value)
                if kind is str:  # a text has methods, and nothing that a spec could mean
                    return ABSENT
                if index is None and kind in _objects:
                    attribute = getattr(value, step, ABSENT)
                    value = _from_get(value, step) if attribute is ABSENT else attribute
                else:
                    value = _step(value, step, index)
                if value is ABSENT:
                    return ABSENT
        except Exception as error:
            if is_hosts(error):
                raise
            return ABSENT
        return value


def is_late(path: Path) -> bool:
    """Tells whether the path can only be read once a result exists."""
    return path.root in ("result", "item")


def last_word(text: str) -> str:
    """Return the name of a captured part: ``completions`` of ``row.completions[0]``."""
    return next((word for word in re.findall(r"[^\W\d]\w*", re.sub(r"\[[^\]]*\]", "", text))[::-1]), text)


_NUMBERS = frozenset(map(id, (int, float, bool, type(None))))
_objects: set[type] = set()
"""Holds classes that are not a ``Mapping``: asking the abstract class costs more than reading the attribute."""
MAX_OBJECTS = 500


def _index(step: str) -> int | None:
    digits = step[1:] if step.startswith("-") else step
    return int(step) if digits.isdecimal() else None


def _step(value: Any, step: str, index: int | None) -> Any:
    kind = type(value)
    if kind is str or id(kind) in _NUMBERS:
        return ABSENT
    if index is not None and (kind is list or kind is tuple):
        return value[index] if -len(value) <= index < len(value) else ABSENT
    if kind is dict or isinstance(value, Mapping):
        if step in value:
            return value[step]
        if index is not None and index in value:
            return value[index]
        return ABSENT if kind is dict else _own(value, step)
    if index is not None:
        return value[index] if isinstance(value, Sequence) and -len(value) <= index < len(value) else ABSENT
    if len(_objects) < MAX_OBJECTS and value.__class__ is kind and _is_its_modules(kind):  # no proxy, which may change
        _objects.add(kind)
    attribute = getattr(value, step, ABSENT)
    return _from_get(value, step) if attribute is ABSENT else attribute


def read_step(value: Any, step: str) -> Any:
    """Read a word of a path from ``value``; ``ABSENT`` if the word is absent. May raise exceptions of the host's
    code."""
    return _step(value, step, _index(step))


def _is_its_modules(kind: type) -> bool:
    """Tells whether the class is an attribute of its module: the host may drop a class that was created at run time."""
    return getattr(sys.modules.get(kind.__module__), "__dict__", {}).get(kind.__qualname__) is kind


def _own(value: Any, step: str) -> Any:
    """Return an attribute that a mapping of the host's own class has besides items (SkyRL's batches); never a
    method."""
    attributes = getattr(value, "__dict__", None)
    return attributes.get(step, ABSENT) if type(attributes) is dict else ABSENT


def _from_get(value: Any, step: str) -> Any:
    """Read from OmegaConf nodes, tensordicts and other objects that answer to keys without being Mappings."""
    getter = getattr(value, "get", None)
    return getter(step, ABSENT) if callable(getter) else ABSENT


def first(paths: Sequence[Path], roots: Mapping[str, Any]) -> Any:
    """Return the value of the first path that is present; count a miss if every path is absent (``Path.missed``)."""
    for path in paths:
        value = path.read(roots)
        if value is not ABSENT:
            return value
    if paths:
        paths[0].missed += 1
    return ABSENT


def peek(paths: Sequence[Path], roots: Mapping[str, Any]) -> Any:
    """Return the same value as ``first`` without counting: the same paths are read for the record, too."""
    for path in paths:
        value = path.read(roots)
        if value is not ABSENT:
            return value
    return ABSENT


def reader(paths: Sequence[Path], sample: Any) -> Callable[[Any], Any]:
    """Return ``first(paths, {root: value})`` as a function of the value, quick for values built like ``sample``.

    The function may raise for a value that is built differently, and returns ``ABSENT`` for an absent path.
    """
    if len(paths) == 1 and type(paths[0]) is Path and all(index is None for _, index in paths[0].steps):
        steps = [step for step, _ in paths[0].steps]
        quick: list[Callable[[Any], Any]] = [operator.attrgetter(".".join(steps))] if steps else []
        if len(steps) == 1:
            quick.append(operator.itemgetter(steps[0]))
        elif len(steps) == 2:
            outer, inner = steps
            quick.append(lambda value: value[outer][inner])
        for getter in quick:
            try:
                getter(sample)
            except Exception as error:
                if is_hosts(error):
                    raise
                continue
            return getter

    def slow(value: Any) -> Any:
        for path in paths:
            answer = path.read({path.root: value})
            if answer is not ABSENT and answer:
                return answer
        return ABSENT

    return slow
