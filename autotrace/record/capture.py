"""Copy the arguments and results that a target captures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotrace.config.plan import Settings, Target
from autotrace.record import faults, fields, formulas
from autotrace.record.arguments import Signature
from autotrace.record.fields import ABSENT, is_late, last_word
from autotrace.record.object_fields import ANSWERING, is_plain, layouts, qualified_name
from autotrace.record.pickled import captured
from autotrace.record.snapshot import FIXED, SHORT, Limits, snapshot, walked

NOT_COPIED = {"…": "could not be copied"}
"""Replaces a value that raised when the value was read."""
MORE_DEPTH = 3
"""Limits the levels copied of an LLM call's values beyond the levels of other calls."""
MAX_YIELDED = 1_048_576
"""Limits the items of a row's token list that a generator yields."""


@dataclass(frozen=True, slots=True)
class CapturedValues:
    """Say which values of a call are copied, and how deep."""

    key: str
    role: str
    limits: Limits
    yields: Limits
    """Limits the yielded values; the rows of a trajectory are read from the copy."""
    has_content: bool
    include: frozenset[str] | None
    """Names the captured values; None: all values."""
    exclude: frozenset[str]
    order: tuple[str, ...]
    """Names the captured values in the order of the spec."""
    members: tuple[tuple[str, fields.Path], ...]
    """Lists the captured members of arguments by their last word, or by the whole path where two have the same last
    word."""
    parts: tuple[tuple[str, fields.Path], ...]
    """Lists the captured parts of the result, named in the same way, instead of the whole result."""
    has_result: bool
    without: tuple[str, ...]
    """Names the fields of the result that are not captured: token lists travel separately, others were excluded."""
    prompts: frozenset[str]
    """Names the arguments that may hold the prompt's token ids, which travel separately."""
    is_whole: bool
    """Tells whether every argument is captured."""

    @classmethod
    def of_target(
        cls, target: Target, settings: Settings, prompt: tuple[fields.Path, ...], returns_rows: bool
    ) -> CapturedValues:
        """Read from the spec of ``target`` what a call copies. ``prompt``: the paths of the prompt's token ids."""
        # A tool call's function is seven deep in a chat completion.
        depth = settings.max_depth + (MORE_DEPTH if target.role == "llm" else 0)
        limits = Limits(depth, settings.max_items, settings.copied)
        has_content, names = settings.content != "none", target.include or ()
        paths = [formulas.value_of(name) for name in names if not name.isidentifier()] if has_content else []
        words = Counter(last_word(path.text) for path in paths)
        named = [(word if words[word := last_word(path.text)] == 1 else path.text, path) for path in paths]
        called = {path.text: name for name, path in named}
        parts = () if "result" in names else tuple(pair for pair in named if is_late(pair[1]))
        includes_result = target.include is None or "result" in target.include or bool(parts)
        without = [name for name in target.exclude if name.startswith("result.")]
        for texts in target.tokens.values():
            without += [text for text in texts if text.startswith("result.") and text.count(".") == 1]
        return cls(
            key=target.key,
            role=target.role,
            limits=limits,
            yields=Limits(depth, MAX_YIELDED, settings.copied) if returns_rows else limits,
            has_content=has_content,
            include=None if target.include is None else frozenset(target.include),
            exclude=frozenset(target.exclude) | {"self", "cls"},
            order=tuple(called.get(name, name) for name in names),
            members=tuple(pair for pair in named if not is_late(pair[1])),
            parts=parts,
            has_result=has_content and includes_result and "result" not in target.exclude,
            without=tuple(name.removeprefix("result.") for name in without),
            prompts=frozenset(path.text for path in prompt),
            is_whole=has_content and target.include is None and not target.exclude and not prompt,
        )

    def takes(self, name: str) -> bool:
        """Tell whether the argument ``name`` is captured."""
        if not self.has_content or name in self.exclude or name in self.prompts:
            return False
        return self.include is None or name in self.include

    def arguments(
        self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any] | None]:
        """Copy the positional and the keyword arguments of a call. A small constant is its own copy."""
        try:
            copies: Sequence[Any] = args[signature.start :]
            is_small = signature.whole
            if is_small:
                for value in copies:
                    kind = type(value)
                    if (len(value) > SHORT) if kind is str else id(kind) not in FIXED:
                        is_small = False
                        break
            if not is_small:
                copies = signature.positional(args, self.limits)
            if not kwargs or self.include == frozenset():
                return copies, None
            return copies, signature.keywords(kwargs, self.limits)
        except Exception as error:
            faults.failed(f"copy:{self.key}", error)
            return (), NOT_COPIED

    def copied(self, value: Any, copy: Callable[[Any, Limits], Any] = captured) -> Any:
        """Copy ``value``; a failure of ours costs this value only."""
        try:
            return copy(value, self.limits)
        except Exception as error:
            faults.failed(f"copy:{self.key}", error)
            return NOT_COPIED

    def read(self, pairs: Any, roots: Mapping[str, Any]) -> dict[str, Any] | None:
        """Copy the values that are present, by name. ``pairs``: names and their paths; ``roots``: see ``Path.read``."""
        copies: dict[str, Any] = {}
        for name, paths in pairs:
            value = paths[0].read(roots) if len(paths) == 1 else fields.peek(paths, roots)
            if value is ABSENT:
                paths[0].missed += 1
            elif value is not None:
                kind = type(value)
                fixed = len(value) <= SHORT if kind is str else id(kind) in FIXED
                copies[name] = value if fixed else self.copied(value, snapshot)
        return copies or None

    def picked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the captured members of arguments."""
        copies: dict[str, Any] = {}
        for name, path in self.members:
            value = path.read(arguments)
            if value is ABSENT:
                path.missed += 1
            elif value is not None:
                copies[name] = value if id(type(value)) in FIXED else self.copied(value)
        return copies

    def ordered(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return ``inputs`` in the order in which the spec includes them."""
        if not self.order or len(inputs) < 2:
            return inputs
        return {**{name: inputs[name] for name in self.order if name in inputs}, **inputs}

    def row_inputs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the captured values of a row: members of ``row``, or the whole row."""
        copies = self.picked(values) if self.members else {}
        row = values["row"]
        if not self.takes("row"):
            return copies
        if type(row) is not dict:
            return {**copies, "row": self.copied(row)}
        for name, value in list(row.items()):
            if type(name) is str and name not in self.exclude:
                copies[name] = value if id(type(value)) in FIXED else self.copied(value)
        return copies

    def output(self, result: Any, values: Mapping[str, Any] | None = None) -> Any:
        """Copy the result without the separate token lists. ``values``: roots of the paths to parts of the result."""
        if not self.has_result:
            return None
        if self.parts:
            if values is None:
                read = {name: path.read({"result": result}) for name, path in self.parts}
            else:
                read = {name: fields.first((path,), values) for name, path in self.parts}
            copies = {name: self.copied(value) for name, value in read.items() if value is not ABSENT}
            return copies if len(self.parts) > 1 else next(iter(copies.values()), None)
        if type(result) is str and len(result) <= SHORT:
            return result
        try:
            layout = layouts.get(id(type(result)))
            if (layout is None or layout.fields is None) and self.role in ANSWERING and is_plain(result):
                copied = walked(result, type(result), self.limits, self.without, opens=True)
                if self.role == "llm" and copied == {"…": qualified_name(type(result))}:
                    faults.count("drop:answer")
                return copied
            if not self.without:
                return captured(result, self.limits)
            copied = snapshot(result, self.limits, self.without)
        except Exception as error:
            faults.failed(f"copy:{self.key}", error)
            return NOT_COPIED
        if type(copied) is dict:
            for name in self.without:
                copied.pop(name, None)
        return copied
