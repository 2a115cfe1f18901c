"""A YAML file as values that know their line and column. No tag is executed; duplicate keys and tabs are explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, ScalarNode, SequenceNode


class Place(NamedTuple):
    """1-based line and column."""

    line: int
    column: int


Complain = Callable[[Place, str], None]
"""Takes a mistake and where it is."""

_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))
_TEXT_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("timestamp", "merge", "value"))


@dataclass(frozen=True)
class Node:
    """One value of the file."""

    value: Any
    """None, bool, int, float, str, a tuple of nodes, or a dict from key to node."""
    place: Place
    text: str = ""
    """A scalar as written."""
    keys: dict[str, Place] = field(default_factory=dict)
    """Places of a mapping's keys."""

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, tuple):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def load(text: str, complain: Complain) -> Node | None:
    """The one document in ``text``; None when it is empty or, after complaining, when it is no YAML."""
    loader = yaml.SafeLoader(text)
    try:
        found = loader.get_single_node()
        return None if found is None else _converted(loader, found, complain, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)
        complain(place, _explained(text, place, error))
        return None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        complain(Place(line, 1), f"a character that YAML does not allow (code {error.character}): remove it")
        return None
    finally:
        loader.dispose()


def _explained(text: str, place: Place, error: yaml.MarkedYAMLError) -> str:
    lines = text.splitlines()
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {place.line} is indented with a tab: YAML wants spaces"
    if line[place.column - 1 : place.column] == "\t":
        return f"line {place.line} has a tab: YAML wants spaces"
    if line[place.column - 1 : place.column] in ("%", "@", "`"):
        return f"a value cannot begin with {line[place.column - 1]!r}: put it in quotes"
    if error.problem and "single document" in f"{error.context} {error.problem}":
        return "a second `---`: a spec file is one list"
    return f"no valid YAML: {error.problem or error.context}"


def _converted(loader: yaml.SafeLoader, node: Any, complain: Complain, above: tuple[int, ...]) -> Node:
    place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    if id(node) in above:
        complain(place, "an alias that contains itself: write the value out")
        return Node(None, place)
    if node.tag not in _PLAIN_TAGS and node.tag not in _TEXT_TAGS:
        complain(place, f"the tag {_tag(node.tag)} is not used in spec files: remove it")
        return Node(None, place)
    if isinstance(node, SequenceNode):
        return Node(tuple(_converted(loader, item, complain, (*above, id(node))) for item in node.value), place)
    if isinstance(node, MappingNode):
        return _mapping(loader, node, complain, place, above)
    assert isinstance(node, ScalarNode)
    if node.tag in _TEXT_TAGS:
        return Node(node.value, place, node.value)
    try:
        return Node(loader.construct_object(node), place, node.value)
    except ValueError:  # `!!int abc`
        complain(place, f"`{node.value}` is no {_tag(node.tag)}")
        return Node(None, place, node.value)


def _mapping(
    loader: yaml.SafeLoader, node: MappingNode, complain: Complain, place: Place, above: tuple[int, ...]
) -> Node:
    values: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    for key_node, value_node in node.value:
        where = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if not isinstance(key_node, ScalarNode):
            complain(where, "a key must be a single word")
            continue
        key = key_node.value
        if key in keys:
            complain(where, f"`{key}:` stands here and in line {keys[key].line}: keep one")
            continue
        keys[key] = where
        values[key] = _converted(loader, value_node, complain, (*above, id(node)))
    return Node(values, place, keys=keys)


def _tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def walk(node: Node) -> Iterator[Node]:
    """``node`` and everything in it."""
    yield node
    inside = node.value.values() if isinstance(node.value, dict) else node.value
    for item in inside if isinstance(node.value, (dict, tuple)) else ():
        yield from walk(item)
