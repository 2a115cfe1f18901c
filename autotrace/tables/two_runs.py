"""Compare two runs, or two steps of a run, for ``autotrace diff`` and for the page.

found = compared(Side("a", reader, rollouts), Side("b", other, rollouts), rollouts)
print(found.differences[0].stage, found.notes)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.difference import (
    Difference,
    Parted,
    differences,
    metrics_part,
    settings_differ,
    settings_of,
)  # fmt: skip
from autotrace.insight.finding import Explanation, Finding, Location
from autotrace.insight.pairs import FEW, Kept, PairChange, PairCounts, Pairs, pair
from autotrace.insight.rollouts import Rollouts, Row
from autotrace.insight.why import of_two, words
from autotrace.insight.words import amount, percent, where
from autotrace.tables.errors import Gone, QueryError
from autotrace.tables.reader import Reader
from autotrace.tables.steps import Watch, steps
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.span_text import counted

MOST, SHOWN = 1024, 10
"""Limit the rollouts of a step whose traits are compared, and the prompts that changed most."""
KEPT = """
WITH said AS (
    SELECT trace_id, bit_xor(hash(turn, new_prompt_ids, CASE WHEN new_prompt_ids IS NULL THEN prompt_text END,
        response_ids, CASE WHEN response_ids IS NULL THEN response_text END)) AS words FROM turns GROUP BY trace_id)
SELECT trace_id, step, trim(concat(CASE WHEN validate THEN 'validation ' END, data_source)),
    [uid, sample_index, prompt], CASE WHEN abs(reward) <= 1e100 THEN reward END,
    hash(words, status, reward, advantage, trained_in_step, dropped, min_global_steps, max_global_steps)
FROM trajectories LEFT JOIN said USING (trace_id) WHERE {} ORDER BY step NULLS LAST, start_ns, trace_id"""
"""Selects the values of ``Kept``."""


Line = tuple[str, Sequence[tuple[int, str]]]
"""A line, and rollouts as side (0 or 1) and trace id."""


class Side:
    """Read a run, or a step of a run, for a comparison."""

    def __init__(
        self, name: str, reader: Reader, table: Rollouts, step: int | None = None, watch: Watch = iter
    ) -> None:
        """Read the steps. Raises ``QueryError`` if the side has neither a trajectory nor a metric."""
        self.name, self._reader, self._step = name, reader, step
        self.diagnosis, self.rows, self.metrics = Diagnosis(), list[Row](), dict[int, Mapping[str, float]]()
        for each in steps(reader, step, watch):
            self.diagnosis.add(each)
            self.rows += table.rows_of(each, each.training, MOST, name)
            self.metrics[each.number or 0] = each.metrics
        self.settings = settings_of(reader.run.info.command, reader.run.binds())
        if not self.metrics:
            raise QueryError(f"{name} has no trajectory and no metric; autotrace steps lists the steps")

    def rollouts(self) -> list[Kept]:
        """Return the parts of all rollouts by which rollouts pair."""
        query = KEPT.format("true" if self._step is None else f"step = {self._step}")
        return [Kept(*row) for row in self._reader.sql(query).rows()]

    def load(self, trace: str) -> Trajectory | None:
        """Load a rollout; None: only the line of the rollout is left."""
        with contextlib.suppress(Gone):
            return self._reader.load(trace)
        return None


class TwoRuns(msgspec.Struct):
    """Hold the differences of two runs; ``autotrace diff --json`` prints ``as_dict``."""

    runs: list[str]
    trajectories: list[int]
    steps: list[int]
    differences: list[Difference]
    metrics: list[Parted]
    paired_by: str
    paired_in_step: bool
    paired_share: float
    prompts: list[PairCounts]
    changed_most: list[PairChange]
    new_findings: list[Finding]
    gone_findings: list[Finding]
    carried_by: Explanation | None
    notes: list[str]

    def lines(self) -> Iterator[Line]:
        """Yield the lines for people, each with rollouts of the two sides. A heading is not indented."""
        for side, name in enumerate(self.runs):
            count = f"{counted(self.trajectories[side], 'trajectory')} in {counted(self.steps[side], 'step')}"
            yield f"{'AB'[side]}  {name}: {count}", []
        yield f"first difference: {self.differences[0].stage}" if self.differences else "no difference", []
        for one in self.differences[:SHOWN]:
            pairs = f"{one.pairs:,} of {counted(one.of, 'pair')}" if one.pairs else ""
            place = ", ".join(filter(None, (where(Location("", one.step, one.turn, one.token)), pairs)))
            yield f"  {one.stage:14}{': '.join(filter(None, (place, one.words)))}", []
            for side, value in enumerate((one.here, one.there)):
                yield f"  {'':14}{'AB'[side]}  {value}", [(side, trace) for trace in one.traces[side : side + 1]]
        yield from ((f"! {note}", []) for note in self.notes)
        if self.metrics:
            yield f"{counted(len(self.metrics), 'metric')} differ", []
        for part in self.metrics[:SHOWN]:
            since = "" if part.since is None else f", for good since step {part.since}"
            last = f"last {part.last:.4g} | {part.last_other:.4g}"
            yield f"  {part.name}: since step {part.step}{since}; {last}", []
        for tally in self.prompts:
            by = f"prompts by {self.paired_by}{', step by step' * self.paired_in_step}"
            interval = "" if tally.low is None else f" (95%: {tally.low:+.3g} to {tally.high:+.3g})"
            counts = f"B wins {tally.wins:,}, loses {tally.losses:,}, ties {tally.ties:,}"
            source = f"  {tally.source}" if tally.source else by
            yield f"{source}: {counts}; mean reward {tally.change:+.3g}{interval}", []
        for each in filter(lambda each: each.change, self.changed_most):
            rewards = " | ".join(" ".join(f"{one:.3g}" for one in side[:8]) for side in each.rewards)
            yield f"  {each.change:+.3g}  {rewards}  {each.prompt}", [(0, each.traces[0][0]), (1, each.traces[1][0])]
        for title, findings in (("new", self.new_findings), ("gone", self.gone_findings)):
            yield from ((f"{title} {one.code}  {one.title}: {amount(one)}", []) for one in findings)
        yield from ((text, []) for text in words(self.carried_by)) if self.carried_by is not None else ()

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain values for ``--json`` and for the page."""
        named = {name: [one.as_dict() for one in getattr(self, name)] for name in ("new_findings", "gone_findings")}
        return {**msgspec.to_builtins(self), **named}


