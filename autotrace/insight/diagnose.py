"""Find faults in many trajectories, step by step: in each trajectory, in each group, in each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from autotrace.insight import registry
from autotrace.insight.families.rewards import FALSE_ZERO
from autotrace.insight.families.tools import STEP_DECIDES
from autotrace.insight.finding import GROUPS, TRAJECTORIES, Code, Explanation, Finding, Location
from autotrace.insight.needs import present
from autotrace.insight.rollouts import Row, position
from autotrace.insight.step_records import History, Hit, Record, Step, grouped
from autotrace.insight.why import Why
from autotrace.trajectory.jsonable import finite
from autotrace.trajectory.model import OPEN

PLACES = 3
"""Name so many places of each finding."""
MAX_KINDS = 20
"""Count so many causes and classes of messages in a step."""
SAMPLE, KEPT, BESIDE = 256, 64, 4
"""Limit the rollouts of a step that are compared with other steps, the steps kept for the comparison, and the steps
compared on each side of a change."""
EARLY = 8
"""Keep a change that has fewer steps before it in memory: its steps no longer tell whether the change is real."""
CHANGED = ("AT-REWARD-DROPPED", "AT-REWARD-JUMPED")
EXPLAINED = ("AT-NO-SIGNAL", "AT-REWARD-CONSTANT", "AT-DUPLICATE-ROLLOUTS")
"""List findings whose groups are compared with other groups, to explain what is equal in them."""
FOLLOWS, RARE = 0.8, 0.3
"""Require that such a share of the trajectories with a finding has its cause, too; allow the cause in such a share of
the others."""


Counted = TypeVar("Counted", Record, Row)


class Tally(msgspec.Struct):
    """Count the hits of one code in a step, or in several steps."""

    trajectories: int = 0
    """Count trajectories, or groups if the code counts groups."""
    seconds: float | None = None
    kinds: dict[str, int] = {}
    """Map cause or class of messages -> count."""
    places: list[Location] = []
    """List at most ``PLACES`` places, unless all places were requested."""
    concerned: int = 0
    """Count the trajectories with the finding, or in groups with the finding."""
    answer: Explanation | None = None
    """Hold the traits that tell the trajectories apart from others."""

    @classmethod
    def of(cls, step: Step, hits: list[Hit], unit: str, every: bool) -> Tally:
        """Count the hits of a step that reach the code's threshold; ``every``: with all places."""
        kinds = Counter(hit.kind for hit in hits if hit.kind)
        seconds = [hit.seconds for hit in hits if hit.seconds is not None]
        return cls(
            len({hit.record.group if unit == GROUPS else hit.record.trace_id for hit in hits}),
            sum(seconds) if seconds else None,
            dict(kinds.most_common(MAX_KINDS)),
            [_place(step, hit) for hit in hits] if every else _places(step, hits),
            len(_concerned(step, hits, unit)),
        )


def _concerned(step: Step, hits: Iterable[Hit], unit: str) -> set[str]:
    """Return trace ids of the trajectories that have a finding, or whose groups have the finding."""
    if unit != GROUPS:
        return {hit.record.trace_id for hit in hits}
    groups = {hit.record.group for hit in hits}
    return {record.trace_id for record in step.training if record.group in groups}


def _places(step: Step, hits: list[Hit]) -> list[Location]:
    """Choose places in different trajectories, and with different causes if any."""
    kinds = Counter(hit.kind for hit in hits)
    ordered = sorted(hits, key=lambda hit: (-(hit.seconds or 0.0), -kinds[hit.kind]))
    by_trace: dict[str, Hit] = {}
    seen: set[str] = set()
    for hit in ordered:
        if hit.kind not in seen and hit.record.trace_id not in by_trace:
            seen.add(hit.kind)
            by_trace[hit.record.trace_id] = hit
    by_group: dict[str, Hit] = {}
    for hit in ordered:
        by_group.setdefault(hit.record.group, hit)
    for hit in (*by_group.values(), *ordered):
        by_trace.setdefault(hit.record.trace_id, hit)
    return [_place(step, hit) for hit in [*by_trace.values()][:PLACES]]


def _place(step: Step, hit: Hit) -> Location:
    return Location(hit.record.trace_id, step.number, hit.turn, hit.token, hit.note)


def counts(hits: Iterable[Hit]) -> dict[str, int]:
    """Map code -> number of trajectories with the code."""
    by_code = grouped(hits, lambda hit: hit.code)
    return {code: len({hit.record.trace_id for hit in own}) for code, own in by_code.items()}


class StepFound(msgspec.Struct):
    """Hold the findings of a step."""

    step: int | None
    trajectories: int
    wall_s: float
    groups: int = 0
    without_turns: int = 0
    """Count finished trajectories without a recorded LLM call."""
    present: list[str] = []
    """List the data of ``needs.NEEDS`` that the step has."""
    tallies: dict[str, Tally] = {}
    """Map code -> tally."""
    both: dict[str, int] = {}
    """Map two codes with a blank between -> trajectories that have both."""


