"""Turn spec files into targets. Every mistake of every file is reported. Any mistake stops the compilation."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from autotrace.config.installation import carried
from autotrace.config.plan import SHIPPED, Target
from autotrace.config.written import located
from autotrace.run.files import named
from autotrace.spec import document, entry, names
from autotrace.spec.document import Node, Position, Problem, SpecError
from autotrace.spec.model import Entry, Key, Paths

_ALIKE = (
    "versions", "subclasses", "role", "mode", "optional", "label", "tokenizer", "outcomes", "group", "inside",
    "watch", "how",
)  # fmt: skip
"""Lists the keys whose values are equal in an entry and in a target."""
_FIELDS = {
    "target": (),
    "enabled": (),
    "exclude": ("without",),
    "capture": ("include", "exclude"),
    "of": ("of", "of_key"),
}
"""Maps a key of an entry to the fields of a target, where the names differ."""
_WITH_PATHS = ("rows", "chains", "id", "of", "capture", "tokens", "attributes", "facts")


def refined(targets: Sequence[Target], files: Sequence[Path]) -> tuple[Target, ...]:
    """Refine ``targets`` with ``files`` in order, then append the new targets. Raises ``SpecError``."""
    problems: list[Problem] = []
    drafts = _Drafts(targets, problems)
    for path in files:
        drafts.file(path)
    if problems:
        raise SpecError(sorted(problems, key=lambda problem: (_order(problem, files), problem.line, problem.column)))
    return drafts.targets()


@dataclass
class _Draft:
    """Holds a target that later files may still refine."""

    target: Target
    is_enabled: bool = True

    def refine(self, names: Sequence[str], later: Target, given: frozenset[str]) -> None:
        """Apply a later entry. ``later`` is the target of that entry alone; ``given`` holds the keys of that entry."""
        fields = {field for key in given for field in _FIELDS.get(key, (key,))}
        changes = {field: getattr(later, field) for field in fields}
        for key, other in (("rows", "chains"), ("chains", "rows")):
            if key in given:  # a call is a batch, or returns its chains
                changes[other] = ()
        kept = {name: place for name, place in self.target.places.items() if name.partition(".")[0] not in given}
        self.target = dataclasses.replace(
            self.target,
            names=(*(name for name in names if name not in self.target.names), *self.target.names),
            where=later.where,
            places={**kept, **later.places},
            **changes,
        )


def _as_target(made: Entry, where: str, places: dict[str, str]) -> Target:
    """Build the target of the entry ``made`` alone."""
    capture, of, called = made.capture, made.of, tuple(_list(made.target))
    plain: dict[str, Any] = {key: getattr(made, key) for key in _ALIKE}
    plain |= {key: tuple(_list(getattr(made, key))) for key in ("rows", "chains", "id", "final")}
    plain |= {key: _table(getattr(made, key)) for key in ("attributes", "facts")}
    return Target(
        key=called[0],
        names=called,
        where=where,
        without=tuple(made.exclude),
        include=None if capture is None or capture.include is None else tuple(capture.include),
        exclude=() if capture is None else tuple(capture.exclude),
        tokens=_members(made.tokens),
        batch=_members(made.batch),
        of=() if isinstance(of, Key) else tuple(_list(of)),
        of_key=_members(of if isinstance(of, Key) else None),
        items=made.items or 0,
        places=places,
        **plain,
    )


def _without(target: Target, off: Sequence[str]) -> Target:
    if not off or not any(map(names.is_glob, target.names)):
        return target
    return dataclasses.replace(target, without=(*target.without, *off))


def _table(paths: Mapping[str, Paths]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(_list(value)) for name, value in paths.items()}


def _members(struct: msgspec.Struct | None) -> dict[str, tuple[str, ...]]:
    """Return the paths given in a ``tokens`` or ``batch`` mapping."""
    if struct is None:
        return {}
    return _table({name: value for name, value in msgspec.structs.asdict(struct).items() if value is not None})


class _Drafts:
    """Collects the targets so far, and the draft behind each name."""

    def __init__(self, targets: Sequence[Target], problems: list[Problem]) -> None:
        self.drafts = [_Draft(target) for target in targets]
        self.problems = problems
        self._by_name = {name: draft for draft in self.drafts for name in draft.target.names}

    def targets(self) -> tuple[Target, ...]:
        """Return the enabled targets. No glob brings a disabled name back."""
        off = [name.replace(":", ".") for one in self.drafts if not one.is_enabled for name in one.target.names]
        return tuple(_without(one.target, off) for one in self.drafts if one.is_enabled)

    def file(self, path: Path) -> None:
        file = shown(path)

        reported: set[Position] = set()

        def complain(position: Position, text: str) -> None:
            if position not in reported:  # one mistake, one line: consequences are left unsaid
                reported.add(position)
                self.problems.append(Problem(file, position.line, position.column, text))

        text = self._text(path, file)
        root = None if text is None else document.load(text, complain)
        if root is None:
            return
        if not isinstance(root.value, tuple):
            complain(
                root.position,
                "a spec is a list: begin each entry with `- `, as in `- my_project.agents.Agent.run`",
            )
            return
        here: dict[str, Position] = {}
        for node in root.value:
            read = entry.read(node, complain)
            if read is None:
                continue
            given = _list(read[0].target)
            twice = next((name for name in given if name in here), None)
            if twice is not None:
                line = here[twice].line
                complain(
                    _position(node, twice), f"`{twice}` is already a target in line {line}: put both into one entry"
                )
                continue
            here.update((name, _position(node, name)) for name in given)
            if read[0].tokenizer is not None:
                try:
                    read[0].tokenizer = located(read[0].tokenizer, str(path.parent))
                except (ValueError, OSError) as error:
                    complain(node.value["tokenizer"].position, f"`tokenizer: {read[0].tokenizer}`: {error}")
                    continue
            self._add(read[0], read[1], file, node, complain)

    def _text(self, path: Path, file: str) -> str | None:
        try:
            return named(path).decode()
        except FileNotFoundError:
            near = [name.name for name in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
            close = difflib.get_close_matches(path.name, near, n=1)
            hint = f"; did you mean {path.parent / close[0]}?" if close else f" (looked from {os.getcwd()})"
            self.problems.append(Problem(file, 0, 0, f"no such spec{hint}"))
        except UnicodeDecodeError:
            self.problems.append(Problem(file, 0, 0, "not UTF-8 text: save it as UTF-8"))
        except OSError as error:
            self.problems.append(Problem(file, 0, 0, f"cannot be read ({error.strerror}): name a readable YAML file"))
        return None

    def _add(self, made: Entry, given: frozenset[str], file: str, node: Node, complain: document.Complain) -> None:
        called = _list(made.target)
        where = f"{file}:{node.position.line}"
        places = {} if file.startswith(f"{SHIPPED}/") else _places(file, node)
        earlier = list({id(draft): draft for draft in map(self._by_name.get, called) if draft is not None}.values())
        if len(earlier) > 1:
            both = " and ".join(f"`{draft.target.key}` ({draft.target.where})" for draft in earlier)
            complain(node.position, f"this entry names two earlier targets, {both}: write one entry for each")
            return
        later = _as_target(made, where, places)
        if earlier:
            draft = earlier[0]
            draft.refine(called, later, given)
        elif given == {"target", "enabled"} and not made.enabled:
            complain(_position(node, called[0]), self._nothing_to_switch_off(called[0]))
            return
        else:
            self.drafts.append(draft := _Draft(later))
        if "enabled" in given:
            draft.is_enabled = made.enabled
        for name in called:
            self._by_name[name] = draft

    def _nothing_to_switch_off(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._by_name, n=1)
        hint = f"did you mean `{close[0]}`?" if close else "`autotrace check` shows the names that there are"
        return f"`{name}`: no earlier file has this target, so there is nothing to switch off; {hint}"


def _list(value: Paths) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _position(node: Node, name: str) -> Position:
    return next((part.position for part in document.walk(node) if part.value == name), node.position)


def _places(file: str, node: Node) -> dict[str, str]:
    """Map each key of ``node`` that gives paths to its place; see ``Target.places``."""
    places: dict[str, str] = {}
    for key in _WITH_PATHS if isinstance(node.value, dict) else ():
        value = node.value.get(key)
        if value is not None and isinstance(value.value, dict):
            given = (name for name in value.value if name != "exclude")
            places.update((f"{key}.{name}", f"{file}:{value.value[name].position.line}") for name in given)
        elif value is not None:
            places[key] = f"{file}:{value.position.line}"
    return places


def _order(problem: Problem, paths: Sequence[Path]) -> int:
    return next((index for index, path in enumerate(paths) if shown(path) == problem.file), len(paths))


def shown(path: Path) -> str:
    """Return the name of a spec file for messages and ``Target.where``."""
    if path.parent == Path(carried(SHIPPED, SHIPPED)).resolve():
        return f"{SHIPPED}/{path.name}"
    return str(path)
