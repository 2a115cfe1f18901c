"""What this process knows of one target: its paths, limits, counters, and how its calls become events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotrace.record import faults, fields
from autotrace.record.binder import Binder
from autotrace.record.fields import ABSENT
from autotrace.record.snapshot import Limits, snapshot
from autotrace.spec.plan import Settings, Target

MAX_FAULTS = 10
"""Internal failures after which a target is switched off."""
_ROOT_NAMES = frozenset({"self", "result", "item", "kwargs"})


class Probe:
    """One target in this process. ``off`` makes its wrappers pass through."""

    __slots__ = (
        "attributes",
        "binders",
        "calls",
        "content",
        "counted",
        "exclude",
        "facts",
        "faults",
        "final",
        "include",
        "keeps",
        "key",
        "label",
        "late",
        "limits",
        "logprobs",
        "mask",
        "off",
        "on_fault",
        "prompt",
        "response",
        "role",
        "root",
        "subclasses",
    )

    def __init__(self, target: Target, settings: Settings) -> None:
        self.key = target.key
        self.label = target.label
        self.role = target.role
        self.root = target.role == "trajectory"
        self.subclasses = target.subclasses
        self.counted = target.mode == "count"
        self.off = False
        self.calls = 0
        self.faults = 0
        self.on_fault: Callable[[Probe], None] | None = None
        self.limits = Limits(settings.max_depth, settings.max_items)
        self.content = settings.content != "none"
        self.include = None if target.include is None else frozenset(target.include)
        self.exclude = frozenset(target.exclude) | {"self", "cls"}
        tokens = fields.compiled(target.tokens)
        table = dict(tokens)
        self.prompt = table.get("prompt", ())
        self.response = table.get("response", ())
        self.logprobs = table.get("logprobs", ()) if settings.logprobs else ()
        self.mask = table.get("mask", ())
        pairs = fields.compiled(target.attributes)
        self.late = tuple(pair for pair in pairs if any(path.root in ("result", "item") for path in pair[1]))
        self.attributes = tuple(pair for pair in pairs if pair not in self.late)
        self.facts = fields.compiled(target.facts)
        self.final = tuple(fields.Path(text) for text in target.final)
        later = [path for _, paths in (*self.facts, *self.late) for path in paths]
        later += [*self.response, *self.logprobs, *self.mask]
        self.keeps = any(path.root not in ("result", "item") for path in later)
        """Some path needs the arguments when the call ends."""
        self.binders: dict[int, Binder] = {}

    def binder(self, function: Any, method: bool | None = None) -> Binder:
        """The binder of ``function``, made at the first call of each override."""
        code = getattr(function, "__code__", function)
        binder = self.binders.get(id(code))
        if binder is None:
            binder = self.binders[id(code)] = Binder(function, method)
            if binder.code is None:
                binder.code = function
        return binder

    def inputs(self, known: Mapping[str, Any], method: bool, first: str) -> dict[str, Any]:
        """Copies of the arguments to be captured."""
        if not self.content:
            return {}
        include, exclude, limits = self.include, self.exclude, self.limits
        skip = first if method else None
        prompt = self.prompt[0].text if self.prompt else None
        return {
            name: snapshot(value, limits)
            for name, value in known.items()
            if name not in exclude and name != skip and name != prompt and (include is None or name in include)
        }

    def output(self, result: Any) -> Any:
        """Copy of the result, without the token lists that travel by themselves."""
        if not self.content or (self.include is not None and "result" not in self.include) or "result" in self.exclude:
            return None
        copied = snapshot(result, self.limits)
        if isinstance(copied, dict):
            for paths in (self.response, self.logprobs, self.mask):
                for path in paths:
                    if path.root == "result" and len(path.steps) == 1:
                        copied.pop(path.steps[0][0], None)
            for name in self.exclude:
                if name.startswith("result."):
                    copied.pop(name[7:], None)
        return copied

    def read(self, pairs: Any, known: Mapping[str, Any]) -> dict[str, Any] | None:
        """Values of ``{name: paths}`` that are present."""
        found: dict[str, Any] = {}
        for name, paths in pairs:
            value = fields.first(paths, known)
            if value is not ABSENT and value is not None:
                found[name] = snapshot(value, self.limits)
        return found or None

    def trouble(self, place: str, error: BaseException) -> None:
        """A failure of ours while recording this target: count it, and give up on the target after ``MAX_FAULTS``."""
        faults.failed(f"{place}:{self.key}", error)
        self.faults += 1
        if self.faults == MAX_FAULTS:
            self.off = True
            if self.on_fault is not None:
                try:
                    self.on_fault(self)
                except Exception as again:
                    faults.failed("report", again)
