"""Compare two runs, or two steps of a run, and say where they first differ: ``autotrace diff``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click
import msgspec

from autotrace.cli import runs, terminal
from autotrace.cli.terminal import counted, line
from autotrace.cli.why import MOST, contrasted
from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.difference import Difference, differences, metrics_part, settings_differ, settings_of
from autotrace.insight.finding import Location
from autotrace.insight.pairs import FEW, Kept, PairCounts, Pairs, pair
from autotrace.insight.rollouts import Rollouts, Row
from autotrace.insight.why import words
from autotrace.insight.words import amount, percent, where
from autotrace.run.info import is_there
from autotrace.tables.errors import Gone
from autotrace.tables.steps import steps
from autotrace.trajectory.model import Trajectory

SHOWN = 10
"""Limits the printed metrics, prompts and settings."""
KEPT = """
WITH said AS (
    SELECT trace_id, bit_xor(hash(turn, new_prompt_ids, CASE WHEN new_prompt_ids IS NULL THEN prompt_text END,
        response_ids, CASE WHEN response_ids IS NULL THEN response_text END)) AS words FROM turns GROUP BY trace_id)
SELECT trace_id, step, trim(concat(CASE WHEN validate THEN 'validation ' END, data_source)),
    [uid, sample_index, prompt], CASE WHEN isfinite(reward) THEN reward END,
    hash(words, status, reward, advantage, trained_in_step, dropped, min_global_steps, max_global_steps)
