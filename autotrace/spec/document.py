"""Read a YAML file as values with line and column. No tag is executed; duplicate keys and tabs are explained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, ScalarNode, SequenceNode


@dataclass(frozen=True, order=True)
class Problem:
    """Describes one mistake: the place, the fault, and a correction."""

    file: str
    """Names the file as the user gave the path, or ``patch_specs/NAME`` for a shipped spec."""
    line: int
    """Count from 1; 0 means the file as a whole."""
    column: int
    """Count from 1."""
    text: str

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{position}: {self.text}"


class SpecError(Exception):
    """Reports all mistakes of all spec files, one line each. No part of the files takes effect."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Position(NamedTuple):
    """Holds a line and a column, both counted from 1."""

    line: int
    column: int


Complain = Callable[[Position, str], None]
"""Takes a mistake and its position."""

_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))
MAX_DEPTH = 32
"""Limit the levels of nested lists and mappings."""
MAX_VALUES = 100_000
"""Limit the values in a file. Values behind an alias count at each use of the alias."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_TEXT_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("timestamp", "merge", "value"))


@dataclass(frozen=True)
class Node:
    """Holds one value of the file."""

    value: Any
    """Value: None, bool, int, float, str, a tuple of nodes, or a dict from key to node."""
    position: Position
    text: str = ""
    """Text of a scalar, as written."""
    keys: dict[str, Position] = field(default_factory=dict)
    """Maps a mapping's keys to their positions."""

    def plain(self) -> Any:
        """Return the value without positions."""
        if isinstance(self.value, tuple):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def load(text: str, complain: Complain) -> Node | None:
    """Load the single document in ``text``.

    Return None if ``text`` is empty. Call ``complain`` and return None if ``text`` is not valid YAML.
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        position = Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        complain(position, f"YAML does not allow the character {_code(text[error.position])}: remove it")
        return None
    try:
        root = loader.get_single_node()
        return None if root is None else _Conversion(loader, complain).node(root, ())
    except _Rejected as error:
        complain(error.position, str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = Position(1, 1) if mark is None else _position(mark)
        complain(position, _explained(text, position, error))
    finally:
        loader.dispose()
    return None


class _Rejected(Exception):
    """Stops reading the whole file."""

    def __init__(self, position: Position, text: str) -> None:
        super().__init__(text)
        self.position = position


class _Loader(yaml.SafeLoader):
    """Limit the depth of PyYAML's loader, which calls itself once a level without any limit."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self._depth == MAX_DEPTH:
            position = _position(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
            raise _Rejected(position, f"nested more than {MAX_DEPTH} levels deep: an entry needs four at most")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _explained(text: str, position: Position, error: yaml.MarkedYAMLError) -> str:
    lines = text.splitlines()
    line = lines[position.line - 1] if position.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {position.line} is indented with a tab: YAML allows spaces only"
    if line[position.column - 1 : position.column] == "\t":
        return f"line {position.line} has a tab: YAML allows spaces only"
    if line[position.column - 1 : position.column] in ("%", "@", "`"):
        return f"a value cannot begin with {line[position.column - 1]!r}: put it in quotes"
    if error.problem and "single document" in f"{error.context} {error.problem}":
        return "a second `---`: a spec is one list"
    return f"not valid YAML: {error.problem or error.context}"


class _Conversion:
    """Converts PyYAML's nodes into ours. Values behind an alias count at each use: a few lines can mean billions."""

    def __init__(self, loader: yaml.SafeLoader, complain: Complain) -> None:
        self._loader = loader
        self._complain = complain
        self._count = 0

    def node(self, node: Any, above: tuple[int, ...]) -> Node:
        """Convert ``node`` and everything inside. ``above`` holds the ids of the nodes that contain ``node``."""
        position = _position(node.start_mark)
        self._count += 1
        if self._count > MAX_VALUES:
            raise _Rejected(position, f"with its aliases the file holds more than {MAX_VALUES:,} values: write fewer")
        if id(node) in above:
            self._complain(position, "an alias that contains itself: write the value out")
            return Node(None, position)
        if node.tag not in _PLAIN_TAGS and node.tag not in _TEXT_TAGS:
            self._complain(position, f"the tag {_tag(node.tag)} is not used in specs: remove it")
            return Node(None, position)
        if isinstance(node, SequenceNode):
            return Node(tuple(self.node(item, (*above, id(node))) for item in node.value), position)
        if isinstance(node, MappingNode):
            return self._mapping(node, position, above)
        assert isinstance(node, ScalarNode)
        return self._scalar(node, position)

    def _scalar(self, node: ScalarNode, position: Position) -> Node:
        control = _CONTROL.search(node.value)
        if control is not None:
            self._complain(position, f"a text with the character {_code(control[0])}: remove it")
            return Node(node.value, position, node.value)
        if node.tag in _TEXT_TAGS:
            return Node(node.value, position, node.value)
        try:
            return Node(self._loader.construct_object(node), position, node.value)
        except ValueError:  # `!!int abc`, or more digits than Python reads
            shown = node.value if len(node.value) <= 40 else f"{node.value[:40]}..."
            self._complain(position, f"`{shown}` cannot be read as {_tag(node.tag)}")
            return Node(node.value, position, node.value)

    def _mapping(self, node: MappingNode, position: Position, above: tuple[int, ...]) -> Node:
        values: dict[str, Node] = {}
        keys: dict[str, Position] = {}
        for key_node, value_node in node.value:
            where = _position(key_node.start_mark)
            if not isinstance(key_node, ScalarNode):
                self._complain(where, "a key has to be a single word, not a list or a mapping")
                continue
            key = key_node.value
            if _CONTROL.search(key):
                self._scalar(key_node, where)
                continue
            if key in keys:
                self._complain(where, f"`{key}:` is given here and in line {keys[key].line}: keep one")
                continue
            keys[key] = where
            values[key] = self.node(value_node, (*above, id(node)))
        return Node(values, position, keys=keys)


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def _tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def walk(node: Node) -> Iterator[Node]:
    """Walk over ``node`` and every node inside."""
    yield node
    inside = node.value.values() if isinstance(node.value, dict) else node.value
    for item in inside if isinstance(node.value, (dict, tuple)) else ():
        yield from walk(item)
