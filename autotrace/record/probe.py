"""Hold the state of a target in this process: paths, copies, counters, and the decisions that follow from the spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from autotrace.config.plan import Settings, Target
from autotrace.record import errors, faults, fields, formulas
from autotrace.record.arguments import Signature
from autotrace.record.capture import CapturedValues
from autotrace.record.follower import Follower
from autotrace.record.sampling import Decision
from autotrace.record.target_paths import TargetPaths

MAX_FAULTS = 10
"""Limits the failures in a row, in one call or in successive calls; after so many a target is switched off."""
MAX_SIGNATURES = 1_000
"""Limits the functions remembered per target."""


class CallCounts:
    """Count the calls of a target in this process."""

    __slots__ = ("calls", "ended", "faults", "last_failed")

    def __init__(self) -> None:
        self.calls = 0
        self.ended = 0
        """Counts the calls whose result paths were read."""
        self.faults = 0
        """Counts failures without a call in between."""
        self.last_failed = 0
        """Holds the number of the last call with a failure."""

    def failed(self) -> int:
        """Count a failure of ours in the newest call, and return the number of failures in a row."""
        self.faults = 1 if self.calls > self.last_failed + 1 else self.faults + 1
        self.last_failed = self.calls
        return self.faults


class Probe:
    """Hold a target of this process. ``is_off`` makes the target's wrappers pass through."""

    __slots__ = (
        "__weakref__",
        "capture",
        "counts",
        "decide",
        "final_test",
        "follower",
        "has_met_outside",
        "has_several_names",
        "has_subclasses",
        "is_counted",
        "is_followed",
        "is_group",
        "is_grouping",
        "is_inner",
        "is_model",
        "is_off",
        "is_result_kept",
        "is_returned",
        "is_root",
        "is_shipped",
        "is_simple",
        "items",
        "key",
        "label",
        "local_signatures",
        "named",
        "needs",
        "needs_arguments",
        "needs_arguments_later",
        "needs_items",
        "needs_parent_check",
        "needs_result",
        "needs_tool_name",
        "on_fault",
        "paths",
        "plain",
        "role",
        "row",
        "sampling",
        "signatures",
        "watch",
    )  # fmt: skip

    def __init__(self, target: Target, settings: Settings, is_returned: bool = False) -> None:
        self.is_returned = is_returned
        """Tells whether this is a row that a call returned: facts are about that row, and ``i`` is the row's number."""
        self.row: Probe | None = None
        """Records the rows of a batch, or of a call that returns rows."""
        rows = target.rows or target.chains
        if target.rows:
            self.row = Probe(replace(target, rows=()), settings)
            target = formulas.of_the_batch(target)
        elif target.chains:
            target, of_a_row = formulas.of_the_chains(target)
            self.row = Probe(of_a_row, settings, is_returned=True)
        self.paths = paths = TargetPaths.of_target(target, rows, settings)
        returns_rows = self.row is not None and self.row.is_returned
        self.capture = capture = CapturedValues.of_target(target, settings, paths.prompt, returns_rows)
        self.counts = CallCounts()
        self.key, self.label, self.role = target.key, target.label, target.role
        self.items, self.sampling = target.items, settings.sampling
        errors.outcomes.update(target.outcomes)
        self._decisions(target, paths, capture)
        self.is_off = False
        self.has_met_outside = False
        """Tells whether ``orphans.met`` got a call."""
        self.decide: Decision | None = None
        """Holds ``calls.decide`` for a row that is a trajectory."""
        self.on_fault: Callable[[Probe], None] | None = None
        self.watch: Callable[[Any, tuple[Any, ...]], None] | None = None
        self.follower: Follower | None = None
        self.final_test: Callable[[Any], Any] | None = None
        """Holds the function of ``final_reader`` for the chunks of every further call."""
        self.signatures: dict[Any, Signature] = {}
        """Map a function to the signature: wrappers of the same decorator share code, but not names."""
        self.plain: dict[Any, Signature] = {}
        """Holds the ``signatures`` of functions whose arguments are all captured, if the target is ``is_simple``."""
        self.local_signatures: WeakKeyDictionary[Any, Signature] = WeakKeyDictionary()
        """Holds signatures of functions defined inside functions, which the host may drop."""
        self.named = self._named(target)

    def _decisions(self, target: Target, paths: TargetPaths, capture: CapturedValues) -> None:
        """Decide from the spec what a call of the target needs."""
        self.is_root = target.role == "trajectory"
        self.is_model = target.role == "llm"
        self.is_group = target.group
        """Tells whether trajectories inside a call are numbered."""
        self.is_grouping = target.role == "trainer" or target.group
        """Tells whether a call passes attributes on to the trajectories inside."""
        self.is_counted = target.mode == "count"
        self.is_followed = self.is_model or bool(target.items)
        """Tells whether the call goes on after returning an iterator."""
        self.is_inner = target.inside
        self.is_shipped = not target.where or target.is_shipped
        self.has_subclasses = target.subclasses
        self.has_several_names = any("*" in name for name in target.names)
        self.needs_parent_check = bool(paths.of or self.has_subclasses or self.is_inner or self.is_counted)
        """Tells whether some calls inside a recorded call are not recorded."""
        self.needs_tool_name = target.role == "tool" and "tool_name" not in target.attributes and target.label is None
        """Tells whether a tool without another name takes the name of its object."""
        later = (*paths.read_at_the_end(), *(path for _, path in capture.parts))
        self.needs = tuple({root for path in later for root in path.roots})
        """Names the arguments that are read when the call ends."""
        self.needs_arguments_later = bool(paths.batch or paths.rows) or not {*self.needs} <= {"result", "item"}
        """Tells whether an object of the host's is needed until the call ends."""
        read = (paths.attributes, paths.prompt, capture.members, paths.id, paths.of)
        self.needs_arguments = self.needs_arguments_later or any(read)
        """Tells whether some path needs the arguments at all."""
        tokens = (paths.response, paths.logprobs, paths.mask)
        self.needs_result = any((*tokens, paths.late, paths.facts, self.row, paths.has_late_id, capture.parts))
        self.is_result_kept = capture.has_result and not self.needs_result
        """Tells whether a small result is recorded unchanged, and no path reads the result."""
        self.needs_items = not paths.final and (capture.has_result or self.needs_result)
        """Tells whether the yielded values of a generator or stream are collected."""
        more = (self.is_root, self.is_counted, self.is_inner, self.needs_arguments, self.is_grouping, target.items)
        self.is_simple = capture.is_whole and not any(more)
        """Tells whether a call inside another call is recorded with the passed arguments, and nothing else."""

    def forked(self) -> None:
        """Count anew in a forked child: counters are summed over processes."""
        self.counts = CallCounts()
        for _, path, _ in self.named:
            path.missed = 0
        if self.row is not None:
            self.row.forked()

    def _named(self, target: Target) -> tuple[tuple[str, fields.Path, bool], ...]:
        """List the user's paths, as ``facts.reward: result.reward (mine.yaml:4)``; true: read after the call."""
        named = [*self.paths.by_key()]
        named += [("capture.include", (path,), False) for _, path in self.capture.members]
        named += [("capture.include", (path,), True) for _, path in self.capture.parts]
        return tuple(
            (f"{key}: {' or '.join(path.text for path in paths)} ({target.places[key]})", paths[0], at_end)
            for key, paths, at_end in named
            if paths and key in target.places and not any(map(formulas.is_optional, paths))
        )

    def absences(self) -> dict[str, tuple[int, int]]:
        """Count for each path in ``named`` (calls without a value, calls that were read)."""
        rows = {} if self.row is None else self.row.absences()
        counts = self.counts
        own = {name: (path.missed, counts.ended if at_end else counts.calls) for name, path, at_end in self.named}
        return {**rows, **{name: of for name, of in own.items() if of[1]}}

    def signature(self, function: Any) -> Signature:
        """Return the signature of ``function``, created at the first call of each override."""
        signature = self.signatures.get(function) or self.local_signatures.get(function)
        if signature is not None:
            return signature
        if len(self.signatures) > MAX_SIGNATURES:  # modules loaded again and again: drop the old functions
            self.signatures.clear()
            self.plain.clear()
        signature = Signature(function, self.capture.takes, self.capture.is_whole)
        signature.reads_name = self.needs_tool_name and signature.method
        signature.unwatched = self.watch is not None
        if "<locals>" in signature.name:
            self.local_signatures[function] = signature
        else:
            self.signatures[function] = signature
            if self.is_simple and signature.whole:
                self.plain[function] = signature
        return signature

    def final_reader(self, item: Any) -> Callable[[Any], Any]:
        """Return the test for the final item, for items like ``item``; cheap enough to call for every chunk."""
        self.final_test = fields.reader(self.paths.final, item)
        return self.final_test

    def tried(self, site: str, step: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``step(*arguments)``; None after a failure of ours, which is counted."""
        try:
            return step(*arguments)
        except Exception as error:
            self.trouble(site, error)
            return None

    def trouble(self, site: str, error: Exception) -> None:
        """Count a failure of autotrace; switch the target off after ``MAX_FAULTS`` failures in a row."""
        faults.failed(f"{site}:{self.key}", error)
        if self.counts.failed() == MAX_FAULTS:
            self.is_off = True
            if self.on_fault is not None:
                try:
                    self.on_fault(self)
                except Exception as again:
                    faults.failed("report", again)
