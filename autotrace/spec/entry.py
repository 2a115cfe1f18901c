"""Check an entry of a spec file against the model. Every mistake in the entry is reported with its position."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from autotrace.spec import document, names
from autotrace.spec.document import Complain, Node, Position
from autotrace.spec.model import CHOICES, Capture, Entry, Key, Tokens, texts, types

_STRUCTS: dict[str, type[msgspec.Struct]] = {"capture": Capture, "tokens": Tokens, "of": Key}
_ARGUMENT = re.compile(r"[^\W\d]\w*(\.\w+)?\Z")


def read(node: Node, complain: Complain) -> tuple[Entry, frozenset[str]] | None:
    """Read the entry and the keys that the entry gives; None after complaining."""
    mistakes: list[tuple[Position, str]] = []

    def noted(position: Position, text: str) -> None:
        mistakes.append((position, text))
        complain(position, text)

    if isinstance(node.value, str):
        node = Node({"target": node}, node.position, keys={"target": node.position})
    if node.value is None:
        complain(node.position, "an empty entry: write a name after `- `, package.module.Class.method")
        return None
    if not isinstance(node.value, dict):
        complain(node.position, f"an entry is a name or a mapping with `target:`, not {_kind(node.value)}")
        return None
    for key in ("attributes", "facts"):
        if key in node.value:
            node.value[key] = _with_literals(node.value[key])
    given = _fields(Entry, node, "", noted)
    if "target" in given:
        _target(node.value["target"], noted)
        _exclude(node, given, noted)
    elif "target" not in node.value:
        noted(node.position, "an entry without `target:`; write `target: package.module.Class.method`")
    if "versions" in given:
        _say(node.value["versions"], names.wrong_range(given["versions"] or ""), noted)
    _paths(node, given, noted)
    return None if mistakes else (Entry(**given), frozenset(given))


def _with_literals(node: Node) -> Node:
    """Return ``node`` with the texts ``true`` and ``false`` of the spec language in the place of YAML's values."""
    if isinstance(node.value, dict):
        return replace(node, value={key: _with_literals(item) for key, item in node.value.items()})
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(map(_with_literals, node.value)))
    return replace(node, value=str(node.value).lower()) if isinstance(node.value, bool) else node


def _fields(struct: type[msgspec.Struct], node: Node, where: str, complain: Complain) -> dict[str, Any]:
    """Return the correct values of ``node``, by key."""
    keys = types(struct)
    values: dict[str, Any] = {}
    for key, value in node.value.items():
        if key not in keys:
            complain(node.keys[key], _unknown(key, where, keys))
        elif value.value is None:
            instead = "" if key == "target" else ", or remove the line"
            complain(node.keys[key], f"nothing after `{where}{key}:`; write {texts()[where + key].form}{instead}")
        elif key in _STRUCTS and isinstance(value.value, dict):
            values[key] = _STRUCTS[key](**_fields(_STRUCTS[key], value, f"{key}.", complain))
        elif key in CHOICES and value.value not in CHOICES[key]:
            perhaps = _perhaps(value.text, CHOICES[key])
            complain(value.position, f"`{where}{key}: {value.text}`: write {texts()[where + key].form}{perhaps}")
        else:
            try:
                values[key] = msgspec.convert(value.plain(), keys[key])
            except msgspec.ValidationError as error:
                part = _part(value, str(error))
                takes = texts()[where + key].form
                is_other_number = "number" in takes and isinstance(part.value, (int, float))
                wrong = part.text if is_other_number else f"{_kind(part.value)}{_quoting(part)}"
                complain(part.position, f"`{where}{key}:` takes {takes}, not {wrong}")
    return values


def _target(node: Node, complain: Complain) -> None:
    if node.value == ():
        complain(node.position, f"the list after `target:` is empty; write {texts()['target'].form}")
    seen: set[str] = set()
    for item in _texts(node):
        _say(item, names.wrong_name(item.value), complain)
        if item.value in seen:
            complain(item.position, f"`{item.value}` is in this list twice: keep one")
        seen.add(item.value)


def _exclude(node: Node, given: dict[str, Any], complain: Complain) -> None:
    if "exclude" not in given:
        return
    target = node.value["target"]
    if not given.get("subclasses") and not any(names.is_glob(item.value) for item in _texts(target)):
        complain(
            node.keys["exclude"],
            "`exclude:` leaves names out of a target that ends in `*` or has `subclasses: true`; "
            "arguments are left out with `capture: {exclude: [...]}`",
        )
    for item in _texts(node.value["exclude"]):
        if not item.value.strip() or any(character.isspace() for character in item.value):
            complain(item.position, f"`{item.value}`: write a dotted name, `*` stands for any characters")