def compared(a: Side, b: Side, table: Rollouts) -> TwoRuns:
    """Compare side ``b`` with side ``a``; ``table`` holds the traits of both sides."""
    both = (a, b)
    rollouts = [side.rollouts() for side in both]
    pairs = pair(*rollouts)
    found = [*settings_differ(a.settings, b.settings), *differences(pairs, lambda n, trace: both[n].load(trace))]
    mine, yours = ({one.code: one for one in side.diagnosis.findings()} for side in both)
    new, gone = ([own[code] for code in own if code not in rest] for own, rest in ((yours, mine), (mine, yours)))
    answer = None
    if a.rows and b.rows and any(each.stage != "configuration" for each in found):
        answer = of_two(f"{b.name} against {a.name}", f"in {a.name}", (b.rows, a.rows), table)
        answer.causes = [one for one in answer.causes if one.explains or one.position not in ("time", "place")]
    tallies = pairs.tallies()
    return TwoRuns(
        [a.name, b.name], [*map(len, rollouts)], [len(a.metrics), len(b.metrics)], found,
        metrics_part(a.metrics, b.metrics), pairs.by, pairs.in_step, pairs.share, tallies, pairs.changes()[:SHOWN],
        new, gone, answer, [*_notes(pairs, all(rollouts), tallies, found)],
    )  # fmt: skip


def _notes(pairs: Pairs, is_paired: bool, tallies: list[PairCounts], found: list[Difference]) -> Iterator[str]:
    """Yield the limits of the comparison."""
    if not is_paired:
        yield "no rollouts to compare: only metrics and settings are compared"
    elif pairs.share < 0.5:
        share = f"only {percent(pairs.share)} of the prompts pair" if pairs.share else "prompts do not pair"
        yield f"{share} by uid, index or question"
    if tallies and tallies[0].wins + tallies[0].losses + tallies[0].ties < FEW:
        yield f"fewer than {FEW} prompts pair: the interval says little"
    if is_paired and found and found[-1].stage == "configuration":
        yield "no rollout differs: the settings have no effect"
