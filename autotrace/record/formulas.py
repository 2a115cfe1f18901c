"""Compute the values of a spec: paths with computed indexes, ``*`` over items, functions of paths (see
``config.expressions``). Separate the values of a batch from the values of each row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from autotrace.config.expressions import Tree, calls, is_expression, parse, roots
from autotrace.config.plan import Target
from autotrace.record import arrays
from autotrace.record.fields import ABSENT, Path, is_late, read_step
from autotrace.record.origin import is_hosts
from autotrace.record.spec_functions import FUNCTIONS, MAX_ITEMS, SpecFunction

ONCE = "…once"
"""Holds the key of a dictionary beside the first words of paths: a value that does not depend on the row is read once
into the dictionary."""
ROW_WORDS = frozenset({"row", "i", "n"})
"""Holds the first words of paths that exist only where rows are read."""
_OF_A_ROW = ROW_WORDS - {"n"}
"""Holds the words whose values may differ from row to row."""

Read = Callable[[Mapping[str, Any]], Any]


def of_a_row(path: Path) -> bool:
    """Tells whether the path may differ from row to row."""
    return not _OF_A_ROW.isdisjoint(path.roots)


class Formula:
    """Holds an expression that is read like a ``fields.Path``."""

    __slots__ = ("_read", "missed", "optional", "root", "roots", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.missed = 0
        tree = parse(text)
        self.optional = any(FUNCTIONS[name].is_optional for name, _ in calls(tree))
        """Tells whether the expression has a function that need not give a value."""
        self.roots = tuple(dict.fromkeys(roots(tree)))
        late = [root for root in self.roots if root in ("result", "item")]
        self.root = (late or [*self.roots, ""])[0]
        """Names the awaited root: ``result`` or ``item`` where the expression has such a root, else the first word."""
        self._read = _compiled(tree)

    def read(self, values: Mapping[str, Any]) -> Any:
        """Return the value; ``ABSENT`` if a part is absent or is not a number; see ``fields.Path.read``."""
        try:
            return self._read(values)
        except Exception as error:
            if is_hosts(error):
                raise
            return ABSENT


def value_of(text: str) -> Path:
    """Compile a value of a spec: a path, or a ``Formula``, which is read the same way."""
    if not is_expression(text):
        return Path(text)
    return cast("Path", Formula(text))


def values_of(texts: Sequence[str]) -> tuple[Path, ...]:
    """Compile each of several texts with ``value_of``; the first value that is present counts."""
    return tuple(value_of(text) for text in texts)


def compiled(table: Mapping[str, Sequence[str]]) -> tuple[tuple[str, tuple[Path, ...]], ...]:
    """Compile a plan's ``{name: [path, ...]}``."""
    return tuple((name, values_of(texts)) for name, texts in table.items())


def without_result(facts: Mapping[str, Sequence[str]]) -> tuple[tuple[str, tuple[Path, ...]], ...]:
    """Compile a plan's ``{name: [path, ...]}`` without the paths that need a result."""
    pairs = ((name, tuple(path for path in paths if not is_late(path))) for name, paths in compiled(facts))
    return tuple(pair for pair in pairs if pair[1])


def is_optional(path: Path) -> bool:
    """Tells whether the spec allows that no value exists."""
    return isinstance(path, Formula) and path.optional


def of_the_batch(target: Target) -> Target:
    """Return the target of the batch itself: the number of rows, and the attributes that all rows share."""
    common = {
        name: paths
        for name, paths in target.attributes.items()
        if not any(of_a_row(path) or "result" in path.roots for path in values_of(paths))
    }
    role = "trainer" if target.role == "trajectory" else "span"
    return replace(
        target, role=role, tokens={}, facts={}, attributes=common, include=(), id=(), of=(), of_key={}, batch={}
    )


