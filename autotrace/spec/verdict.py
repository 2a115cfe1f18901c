"""Judge each target of a plan: the resolved symbol, or the reason for a failure. Nothing is imported."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, islice

from autotrace.config.plan import Plan, Target, decorated
from autotrace.spec import names
from autotrace.spec.describe import Description, describe, refusal
from autotrace.spec.hints import hint
from autotrace.spec.names import stem
from autotrace.spec.resolve import Resolver
from autotrace.spec.symbols import Class, Function, Lazy, Module, Native, Other

RESOLVES, MISSING, REFUSED, SKIPPED, UNCLEAR = "resolves", "missing", "refused", "skipped", "unclear"
"""Lists the states. ``unclear``: the name exists, but only running the program tells the value."""

_IN_ROWS = ("row", "i", "n")
_ALWAYS = frozenset({"self", "kwargs", "result", "item"})


@dataclass(frozen=True)
class Verdict:
    """Describes the expected outcome of one target."""

    target: Target
    state: str
    name: str
    """Names the alternative that the verdict is about."""
    reason: str = ""
    """Explain why the name does not resolve, or how to correct the name."""
    description: Description | None = None
    count: int = 1
    """Counts the functions; more than 1 for globs."""
    notes: tuple[str, ...] = ()
    """Lists facts about the function that surprise people."""
    mistakes: tuple[str, ...] = ()
    """Lists keys of the user's entry that name nothing, although the target resolves."""
    library_absent: bool = False
    """State that the target was skipped because the whole library is absent."""

    @property
    def failed(self) -> bool:
        """Tell whether the user asked for something that will not be recorded."""
        return bool(self.complaints)

    @property
    def complaints(self) -> list[tuple[str, str]]:
        """List place and sentence of every wish of the user that will not be met."""
        if self.state in (MISSING, REFUSED) and not self.target.optional:
            return [(self.target.where, f"{self.name} will not be traced: {self.reason}")]
        return [(self.place(mistake), f"{self.name}: {mistake}") for mistake in self.mistakes]

    def place(self, said: str) -> str:
        """Return the place in the spec of the path that ``said`` begins with (``attributes.step: ...``), else of the
        entry."""
        key = said.partition(":")[0]
        places = (where for name, where in self.target.places.items() if name == key or name.startswith(f"{key}."))
        return next(places, self.target.where)


def judge(
    plan: Plan,
    resolver: Resolver,
    *,
    expected: AbstractSet[str],
    absent: str = "is not installed",
    only: Sequence[Target] | None = None,
    most: int | None = None,
) -> list[Verdict]:
    """Judge each target of ``plan``, or each target of ``only``.

    ``expected`` holds the keys of the targets whose library has to be installed: the user's own targets. (A shipped
    spec for a missing library is skipped.) ``absent`` is the phrase for a missing library. ``most`` limits the
    functions of a glob that are counted; None counts all.
    """
    alternatives = {name: target.names for target in plan.targets for name in target.names}
    targets = plan.targets if only is None else only
    return [_judged(target, resolver, target.key in expected, absent, alternatives, most) for target in targets]


def _judged(
    target: Target,
    resolver: Resolver,
    expected: bool,
    absent: str,
    alternatives: Mapping[str, Iterable[str]],
    most: int | None,
) -> Verdict:
    first = target.names[0]
    if target.versions is not None:
        wanted = names.distribution(target.versions)
        installed = resolver.source.version(wanted)
        if installed is not None and not names.within(target.versions, installed):
            return Verdict(target, SKIPPED, first, f"for {target.versions}, but this is {wanted} {installed}")
    if names.top(first) == "__main__":
        return Verdict(target, UNCLEAR, first, "the run decides which program this is; name the file to check it: "
                       f"FILE{first.removeprefix('__main__').replace(':', '.')}")  # fmt: skip
    if all(resolver.module(names.top(name)) is None for name in target.names):
        if not expected or target.versions is not None:
            return Verdict(target, SKIPPED, first, absent, library_absent=True)
        near = hint(first, resolver, alternatives)
        folder = "the folder that holds it must be the working folder or on PYTHONPATH"
        return Verdict(target, MISSING, first, f"no module `{names.top(first)}`; {near or folder}")
    tried = [_tried(target, name, resolver, expected, most) for name in target.names]
    for state in (RESOLVES, REFUSED, UNCLEAR):
        for verdict in tried:
            if verdict.state == state:
                return verdict
    if len(tried) == 1 and tried[0].reason:
        return tried[0]
    near = next(filter(None, (hint(name, resolver, alternatives) for name in target.names)), "")
    what = "no such name" if len(tried) == 1 else f"none of its {len(tried)} names exists"
    return dataclasses.replace(tried[0], reason=f"{what}; {near}" if near else what)