def _paths(node: Node, given: dict[str, Any], complain: Complain) -> None:
    for key in ("tokens", "attributes", "facts", "batch", "rows", "chains", "id", "of", "final"):
        for item in _texts(node.value[key]) if key in given else ():
            _say(item, names.wrong_path(item.value) or _wrong_root(key, item.value), complain)
    for key, value in node.value["capture"].value.items() if "capture" in given else ():
        for item in _texts(value):
            if key == "include":
                _say(item, names.wrong_path(item.value), complain)
            elif not _ARGUMENT.match(item.value):
                complain(item.position, f"`{item.value}`: write an argument's name, or result.NAME")
    for name, position in node.value["outcomes"].keys.items() if given.get("outcomes") else ():
        if fault := names.wrong_name(name):
            complain(position, fault)
    _of(node, given, complain)
    _rows(node, given, complain)


def _wrong_root(key: str, path: str) -> str | None:
    """Explain why a path of ``key`` cannot begin with the path's first word; None if the path can."""
    roots = set(names.roots(path))
    if key == "final" and roots != {"item"}:
        return f"`{path}`: `final` looks at what a generator yields; begin the path with item, `item.finished`"
    if key == "chains" and roots != {"result"}:
        return f"`{path}`: the call returns its chains; begin the path with result"
    if key == "rows" and roots & {"row", "i", "n", "result", "item"}:
        return f"`{path}`: the rows are read when the call begins; name an argument"
    return None


def _rows(node: Node, given: dict[str, Any], complain: Complain) -> None:
    """Check which other keys go with ``rows`` and ``chains``."""
    for key in ("rows", "chains"):
        if given.get(key) and given.get("mode") == "count":
            complain(node.keys["mode"], f"`mode: count` records no call, so it has no {key}: leave one of the two out")
    if given.get("rows") and "final" in given:
        complain(node.keys["final"], "`final` is for generators, whose items are no rows: leave one of the two out")
    if "chains" in given and "rows" in given:
        complain(node.keys["rows"], "a batch returns no chains of its own: leave `rows` or `chains` out")
    if "chains" in given and isinstance(given.get("of"), Key):
        complain(node.keys["of"], "`chains` belong to the call's own trajectory; uid and rollout_n name another one")


def _of(node: Node, given: dict[str, Any], complain: Complain) -> None:
    """Check which other keys go with ``of`` and ``group``."""
    if "of" in given and given.get("role") == "trajectory":
        complain(
            node.keys["of"], "`of` says which trajectory a call belongs to; one that opens a trajectory has an `id`"
        )
    if "of" in given and "rows" in given and not given.get("facts"):
        complain(
            node.keys["of"],
            "rows `of` other trajectories say something about them: write `facts: {reward: row.reward}`",
        )
    if isinstance(given.get("of"), Key):
        words = node.value["of"].value
        missing = next((word for word in ("uid", "rollout_n") if word not in words), None)
        if missing is not None and len(words) < 2:
            complain(node.keys["of"], f"`of:` has no `{missing}`: a trajectory is named by both, uid and rollout_n")
        elif not given.get("facts"):
            complain(
                node.keys["of"],
                "uid and rollout_n name the trajectory that `facts` are about: write `facts: {reward: result.reward}`",
            )
    if given.get("group") and given.get("role") == "trajectory":
        complain(
            node.keys["group"],
            "`group` is for the call around the rollouts of a prompt, which is none itself: write `role: trainer`",
        )


def _texts(node: Node) -> list[Node]:
    """Return the text nodes inside ``node``."""
    return [item for item in document.walk(node) if isinstance(item.value, str)]


def _say(node: Node, fault: str | None, complain: Complain) -> None:
    if fault is not None:
        complain(node.position, fault)


def _unknown(key: str, where: str, keys: Iterable[str]) -> str:
    if not where and "." in key and names.wrong_name(key) is None:
        return f"`{key}:` ends in a colon: write the name alone, or `target: {key}`"
    if key == "<<":
        return "`<<` merges are not used in specs: write the keys out"
    return f"unknown key `{where}{key}`" + (_perhaps(key, keys) or f"; the keys are {', '.join(keys)}")


def _perhaps(word: str, words: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower(), list(words), n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else ""


_AT = re.compile(r"`\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.(\w+)")


def _part(node: Node, error: str) -> Node:
    """Find the node that msgspec complains about; msgspec's message ends with a path such as ``$.a[1]``."""
    match = _AT.search(error)
    for index, key in _STEP.findall(match["path"] if match else ""):
        if index.isdigit() and isinstance(node.value, tuple) and int(index) < len(node.value):
            node = node.value[int(index)]
        elif key and isinstance(node.value, dict) and key in node.value:
            node = node.value[key]
        elif index == "..." and isinstance(node.value, dict):
            wrong = (item for item in node.value.values() if not isinstance(item.value, (str, tuple)))
            node = next(wrong, node)
    return node


def _quoting(node: Node) -> str:
    return f'; in quotes it is a text: "{node.text}"' if node.text and not isinstance(node.value, str) else ""


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return "a number" if isinstance(value, (int, float)) else f"the text `{value}`"
