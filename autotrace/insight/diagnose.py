"""Findings out of many trajectories, step by step: what one shows by itself, what a group shows, what a step shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autotrace.insight import registry
from autotrace.insight.families.tools import STEP_DECIDES
from autotrace.insight.finding import Code, Finding, Place
from autotrace.insight.records import History, Hit, Step

PLACES = 3
"""Named of each finding."""
MAX_KINDS = 200
"""Causes and classes of messages that are counted apart."""


@dataclass
class _Tally:
    """What was found of one code so far."""

    trajectories: int = 0
    steps: int = 0
    since: int | None = None
    seconds: float | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    places: list[Place] = field(default_factory=list)

    def add(self, step: Step, hits: list[Hit]) -> None:
        """The hits of one step, that reach the code's threshold."""
        self.trajectories += len({hit.record.trace_id for hit in hits})
        self.since = step.number if self.steps == 0 else self.since
        self.steps += 1
        for hit in hits:
            if hit.kind and (hit.kind in self.kinds or len(self.kinds) < MAX_KINDS):
                self.kinds[hit.kind] += 1
            if hit.seconds is not None:
                self.seconds = (self.seconds or 0.0) + hit.seconds
        self._name(step, hits)

    def _name(self, step: Step, hits: list[Hit]) -> None:
        """Three places: of different trajectories, and of different causes where there are some."""
        kinds = Counter(hit.kind for hit in hits)
        named = {place.trace_id for place in self.places}
        seen: Counter[str] = Counter()
        ordered = sorted(hits, key=lambda hit: (-(hit.seconds or 0.0), -kinds[hit.kind]))
        for again in (False, True):
            for hit in ordered:
                if len(self.places) >= PLACES:
                    return
                if hit.record.trace_id in named or (seen[hit.kind] and not again):
                    continue
                seen[hit.kind] += 1
                named.add(hit.record.trace_id)
                self.places.append(Place(hit.record.trace_id, step.number, hit.turn, hit.token, hit.note))


class Diagnosis:
    """Takes steps in order, each once, and keeps only what findings are made of."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}
        self._history = History()
        self._codes = registry.codes()
        self.trajectories = 0
        self.steps = 0
        self._wall_s = 0.0
        self.codes_of: dict[int | None, Counter[str]] = {}
        """Step -> code -> trajectories, of what was found in each."""

    def add(self, step: Step) -> list[Hit]:
        """Look at a step; what was found in it."""
        self.trajectories += len(step.records)
        self.steps += 1
        self._wall_s += step.wall_s
        by_code: dict[str, list[Hit]] = {}
        for hit in hits(step, self._history):
            by_code.setdefault(hit.code, []).append(hit)
        kept: list[Hit] = []
        for name, found in by_code.items():
            code = self._code(name)
            concerned = len({hit.record.trace_id for hit in found})
            if concerned < max(code.count, code.share * len(step.records)):
                continue
            self._tallies.setdefault(name, _Tally()).add(step, found)
            self.codes_of.setdefault(step.number, Counter())[name] = concerned
            kept += found
        return kept

    def findings(self) -> list[Finding]:
        """All of them, most costly first."""
        made = [self._finding(name, tally) for name, tally in self._tallies.items()]
        return sorted(made, key=lambda finding: (-finding.cost, finding.code))

    def _finding(self, name: str, tally: _Tally) -> Finding:
        code = self._code(name)
        share = tally.trajectories / max(1, self.trajectories)
        cost = code.weight * share
        if tally.seconds is not None and self._wall_s:
            cost = max(cost, code.weight * min(1.0, tally.seconds / self._wall_s))
        return Finding(
            code=name,
            title=code.title,
            what=code.what,
            trajectories=tally.trajectories,
            of=self.trajectories,
            cost=cost,
            since_step=tally.since,
            steps=tally.steps,
            why=code.why,
            remedy=code.remedy,
            places=tuple(tally.places),
            seconds=None if tally.seconds is None else round(tally.seconds, 3),
            notes=dict(tally.kinds.most_common(5)),
        )

    def _code(self, name: str) -> Code:
        """Of a detector that is not installed here, its name alone is known."""
        return self._codes.get(name) or Code(name, name, "", "", "", "", 0.5)


def hits(step: Step, history: History) -> Iterator[Hit]:
    """Everything that is found in a step, before thresholds."""
    for record in step.records:
        for mark in record.profile.marks:
            if mark.code not in STEP_DECIDES:
                yield Hit(mark.code, record, mark.turn, mark.token, mark.note, mark.kind)
    for group in step.groups:
        for of_group in registry.of_group():
            yield from of_group(group, step)
    for of_step in registry.of_step():
        yield from of_step(step, history)


def diagnose(steps: Iterable[Step]) -> list[Finding]:
    """The findings of ``steps``, which come in order."""
    diagnosis = Diagnosis()
    for step in steps:
        diagnosis.add(step)
    return diagnosis.findings()
