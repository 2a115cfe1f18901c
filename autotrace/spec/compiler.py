"""Spec files -> one plan. All mistakes of all files are reported together, and with a mistake nothing is compiled."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from autotrace.config.installation import carried
from autotrace.config.plan import SHIPPED, Plan, Settings, Target
from autotrace.config.written import located
from autotrace.spec import document, entry, names
from autotrace.spec.document import Node, Position, Problem, SpecError
from autotrace.spec.model import Entry, Key, Paths

_ALIKE = (
    "versions", "subclasses", "role", "mode", "optional", "label", "tokenizer", "outcomes", "group", "inside",
)  # fmt: skip
"""What an entry and its target call and hold alike."""
_WITH_PATHS = ("rows", "chains", "id", "of", "capture", "tokens", "attributes", "facts")
_LISTS = Path(carried(SHIPPED, SHIPPED)).resolve()


def shipped_specs() -> list[Path]:
    """The lists that come with autotrace, in the order of their names."""
    return sorted(_LISTS.glob("*.yaml"))


def compile_plan(
    files: Sequence[str | Path] = (),
    *,
    shipped: bool = True,
    settings: Settings = Settings(),  # noqa: B008 - frozen
) -> Plan:
    """The plan of the shipped lists (unless ``shipped`` is false) and then ``files``, in order.

    An entry of a later file that names a target of an earlier one refines it: the keys it gives replace the earlier
    ones, its new names are tried first. Raises ``SpecError`` with every mistake in every file.
    """
    problems: list[Problem] = []
    drafts = _Drafts(problems)
    paths = [*(shipped_specs() if shipped else ()), *(Path(file) for file in files)]
    for path in paths:
        drafts.file(path)
    if problems:
        raise SpecError(sorted(problems, key=lambda problem: (_order(problem, paths), problem.line, problem.column)))
    plan = Plan(drafts.targets(), settings)
    return dataclasses.replace(plan, digest=hashlib.sha256(plan.dumps().encode()).hexdigest())


_IMPORTED_BY_MANY = ("httpx", "httpx2")


def watched_modules(plan: Plan) -> tuple[str, ...]:
    """Top-level names of modules, sorted: the processes that import none of them have nothing to record, and read no
    plan.

    Shipped lists of what many programs import and few ask models with (httpx, mcp) are of methods that are recorded
    inside of other calls alone. A process that imports nothing else of the plan has no such calls; in one that does
    they are bound then, also if they were imported before. (Not so functions, which ``from ... import`` copies.)
    """
    names = (name for target in plan.targets if not _can_wait(target) for name in target.names)
    return tuple(sorted({name.replace(":", ".").split(".", 1)[0] for name in names}))


def _can_wait(target: Target) -> bool:
    parts = [name.replace(":", ".").split(".") for name in target.names]
    is_method = all(len(part) > 2 and part[-2].lstrip("_")[:1].isupper() for part in parts)
    asks = target.role == "llm" and target.names[0].partition(".")[0] not in _IMPORTED_BY_MANY
    return target.inside and is_method and not asks and target.is_shipped


def shown(path: Path) -> str:
    """A spec file's name in messages and in ``Target.where``."""
    if path.parent == _LISTS:
        return f"{SHIPPED}/{path.name}"
    return str(path)


@dataclass
class _Draft:
    """A target that later files may still refine."""

    names: list[str]
    key: str
    entry: Entry
    where: str
    places: dict[str, str]

    def refine(self, later: Entry, given: frozenset[str], where: str, places: dict[str, str]) -> None:
        self.names = [name for name in _list(later.target) if name not in self.names] + self.names
        for key in given - {"target"}:
            setattr(self.entry, key, getattr(later, key))
        for key, other in (("rows", "chains"), ("chains", "rows")):
            if key in given:  # a call is a batch, or returns its chains
                setattr(self.entry, other, [])
        self.where = where
        kept = {name: place for name, place in self.places.items() if name.partition(".")[0] not in given}
        self.places = {**kept, **places}

    def target(self, off: Sequence[str]) -> Target:
        """``off``: names that are switched off, which no glob brings back."""
        made, capture, of = self.entry, self.entry.capture, self.entry.of
        globs = any(map(names.is_glob, self.names))
        plain: dict[str, Any] = {key: getattr(made, key) for key in _ALIKE}
        plain |= {key: tuple(_list(getattr(made, key))) for key in ("rows", "chains", "id", "final")}
        plain |= {key: _table(getattr(made, key)) for key in ("attributes", "facts")}
        return Target(
            key=self.key,
            names=tuple(self.names),
            where=self.where,
            without=(*made.exclude, *(off if globs else ())),
            include=None if capture is None or capture.include is None else tuple(capture.include),
            exclude=() if capture is None else tuple(capture.exclude),
            tokens=_members(made.tokens),
            batch=_members(made.batch),
            of=() if isinstance(of, Key) else tuple(_list(of)),
            of_key=_members(of if isinstance(of, Key) else None),
            items=made.items or 0,
            places=self.places,
            **plain,
        )


def _table(paths: Mapping[str, Paths]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(_list(value)) for name, value in paths.items()}


def _members(struct: msgspec.Struct | None) -> dict[str, tuple[str, ...]]:
    """The paths given in a ``tokens`` or ``batch`` mapping."""
    if struct is None:
        return {}
    return _table({name: value for name, value in msgspec.structs.asdict(struct).items() if value is not None})


class _Drafts:
    """The targets so far, and who named what."""

    def __init__(self, problems: list[Problem]) -> None:
        self.drafts: list[_Draft] = []
        self.problems = problems
        self._by_name: dict[str, _Draft] = {}

    def targets(self) -> tuple[Target, ...]:
        """What is left of all files together."""
        off = [name.replace(":", ".") for draft in self.drafts if not draft.entry.enabled for name in draft.names]
        return tuple(draft.target(off) for draft in self.drafts if draft.entry.enabled)

    def file(self, path: Path) -> None:
        file = shown(path)

        reported: set[Position] = set()

        def complain(position: Position, text: str) -> None:
            if position not in reported:  # one mistake, one line: what follows from it is left unsaid
                reported.add(position)
                self.problems.append(Problem(file, position.line, position.column, text))

        text = self._text(path, file)
        root = None if text is None else document.load(text, complain)
        if root is None:
            return
        if not isinstance(root.value, tuple):
            complain(
                root.position,
                "a spec file is a list: begin each entry with `- `, as in `- my_project.agents.Agent.run`",
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
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            near = [name.name for name in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
            close = difflib.get_close_matches(path.name, near, n=1)
            hint = f"; did you mean {path.parent / close[0]}?" if close else f" (looked from {os.getcwd()})"
            self.problems.append(Problem(file, 0, 0, f"no such spec file{hint}"))
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
            both = " and ".join(f"`{draft.key}` ({draft.where})" for draft in earlier)
            complain(node.position, f"this entry names two earlier targets, {both}: write one entry for each")
            return
        if earlier:
            draft = earlier[0]
            draft.refine(made, given, where, places)
        elif given == {"target", "enabled"} and not made.enabled:
            complain(_position(node, called[0]), self._nothing_to_switch_off(called[0]))
            return
        else:
            self.drafts.append(draft := _Draft(called, called[0], made, where, places))
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
    """Where ``node`` gives paths; see ``Target.places``."""
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
