"""Findings out of many trajectories, step by step: what one shows by itself, what a group shows, what a step shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import msgspec

from autotrace.insight import registry
from autotrace.insight.families.tools import STEP_DECIDES
from autotrace.insight.finding import GROUPS, TRAJECTORIES, Code, Finding, Place
from autotrace.insight.records import History, Hit, Step

PLACES = 3
"""Named of each finding."""
MAX_KINDS = 20
"""Causes and classes of messages that are counted apart in a step."""


class Tally(msgspec.Struct):
    """How much of one code there is in a step, or in several."""

    trajectories: int = 0
    """Or groups, if the code counts those."""
    seconds: float | None = None
    kinds: dict[str, int] = {}
    """Causes and classes of messages -> how many."""
    places: list[Place] = []
    """At most ``PLACES``, unless all were asked for."""

    @classmethod
    def of(cls, step: Step, hits: list[Hit], unit: str, every: bool) -> Tally:
        """The hits of one step, that reach the code's threshold; ``every``: with all places."""
        kinds = Counter(hit.kind for hit in hits if hit.kind)
        seconds = [hit.seconds for hit in hits if hit.seconds is not None]
        return cls(
            len({hit.record.group if unit == GROUPS else hit.record.trace_id for hit in hits}),
            sum(seconds) if seconds else None,
            dict(kinds.most_common(MAX_KINDS)),
            [_place(step, hit) for hit in hits] if every else _places(step, hits),
        )


def _places(step: Step, hits: list[Hit]) -> list[Place]:
    """Of different trajectories, and of different causes where there are some."""
    kinds = Counter(hit.kind for hit in hits)
    ordered = sorted(hits, key=lambda hit: (-(hit.seconds or 0.0), -kinds[hit.kind]))
    by_trace: dict[str, Hit] = {}
    seen: set[str] = set()
    for hit in ordered:
        if hit.kind not in seen and hit.record.trace_id not in by_trace:
            seen.add(hit.kind)
            by_trace[hit.record.trace_id] = hit
    for hit in ordered:
        by_trace.setdefault(hit.record.trace_id, hit)
    return [_place(step, hit) for hit in [*by_trace.values()][:PLACES]]


def _place(step: Step, hit: Hit) -> Place:
    return Place(hit.record.trace_id, step.number, hit.turn, hit.token, hit.note)


def counts(hits: Iterable[Hit]) -> dict[str, int]:
    """Code -> how many trajectories have it."""
    found: dict[str, set[str]] = {}
    for hit in hits:
        found.setdefault(hit.code, set()).add(hit.record.trace_id)
    return {code: len(ids) for code, ids in found.items()}


class StepFound(msgspec.Struct):
    """What was found in one step."""

    step: int | None
    trajectories: int
    wall_s: float
    groups: int = 0
    tallies: dict[str, Tally] = {}
    """By code."""


class Diagnosis:
    """Takes steps in order and keeps only what findings are made of. A step that is given again replaces what was found
    in it before."""

    def __init__(self, every: Collection[str] = ()) -> None:
        """``every``: codes whose findings have all their places."""
        self._every = frozenset(every)
        self._steps: dict[int | None, StepFound] = {}
        self._history = History()
        self._codes = registry.codes()

    @property
    def trajectories(self) -> int:
        """That were looked at."""
        return sum(found.trajectories for found in self._steps.values())

    @property
    def numbers(self) -> Collection[int | None]:
        """Steps that were looked at."""
        return self._steps.keys()

    def put(self, found: StepFound) -> None:
        """What was found in a step before."""
        self._steps[found.step] = found

    def of_step(self, number: int | None) -> StepFound:
        """What was found in a step. Raises ``KeyError``."""
        return self._steps[number]

    def add(self, step: Step) -> list[Hit]:
        """Look at a step; what was found in it."""
        by_code: dict[str, list[Hit]] = {}
        for hit in hits(step, self._history):
            by_code.setdefault(hit.code, []).append(hit)
        found = StepFound(step.number, len(step.records), step.wall_s, len(step.groups))
        kept: list[Hit] = []
        for name, those in by_code.items():
            code = self._code(name)
            concerned = len({hit.record.trace_id for hit in those})
            if concerned < max(code.count, code.share * len(step.records)):
                continue
            found.tallies[name] = Tally.of(step, those, code.unit, name in self._every)
            kept += those
        self.put(found)
        return kept

    def findings(self, step: int | None = None) -> list[Finding]:
        """All of them, or those of one step, most costly first."""
        numbers = sorted(self._steps, key=lambda number: (number is None, number or 0)) if step is None else [step]
        steps = [self._steps[number] for number in numbers]
        by_code: dict[str, list[tuple[int | None, Tally]]] = {}
        for found in steps:
            for name, tally in found.tallies.items():
                by_code.setdefault(name, []).append((found.step, tally))
        of = {
            TRAJECTORIES: sum(found.trajectories for found in steps),
            GROUPS: sum(found.groups for found in steps),
        }
        wall_s = sum(found.wall_s for found in steps)
        made = [self._finding(name, tallies, of[self._code(name).unit], wall_s) for name, tallies in by_code.items()]
        return sorted(made, key=lambda finding: (-finding.cost, finding.code))

    def _finding(self, name: str, tallies: list[tuple[int | None, Tally]], of: int, wall_s: float) -> Finding:
        code = self._code(name)
        concerned = sum(tally.trajectories for _, tally in tallies)
        waited = [tally.seconds for _, tally in tallies if tally.seconds is not None]
        kinds: Counter[str] = Counter()
        for _, tally in tallies:
            kinds.update(tally.kinds)
        cost = code.weight * concerned / max(1, of)
        if waited and wall_s:
            cost = max(cost, code.weight * min(1.0, sum(waited) / wall_s))
        return Finding(
            code=name,
            title=code.title,
            what=code.what,
            trajectories=concerned,
            of=of,
            cost=cost,
            since_step=tallies[0][0],
            steps=len(tallies),
            why=code.why,
            remedy=code.remedy,
            places=[place for _, tally in tallies for place in tally.places][: None if name in self._every else PLACES],
            seconds=round(sum(waited), 3) if waited else None,
            notes=dict(kinds.most_common(5)),
            unit=code.unit,
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
        for of_group in registry.OF_GROUP:
            yield from registry.tried(of_group, group, step)
    for of_step in registry.OF_STEP:
        yield from registry.tried(of_step, step, history)