def of_the_chains(target: Target) -> tuple[Target, Target]:
    """Return (the target of a call that returns the rows of its trajectory, the target of each row). Paths to ``row``
    or to the row's number belong to the row."""
    row: dict[str, Any] = {"include": tuple(filter(_is_of_a_row, target.include or ()))}
    own: dict[str, Any] = {"chains": ()}
    if target.include is None:  # the rows are recorded on their own
        own["exclude"] = (*target.exclude, *target.chains)
    else:
        own["include"] = tuple(name for name in target.include if name not in row["include"])
    for key in ("tokens", "attributes", "facts"):
        table = getattr(target, key)
        row[key] = {name: paths for name, paths in table.items() if any(map(_is_of_a_row, paths))}
        own[key] = {name: paths for name, paths in table.items() if name not in row[key]}
    row["attributes"] = {"row": ("i",), **row["attributes"]}
    whole = Target(target.key, target.names, target.where, role="agent", label="row", places=target.places)
    return replace(target, **own), replace(whole, **row)


def _is_of_a_row(text: str) -> bool:
    return not ROW_WORDS.isdisjoint(value_of(text).roots)


def _compiled(tree: Tree) -> Read:
    read = _made(tree)
    constant = tree[0] == "constant" or (tree[0] == "path" and not tree[2])
    return read if constant or not _OF_A_ROW.isdisjoint(roots(tree)) else _once(read)


def _once(read: Read) -> Read:
    """Return ``read``, which runs once for all rows of a batch."""

    def reading(values: Mapping[str, Any]) -> Any:
        kept = values.get(ONCE)
        if kept is None:
            return read(values)
        value = kept.get(read, kept)
        if value is kept:
            value = kept[read] = read(values)
        return value

    return reading


def _made(tree: Tree) -> Read:
    if tree[0] == "constant":
        return lambda _, value=tree[1]: value  # type: ignore[misc]
    if tree[0] == "call":
        return _called(FUNCTIONS[tree[1]], [_compiled(argument) for argument in tree[2]])
    return _path(tree[1], [step if isinstance(step, str) else _compiled(step) for step in tree[2]])


def _called(function: SpecFunction, arguments: Sequence[Read]) -> Read:
    return lambda values: function.read([read(values) for read in arguments])


def _path(root: str, steps: Sequence[str | Read]) -> Read:
    plain = next((number for number, step in enumerate(steps) if not isinstance(step, str) or step == "*"), len(steps))
    path, rest = Path(".".join([root, *cast("Sequence[str]", steps[:plain])])), steps[plain:]
    if not rest:
        return path.read
    base: Read = path.read if root in _OF_A_ROW or plain == 0 else _once(path.read)
    if len(rest) == 1 and not isinstance(rest[0], str):
        return _indexed(base, rest[0])
    return lambda values: _below(base(values), rest, values)


def _indexed(base: Read, index_of: Read) -> Read:
    """Read an item, the most common computed value."""

    def read(values: Mapping[str, Any]) -> Any:
        value, index = base(values), index_of(values)
        kind = type(value)
        if type(index) is int and (kind is list or kind is tuple or kind is deque):
            return value[index] if -len(value) <= index < len(value) else ABSENT
        return ABSENT if value is ABSENT else _below(value, (lambda _: index,), values)

    return read


def _below(value: Any, steps: Sequence[str | Read], values: Mapping[str, Any]) -> Any:
    for number, step in enumerate(steps):
        if value is ABSENT:
            return ABSENT
        if step == "*":
            return _each(value, steps[number + 1 :], values)
        if isinstance(step, str):
            value = read_step(value, step)
        else:
            index = step(values)
            if type(index) is int:
                value = _item(value, index)
            else:
                value = read_step(value, index) if type(index) is str else ABSENT
    return value


def _item(value: Any, index: int) -> Any:
    item = arrays.item(value, type(value), index)
    return read_step(value, str(index)) if item is arrays.NO_ARRAY else item


def _each(value: Any, steps: Sequence[str | Read], values: Mapping[str, Any]) -> Any:
    """Read the rest of the path in each item: a dict by key for a mapping, else a list. Absent for too many items."""
    kind = type(value)
    if isinstance(value, dict) and dict.__len__(value) <= MAX_ITEMS:
        items = {key: _below(item, steps, values) for key, item in [*dict.items(value)]}
        return {key: item for key, item in items.items() if item is not ABSENT}
    if (kind is list or kind is tuple or kind is deque) and len(value) <= MAX_ITEMS:
        read = [_below(item, steps, values) for item in list(value)]
        return [item for item in read if item is not ABSENT]
    return ABSENT
