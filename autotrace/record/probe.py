"""Hold the state of a target in this process: paths, limits, counters, and the way from calls to events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from autotrace.config.plan import Settings, Target
from autotrace.record import errors, faults, fields, formulas
from autotrace.record.arguments import Signature
from autotrace.record.fields import ABSENT, is_late, last_word
from autotrace.record.follower import Follower
from autotrace.record.object_fields import ANSWERING, is_plain, layouts, qualified_name
from autotrace.record.pickled import captured
from autotrace.record.sampling import Decision
from autotrace.record.snapshot import FIXED, SHORT, Limits, snapshot, walked

MAX_FAULTS = 10
"""Counts the internal failures in a row, one a call, after which a target is switched off."""
NOT_COPIED = {"…": "could not be copied"}
"""Replaces a value that raised when the value was read."""
MORE_DEPTH = 3
"""Counts the levels copied of an LLM call's values beyond the levels of other calls."""
MAX_YIELDED = 1_048_576
"""Counts the items of a row's token list that a generator yields."""
MAX_SIGNATURES = 1_000
"""Counts the functions remembered per target."""


class Probe:
    """Holds a target of this process. ``is_off`` makes the target's wrappers pass through."""

    __slots__ = (
        "__weakref__", "attributes", "batch", "calls", "decide", "dropped", "ended", "exclude", "facts", "faults",
        "faulty", "final", "final_test", "follower", "has_content", "has_late_id", "has_met_outside", "has_result",
        "has_several_names", "has_subclasses", "id", "include", "is_counted", "is_followed", "is_group", "is_grouping",
        "is_inner", "is_model", "is_off", "is_result_kept", "is_returned", "is_root", "is_shipped", "is_simple",
        "is_whole", "items", "key", "label", "late", "late_prompt", "limits", "logprobs", "mask", "members", "named",
        "needs", "needs_arguments", "needs_arguments_later", "needs_items", "needs_parent_check", "needs_result",
        "needs_tool_name", "of", "of_key", "on_fault", "order", "parts", "passing", "plain", "prompt", "response",
        "role", "row", "rows", "sampling", "signatures", "stated", "watch", "yields",
    )  # fmt: skip

    def __init__(self, target: Target, settings: Settings) -> None:
        self.is_returned = False
        """Tells whether this is a row that a call returned: facts are about that row, and ``i`` is the row's number."""
        self.row: Probe | None = None
        """Records the rows of a batch, or of a call that returns rows."""
        self.rows = formulas.values_of(target.rows)
        if target.rows:
            self.row = Probe(replace(target, rows=()), settings)
            target = formulas.of_the_batch(target)
        elif target.chains:
            self.rows = formulas.values_of(target.chains)
            target, row = formulas.of_the_chains(target)
            self.row = Probe(row, settings)
            self.row.is_returned = True
        self.decide: Decision | None = None
        """Holds ``calls.decide`` for a row that is a trajectory."""
        self.id = formulas.values_of(target.id)
        self.of = formulas.values_of(target.of)
        self.of_key = formulas.compiled(target.of_key)
        self.is_group = target.group
        """Tells whether trajectories inside a call are numbered."""
        self.is_grouping = target.role == "trainer" or target.group
        """Tells whether a call passes attributes on to the trajectories inside."""
        self.has_late_id = any(is_late(path) for path in self.id)
        self.key = target.key
        self.label = target.label
        self.role = target.role
        self.is_root = target.role == "trajectory"
        self.has_subclasses = target.subclasses
        self.has_several_names = any("*" in name for name in target.names)
        self.is_counted = target.mode == "count"
        self.is_off = False
        self.calls = 0
        self.ended = 0
        """Counts the calls whose result paths were read."""
        self.faults = 0
        """Counts failures in a row."""
        self.faulty = 0
        self.on_fault: Callable[[Probe], None] | None = None
        self.watch: Callable[[Any, tuple[Any, ...]], None] | None = None
        # A tool call's function is seven deep in a chat completion.
        depth = settings.max_depth + (MORE_DEPTH if target.role == "llm" else 0)
        self.limits = Limits(depth, settings.max_items, settings.copied)
        returns_rows = self.row is not None and self.row.is_returned
        self.yields = Limits(depth, MAX_YIELDED, settings.copied) if returns_rows else self.limits
        """Limits the yielded values; the rows of a trajectory are read from the copy."""
        self.has_content = settings.content != "none"
        includes_result = target.include is None or "result" in target.include
        paths = [formulas.value_of(name) for name in target.include or () if not name.isidentifier()]
        shown = [(last_word(path.text), path) for path in paths if self.has_content]
        self.parts = tuple(pair for pair in shown if is_late(pair[1]))
        """Lists the captured parts of the result by their last word, instead of the whole result."""
        self.has_result = self.has_content and (includes_result or bool(self.parts)) and "result" not in target.exclude
        self.include = None if target.include is None else frozenset(target.include)
        self.order = tuple(name if name.isidentifier() else last_word(name) for name in target.include or ())
        """Names the captured values in the order of the spec."""
        self.members = tuple(pair for pair in shown if not is_late(pair[1]))
        """Lists the captured members of arguments, under their own names: ``request.messages``."""
        self.follower: Follower | None = None
        self.exclude = frozenset(target.exclude) | {"self", "cls"}
        tokens = formulas.compiled(target.tokens)
        table = dict(tokens)
        prompt = table.get("prompt", ())
        self.prompt = tuple(path for path in prompt if not is_late(path))
        self.late_prompt = tuple(path for path in prompt if is_late(path))
        """Holds prompt paths for a prompt that comes only with the result (an agent's output)."""
        self.response = table.get("response", ())
        self.logprobs = table.get("logprobs", ()) if settings.logprobs else ()
        self.mask = table.get("mask", ())
        self.dropped = self._dropped(target)
        pairs = formulas.compiled(target.attributes)
        self.late = tuple(pair for pair in pairs if any(map(is_late, pair[1])))
        self.attributes = tuple(pair for pair in pairs if pair not in self.late)
        self.facts = formulas.compiled(target.facts)
        self.stated = formulas.without_result(target.facts)
        """Holds facts that need no result: a failed call states the facts, too."""
        self.final = formulas.values_of(target.final)
        self.final_test: Callable[[Any], Any] | None = None
        """Holds the function of ``final_reader`` for the chunks of every further call."""
        later = [path for _, paths in (*self.facts, *self.late) for path in paths]
        later += [*self.response, *self.logprobs, *self.mask, *self.late_prompt, *(path for _, path in self.parts)]
        later += self.id if self.has_late_id else ()
        later += [path for _, paths in self.of_key for path in paths]
        self.needs_tool_name = target.role == "tool" and "tool_name" not in target.attributes and target.label is None
        """Tells whether a tool without another name takes the name of its object."""
        self.batch = dict(formulas.compiled(target.batch))
        self.sampling = settings.sampling
        errors.outcomes.update(target.outcomes)
        roots = {root for path in later for root in path.roots}
        self.needs = tuple(roots)
        """Names the arguments that are read when the call ends."""
        self.needs_arguments_later = bool(self.batch or self.rows) or not roots <= {"result", "item"}
        """Tells whether an object of the host's is needed until the call ends."""
        read = (self.attributes, self.prompt, self.members, self.id, self.of)
        self.needs_arguments = self.needs_arguments_later or any(read)
        """Tells whether some path needs the arguments at all."""
        self.needs_result = any(
            (self.response, self.logprobs, self.mask, self.late, self.facts, self.row, self.has_late_id, self.parts)
        )
        self.is_result_kept = self.has_result and not self.needs_result
        """Tells whether a small result is recorded unchanged, and no path reads the result."""
        self.needs_items = not self.final and (self.has_result or self.needs_result)
        """Tells whether the yielded values of a generator or stream are collected."""
        self.is_model = target.role == "llm"
        self.items = target.items
        self.is_followed = self.is_model or bool(target.items)
        """Tells whether the call goes on after returning an iterator."""
        self.is_inner = target.inside
        self.is_shipped = not target.where or target.is_shipped
        self.needs_parent_check = bool(self.of or self.has_subclasses or self.is_inner or self.is_counted)
        """Tells whether some calls inside a recorded call are not recorded."""
        self.has_met_outside = False
        """Tells whether ``orphans.met`` got a call."""
        self.is_whole = self.has_content and self.include is None and not target.exclude and not self.prompt
        """Tells whether every argument is captured."""
        more = (self.is_root, self.is_counted, self.is_inner, self.needs_arguments, self.is_grouping, target.items)
        self.is_simple = self.is_whole and not any(more)
        """Tells whether a call inside another call is recorded with the passed arguments, and nothing else."""
        self.plain: dict[Any, Signature] = {}
        """Holds the ``signatures`` of functions whose arguments are all captured, if the target is ``is_simple``."""
        self.signatures: dict[Any, Signature] = {}
        """Map a function to the signature: wrappers of the same decorator share their code, not their names."""
        self.named = self._named(target)
        self.passing: WeakKeyDictionary[Any, Signature] = WeakKeyDictionary()
        """Holds signatures of functions defined inside functions, which the host may drop."""

    def forked(self) -> None:
        """Count anew in a forked child: counters are summed over processes."""
        self.calls = self.ended = self.faults = self.faulty = 0
        for _, path, _ in self.named:
            path.missed = 0
        if self.row is not None:
            self.row.forked()

    def _named(self, target: Target) -> tuple[tuple[str, fields.Path, bool], ...]:
        """List the user's paths, as ``facts.reward: result.reward (mine.yaml:4)``; true: read after the call."""
        prompt = self.late_prompt or self.prompt
        tables: dict[str, tuple[tuple[fields.Path, ...], bool]] = {
            "rows": (self.rows, False),
            "chains": (self.rows, True),
            "id": (self.id, self.has_late_id),
            "of": (self.of, False),
            "tokens.prompt": (prompt, bool(self.late_prompt)),
            "tokens.response": (self.response, True),
            "tokens.logprobs": (self.logprobs, True),
            "tokens.mask": (self.mask, True),
            **{f"attributes.{name}": (paths, False) for name, paths in self.attributes},
            **{f"attributes.{name}": (paths, True) for name, paths in self.late},
            **{f"facts.{name}": (paths, True) for name, paths in self.facts},
            **{f"of.{name}": (paths, True) for name, paths in self.of_key},
        }
        named = [(key, *table) for key, table in tables.items()]
        named += [("capture.include", (path,), False) for _, path in self.members]
        named += [("capture.include", (path,), True) for _, path in self.parts]
        return tuple(
            (f"{key}: {' or '.join(path.text for path in paths)} ({target.places[key]})", paths[0], at_end)
            for key, paths, at_end in named
            if paths and key in target.places and not any(map(formulas.is_optional, paths))
        )

    def absences(self) -> dict[str, tuple[int, int]]:
        """Count for each path in ``named`` (calls without a value, calls that were read)."""
        rows = {} if self.row is None else self.row.absences()
        own = {name: (path.missed, self.ended if at_end else self.calls) for name, path, at_end in self.named}
        return {**rows, **{name: counts for name, counts in own.items() if counts[1]}}

    def _dropped(self, target: Target) -> tuple[str, ...]:
        """Name the fields of the result that are not captured: token lists travel separately, others were excluded."""
        names = [name[7:] for name in target.exclude if name.startswith("result.")]
        for paths in target.tokens.values():
            names += [text[7:] for text in paths if text.startswith("result.") and text.count(".") == 1]
        return tuple(names)

    def signature(self, function: Any) -> Signature:
        """Return the signature of ``function``, created at the first call of each override."""
        signature = self.passing.get(function)
        if signature is not None:
            return signature
        if len(self.signatures) > MAX_SIGNATURES:  # modules loaded again and again: drop the old functions
            self.signatures.clear()
            self.plain.clear()
        signature = Signature(function, self.takes, self.is_whole)
        signature.reads_name = self.needs_tool_name and signature.method
        signature.unwatched = self.watch is not None
        if self.is_simple and signature.whole and "<locals>" not in signature.name:
            self.plain[function] = signature
        if "<locals>" in signature.name:
            self.passing[function] = signature
        else:
            self.signatures[function] = signature
        return signature

    def takes(self, name: str) -> bool:
        """Tells whether the argument ``name`` is captured (the prompt's token ids travel separately)."""
        if not self.has_content or name in self.exclude or (self.prompt and name == self.prompt[0].text):
            return False
        return self.include is None or name in self.include

    def picked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the captured members of arguments."""
        copies: dict[str, Any] = {}
        for name, path in self.members:
            value = path.read(arguments)
            if value is ABSENT:
                path.missed += 1
            elif value is not None:
                copies[name] = value if id(type(value)) in FIXED else self.captured(value)
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
        if not self.has_content or "row" in self.exclude or not (self.include is None or "row" in self.include):
            return copies
        if type(row) is not dict:
            return {**copies, "row": self.captured(row)}
        for name, value in list(row.items()):
            if type(name) is str and name not in self.exclude:
                copies[name] = value if id(type(value)) in FIXED else self.captured(value)
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
            copies = {name: self.captured(value) for name, value in read.items() if value is not ABSENT}
            return copies if len(self.parts) > 1 else next(iter(copies.values()), None)
        if type(result) is str and len(result) <= SHORT:
            return result
        try:
            layout = layouts.get(id(type(result)))
            if (layout is None or layout.fields is None) and self.role in ANSWERING and is_plain(result):
                copied = walked(result, type(result), self.limits, self.dropped, opens=True)
                if self.is_model and copied == {"…": qualified_name(type(result))}:
                    faults.count("drop:answer")
                return copied
            if not self.dropped:
                return captured(result, self.limits)
            copied = snapshot(result, self.limits, self.dropped)
        except Exception as error:
            faults.failed(f"copy:{self.key}", error)
            return NOT_COPIED
        if type(copied) is dict:
            for name in self.dropped:
                copied.pop(name, None)
        return copied

    def captured(self, value: Any, copy: Callable[[Any, Limits], Any] = captured) -> Any:
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
                copies[name] = value if fixed else self.captured(value, snapshot)
        return copies or None

    def final_reader(self, item: Any) -> Callable[[Any], Any]:
        """Return the test for the final item, for items like ``item``; cheap enough to call for every chunk."""
        self.final_test = fields.reader(self.final, item)
        return self.final_test

    def tried(self, site: str, step: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``step(*arguments)``; None after a failure of ours, which is counted."""
        try:
            return step(*arguments)
        except Exception as error:
            self.trouble(site, error)
            return None

    def trouble(self, site: str, error: Exception) -> None:
        """Count a failure of autotrace; switch the target off after ``MAX_FAULTS`` calls in a row that failed."""
        faults.failed(f"{site}:{self.key}", error)
        self.faults = 1 if self.calls > self.faulty + 1 else self.faults + 1
        self.faulty = self.calls
        if self.faults == MAX_FAULTS:
            self.is_off = True
            if self.on_fault is not None:
                try:
                    self.on_fault(self)
                except Exception as again:
                    faults.failed("report", again)