class Diagnosis:
    """Receive steps in order and keep only the data for findings. A step that is given again replaces its earlier
    findings."""

    def __init__(self, every: Collection[str] = (), among: Collection[str] | None = None) -> None:
        """Start without steps. ``every``: codes whose findings keep all places. ``among``: ids of the only trajectories
        whose findings count; other trajectories are what these are compared with."""
        self._every, self._among = frozenset(every), among
        self._steps: dict[int | None, StepFound] = {}
        self._history = History()
        self._why = Why(SAMPLE, KEPT, BESIDE)
        self._answer: Explanation | None = None
        """Hold the causes of the last change."""
        self._having: dict[int | None, dict[str, set[str]]] = {}
        """Map step -> code -> trace ids, for the last steps."""
        self._codes = registry.codes()

    @property
    def trajectories(self) -> int:
        """Count the diagnosed trajectories."""
        return sum(found.trajectories for found in self._steps.values())

    @property
    def wall_s(self) -> float:
        """Sum the seconds of all steps."""
        return sum(found.wall_s for found in self._steps.values())

    @property
    def present(self) -> set[str]:
        """Return the data of ``needs.NEEDS`` that the steps have."""
        return {need for found in self._steps.values() for need in found.present}

    @property
    def without_turns(self) -> int:
        """Count finished trajectories without a recorded LLM call."""
        return sum(found.without_turns for found in self._steps.values())

    @property
    def numbers(self) -> Collection[int | None]:
        """Return the diagnosed steps."""
        return self._steps.keys()

    def put(self, found: StepFound) -> None:
        """Put the earlier findings of a step."""
        self._steps[found.step] = found

    def of_step(self, number: int | None) -> StepFound:
        """Return the findings of a step. Raises ``KeyError``."""
        return self._steps[number]

    def add(self, step: Step) -> list[Hit]:
        """Examine a step and return its hits."""
        own = hits(step, self._history)
        self._why.add(step)
        by_code = grouped([*own, *registry.tried(self._changed, step)], lambda hit: hit.code)
        records = self.counted(step.records)
        of_records = {record.group for record in records}
        groups = sum(group.key in of_records for group in step.groups)
        without = sum(not one.profile.turns for one in records if one.status != OPEN)
        found = StepFound(step.number, len(records), step.wall_s, groups, without, sorted(present(step)))
        kept: list[Hit] = []
        having = self._having[step.number] = {}
        for late in list(self._having)[: -2 * BESIDE]:
            del self._having[late]
        for name, those in by_code.items():
            code = self._code(name)
            concerned = len({hit.record.trace_id for hit in those})
            if concerned < max(code.count, code.share * len(step.records)):
                continue
            if code.unit == GROUPS:
                those = [hit for hit in those if hit.record.group in of_records]
            elif self._among is not None:
                those = [hit for hit in those if hit.record.trace_id in self._among]
            if not those:
                continue
            tally = found.tallies[name] = Tally.of(step, those, code.unit, name in self._every)
            having[name] = _concerned(step, those, code.unit)
            if name in CHANGED:
                tally.answer = self._answer
            elif name in EXPLAINED and step.number is not None:
                with_it = {hit.record.group for hit in those}
                tally.answer = self._why.of_groups(code.title, with_it, step.number)
            kept += those
        pairs = ((one, other) for one in having for other in having if one != other)
        found.both = {f"{one} {other}": len(having[one] & having[other]) for one, other in pairs}
        self.put(found)
        return kept

    def counted(self, records: Iterable[Counted]) -> list[Counted]:
        """Return the records whose findings count."""
        return [one for one in records if self._among is None or one.trace_id in self._among]

    def _changed(self, step: Step) -> Iterator[Hit]:
        """Find rollouts on the wrong side of a change of the mean reward."""
        known = self._why.changes_up_to(step.number)
        numbers = sorted(self._why.by_step)
        settled = numbers[EARLY] if len(numbers) == KEPT else 0
        near = [(number, self._steps[number]) for number in numbers if number in self._steps]
        for number, found in near:  # with more steps a change may turn out to be later, or none
            for name in CHANGED if not any(one.is_at(number) for one in known) else ():
                answer = found.tallies[name].answer if name in found.tallies else None
                if answer is not None and (answer.step or 0) >= settled:
                    del found.tallies[name]
        change = next((one for one in known if one.is_at(step.number)), None)
        if change is None:
            return
        name, answer = CHANGED[not change.is_drop], self._why.of_change(change)
        self._answer = answer
        for record in step.training:
            score = finite(record.score)
            if score is not None and change.is_beyond(score):
                yield Hit(name, record, note=f"reward {score:.4g}")
        for number, found in near:  # a change may become certain some steps later
            if change.step <= number < (step.number or 0) and name not in found.tallies:
                beyond = [row for row in self._why.by_step.get(number, ()) if change.is_beyond(row.reward)]
                if not (rows := self.counted(beyond)):
                    continue
                places = [Location(row.trace_id, number, note=f"reward {row.reward:.4g}") for row in rows[:PLACES]]
                found.tallies[name] = Tally(len(rows), places=places, concerned=len(rows), answer=answer)
                traces = {row.trace_id for row in rows}
                for other, ids in self._having.get(number, {}).items():
                    found.both[f"{other} {name}"] = found.both[f"{name} {other}"] = len(ids & traces)

    def findings(self, step: int | None = None) -> list[Finding]:
        """Return all findings, or the findings of a step, most costly first."""
        numbers = sorted(self._steps, key=lambda number: (number is None, number or 0)) if step is None else [step]
        steps = [self._steps[number] for number in numbers]
        by_code: dict[str, list[tuple[int | None, Tally]]] = {}
        for found in steps:
            for name, tally in found.tallies.items():
                by_code.setdefault(name, []).append((found.step, tally))
        of = {TRAJECTORIES: sum(one.trajectories for one in steps), GROUPS: sum(one.groups for one in steps)}
        wall_s = sum(found.wall_s for found in steps)
        made = [self._finding(name, tallies, of[self._code(name).unit], wall_s) for name, tallies in by_code.items()]
        return _joined(sorted(made, key=lambda finding: (-finding.cost, finding.code)), steps)

    def _finding(self, name: str, tallies: list[tuple[int | None, Tally]], of: int, wall_s: float) -> Finding:
        code = self._code(name)
        concerned = sum(tally.trajectories for _, tally in tallies)
        waited = [tally.seconds for _, tally in tallies if tally.seconds is not None]
        kinds: Counter[str] = Counter()
        for _, tally in tallies:
            kinds.update(tally.kinds)
        cost = code.weight * min(1.0, concerned / max(1, of))
        if waited and wall_s:
            cost = max(cost, code.weight * min(1.0, sum(waited) / wall_s))
        answer = next((tally.answer for _, tally in reversed(tallies) if tally.answer is not None), None)
        since = tallies[0][0] if answer is None or answer.step is None else min(answer.step, tallies[0][0] or 0)
        places = [place for _, tally in tallies for place in tally.places]
        return Finding(
            name, code.title if answer is None or name not in CHANGED else answer.title, code.what, concerned, of, cost,
            since, len(tallies), code.why, code.remedy, places[: None if name in self._every else PLACES],
            seconds=round(sum(waited), 3) if waited else None, notes=dict(kinds.most_common(5)), unit=code.unit,
            answer=answer,
        )  # fmt: skip

    def _code(self, name: str) -> Code:
        """Return the code of that name, or the name alone if the detector is not installed here."""
        return self._codes.get(name) or Code(name, name, "", "", "", "", 0.5)