def _tried(target: Target, name: str, resolver: Resolver, own: bool, most: int | None) -> Verdict:
    if names.is_glob(name):
        reasons = (refusal(function, name, resolver) for function in expand(name, target.without, resolver))
        first = next(reasons, MISSING)
        count = sum(1 for _ in islice((reason for reason in chain([first], reasons) if reason is None), most))
        if count:
            return Verdict(target, RESOLVES, name, count=count)
        if first is not MISSING:
            return Verdict(target, REFUSED, name, first or "")
        return Verdict(target, MISSING, name, "it has no public function that is written in Python")
    bare, depth = decorated(name)
    symbol = resolver.find(bare)
    if isinstance(symbol, Other):
        state = REFUSED if symbol.certain else UNCLEAR
        why = symbol.reason or "only running the program tells what it is"
        return Verdict(target, state, name, f"{why}; name a function" if symbol.certain else why)
    if symbol is None:
        return Verdict(target, MISSING, name)
    if isinstance(symbol, Lazy) and symbol.meaning is None:
        return Verdict(
            target, MISSING, name, "its module makes names on access (`__getattr__`); name it where it is defined"
        )
    reason = names.refusal(bare) or refusal(symbol, bare, resolver, depth)
    description = describe(symbol) if isinstance(symbol, Function) else None
    if isinstance(symbol, Native):
        module, _, word = symbol.name.rpartition(".")
        description = Description(module or "builtins", word, "", "C function", "", ("*args", "**kwargs"))
    if reason is not None:
        return Verdict(target, REFUSED, name, reason, description)
    # a shipped spec names the arguments of several releases; each release has only some of the arguments
    if not own or description is None:
        return Verdict(target, RESOLVES, name, description=description)
    notes, mistakes = tuple(_notes(target, description)), tuple(_mistakes(target, description))
    return Verdict(target, RESOLVES, name, description=description, notes=notes, mistakes=mistakes)


def _notes(target: Target, function: Description) -> Iterator[str]:
    if function.decorator:
        yield f"recorded below @{function.decorator}, which looks at its caller's frame"
    if function.abstract and not target.subclasses:
        yield "it is abstract, what runs are its overrides: add `subclasses: true`"
    if function.kind == "property":
        yield "a property: each read of it is recorded as one call"


def _mistakes(target: Target, function: Description) -> Iterator[str]:
    if target.chains and not any("row" in names.roots(path) for _, given in _given_paths(target) for path in given):
        yield "chains: nothing is read of them; write `tokens: {prompt: row.prompt_ids, response: row.response_ids}`"
    in_result = any("result" in names.roots(path) for path in target.tokens.get("prompt", ()))
    if in_result and not target.tokens.get("response"):
        yield "tokens.prompt: a prompt in the result is read only beside `response`; add `response: result.NAME`"
    if any(name.startswith("**") for name in function.arguments):
        return
    arguments = [*function.keywords, *(_IN_ROWS if target.rows or target.chains else ()), *_ALWAYS]
    for key, alternatives in _given_paths(target):
        if not any(set(names.roots(path)) <= set(arguments) for path in alternatives):
            word = next(root for root in names.roots(alternatives[0]) if root not in arguments)
            yield f"{key}: no argument `{word}`{_perhaps(word, arguments)}"
    for word in (*(target.include or ()), *target.exclude):
        for root in names.roots(word):
            close = difflib.get_close_matches(root, arguments, n=1, cutoff=0.8)
            if root not in arguments and close:
                yield f"capture: no argument `{word}`; did you mean `{close[0]}`?"


def _given_paths(target: Target) -> Iterator[tuple[str, Sequence[str]]]:
    tables = {key: getattr(target, key) for key in ("tokens", "attributes", "facts", "batch")} | {"of": target.of_key}
    for key, table in tables.items():
        for name, alternatives in table.items():
            if alternatives:
                yield f"{key}.{name}", alternatives
    for key in ("rows", "chains", "id", "of"):
        if alternatives := getattr(target, key):
            yield key, alternatives


def _perhaps(word: str, arguments: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, arguments, n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else f"; there are {', '.join(arguments[: -len(_ALWAYS)])}"


def expand(name: str, without: Sequence[str], resolver: Resolver) -> Iterator[Function]:
    """Yield the functions below ``name`` (``pkg.mod.Class.*``, ``pkg.**``), except the functions that ``without``
    names."""
    prefix = stem(name)
    symbol = resolver.find(prefix)
    if isinstance(symbol, Module):
        yield from _members(symbol, without, resolver)
        if name.endswith("**") and symbol.file.package:
            for file in resolver.source.walk(prefix):
                module = resolver.module(file.name)
                if module is not None and module is not symbol:
                    yield from _members(module, without, resolver)
    elif isinstance(symbol, Class):
        yield from _members(symbol, without, resolver)


def _members(symbol: Module | Class, without: Sequence[str], resolver: Resolver) -> Iterator[Function]:
    here = symbol.name if isinstance(symbol, Module) else symbol.module.name
    for word in symbol.table.names:
        if word.startswith("_"):
            continue
        member = resolver.member(symbol, word)
        if not isinstance(member, (Function, Class)) or member.module.name != here:
            continue
        if isinstance(member, Function):
            dotted = f"{here}.{member.qualname}"
            if not any(fnmatch.fnmatchcase(dotted, pattern) for pattern in without):
                yield member
        elif isinstance(symbol, Module) or member.qualname == f"{symbol.qualname}.{word}":
            yield from _members(member, without, resolver)