FROM trajectories LEFT JOIN said USING (trace_id) WHERE {} ORDER BY step NULLS LAST, start_ns, trace_id"""
"""Selects the values of ``Kept``."""


class _Side:
    """Holds a side with its reader."""

    def __init__(self, name: str, table: Rollouts, stack: contextlib.ExitStack) -> None:
        run, _, number = name.rpartition("@")
        step = int(number) if run and number.isdecimal() and not is_there(name) else None
        self.reader = stack.enter_context(contextlib.closing(runs.reader_of_one([name if step is None else run])))
        self.diagnosis, self.rows, self.metrics = Diagnosis(), list[Row](), dict[int, Mapping[str, float]]()
        for each in steps(self.reader, step, partial(terminal.shown, what="trajectories examined")):
            self.diagnosis.add(each)
            self.rows += table.rows_of(each, each.training, MOST, name)
            self.metrics[each.number or 0] = each.metrics
        if not self.metrics:
            raise terminal.fail(f"{name} has no trajectory and no metric; autotrace steps lists the steps")
        query = KEPT.format("true" if step is None else f"step = {step}")
        self.rollouts = [Kept(*row) for row in self.reader.sql(query).rows()]
        self.settings = settings_of(self.reader.run.info.command, self.reader.run.binds())

    def load(self, trace: str) -> Trajectory | None:
        with contextlib.suppress(Gone):
            return self.reader.load(trace)
        return None


@click.command(short_help="Compare two runs: settings, metrics, prompts, findings, and the first difference.")
@click.argument("first", metavar="RUN[@STEP]")
@click.argument("second", metavar="RUN[@STEP]")
@terminal.json_option("Print one JSON object.")
def diff(first: str, second: str, as_json: bool) -> None:
    """Compare two runs, or two steps: where they first differ in causal order, and what carries the difference.

    Each side is a run, or a step of a run (RUN@100), recorded by autotrace or saved by another tool. Changes are those
    of the second side against the first.
    """
    table = Rollouts()
    with contextlib.ExitStack() as stack:
        a, b = opened = [_Side(name, table, stack) for name in (first, second)]
        pairs = pair(a.rollouts, b.rollouts)
        found = [*settings_differ(a.settings, b.settings), *differences(pairs, lambda n, trace: opened[n].load(trace))]
    mine, yours = ({one.code: one for one in each.diagnosis.findings()} for each in opened)
    new, gone = ([own[code] for code in own if code not in rest] for own, rest in ((yours, mine), (mine, yours)))
    answer = None
    if a.rows and b.rows and any(each.stage != "configuration" for each in found):
        answer = contrasted(f"{second} against {first}", f"in {first}", (b.rows, a.rows), table)
        answer.causes = [one for one in answer.causes if one.explains or one.position not in ("time", "place")]
    parted, tallies = metrics_part(a.metrics, b.metrics), pairs.tallies()
    notes = [*_notes(pairs, a.rollouts and b.rollouts, tallies)]
    out = terminal.console()
    if as_json:
        value = {
            "runs": [first, second], "differences": found, "metrics": parted, "paired_by": pairs.by,
            "paired_share": pairs.share, "prompts": tallies, "changed_most": pairs.changes()[:SHOWN],
            "new_findings": [one.as_dict() for one in new], "gone_findings": [one.as_dict() for one in gone],
            "carried_by": answer, "notes": notes,
        }  # fmt: skip
        out.file.write(terminal.json_line(msgspec.to_builtins(value)))
        return
    for letter, name, each in zip("AB", (first, second), opened, strict=True):
        count = counted(len(each.rollouts), "trajectory")
        out.print(line(f"{letter}  {name}: {count} in {counted(len(each.metrics), 'step')}"), soft_wrap=True)
    said = [*_first(found), *(f"! {note}" for note in notes), *_numbers(parted, tallies, pairs)]
    said += [f"{title} {one.code}  {one.title}: {amount(one)}" for title, codes in (("new", new), ("gone", gone))
             for one in codes]  # fmt: skip
    for text in (*said, *(words(answer) if answer is not None else ())):
        out.print(line(text, "bold" if text[:1] != " " else ""), soft_wrap=True)


def _first(found: Sequence[Difference]) -> Iterator[str]:
    yield f"first difference: {found[0].stage}" if found else "no difference"
    for one in found[:SHOWN]:
        pairs = f"{one.pairs:,} of {counted(one.of, 'pair')}" if one.pairs else ""
        place = ", ".join(filter(None, (where(Location("", one.step, one.turn, one.token)), pairs)))
        yield f"  {one.stage:14}{': '.join(filter(None, (place, one.words)))}"
        for name, value, trace in zip("AB", (one.here, one.there), one.traces or ("", ""), strict=True):
            yield f"  {'':14}{name}  {value}  {trace[:12]}".rstrip()
    if found and found[-1].stage == "configuration":
        yield "  no rollout differs: the settings have no effect"


def _notes(pairs: Pairs, has_rollouts: object, tallies: Sequence[PairCounts]) -> Iterator[str]:
    """Say what limits the comparison."""
    if not has_rollouts:
        yield "no rollouts to compare: only metrics and settings are compared"
    elif pairs.share < 0.5:
        share = f"only {percent(pairs.share)} of the prompts pair" if pairs.share else "prompts do not pair"
        yield f"{share} by uid, index or question"
    if tallies and tallies[0].wins + tallies[0].losses + tallies[0].ties < FEW:
        yield f"fewer than {FEW} prompts pair: the interval says little"


def _numbers(parted: Sequence[Any], tallies: Sequence[PairCounts], pairs: Pairs) -> Iterator[str]:
    if parted:
        yield f"{counted(len(parted), 'metric')} differ"
    for part in parted[:SHOWN]:
        since = "" if part.since is None else f", for good since step {part.since}"
        yield f"  {part.name}: since step {part.step}{since}; last {part.last:.4g} | {part.last_other:.4g}"
    for one in tallies:
        interval = "" if one.low is None else f" (95%: {one.low:+.3g} to {one.high:+.3g})"
        title = f"  {one.source}" if one.source else f"prompts by {pairs.by}{', step by step' * pairs.in_step}"
        counts = f"B wins {one.wins:,}, loses {one.losses:,}, ties {one.ties:,}"
        yield f"{title}: {counts}; mean reward {one.change:+.3g}{interval}"
    changed = [each for each in pairs.changes()[:SHOWN] if each.change]
    for each in changed:
        sides = (" ".join(f"{reward:.3g}" for reward in rewards[:8]) for rewards in each.rewards)
        yield f"  {each.change:+.3g}  {' | '.join(sides)}  {each.prompt}"