def _joined(found: list[Finding], steps: Sequence[StepFound]) -> list[Finding]:
    """Sort each consequence below its cause. A finding is a consequence if its trajectories have the cause, other
    trajectories rarely have the cause, and the finding comes about later in a rollout."""
    total = sum(one.trajectories for one in steps)
    count, both = Counter[str](), Counter[str]()
    for one in steps:
        count.update({name: tally.concerned for name, tally in one.tallies.items()})
        both.update(one.both)

    def follows(cause: Finding, other: Finding) -> bool:
        common, rest = both[f"{cause.code} {other.code}"], total - count[other.code]
        is_inner = common >= FOLLOWS * count[other.code] > 0 and count[cause.code] - common <= RARE * rest
        return is_inner and rest > 0 and position(cause.code) < position(other.code)

    heads, below = list[Finding](), dict[str, list[Finding]]()
    for finding in sorted(found, key=lambda one: position(one.code)):
        head = next((one for one in heads if follows(one, finding)), None)
        if head is None:
            heads.append(finding)
        else:
            below.setdefault(head.code, []).append(replace(finding, under=head.code))
    cost = {one.code: max([one.cost, *(each.cost for each in below.get(one.code, ()))]) for one in heads}
    heads.sort(key=lambda one: (-cost[one.code], one.code))
    return [each for head in heads for each in (replace(head, cost=cost[head.code]), *below.get(head.code, ()))]


def hits(step: Step, history: History) -> list[Hit]:
    """Find every hit in a step, before thresholds."""
    own = [
        Hit(mark.code, record, mark.turn, mark.token, mark.note, mark.kind)
        for record in step.records
        for mark in record.profile.marks
        if mark.code not in (*STEP_DECIDES, FALSE_ZERO)
    ]
    return own + late_hits(step, history)


def late_hits(step: Step, history: History) -> list[Hit]:
    """Find the hits of groups and of the step. The step keeps their codes as traits (``Step.found``)."""
    found = [hit for group in step.groups for one in registry.OF_GROUP for hit in registry.tried(one, group, step)]
    found += [hit for one in registry.OF_STEP for hit in registry.tried(one, step, history)]
    for hit in found:
        step.found.setdefault(hit.record.trace_id, set()).add(hit.code)
    return found
