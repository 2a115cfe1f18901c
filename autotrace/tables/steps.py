"""Read the steps of a run for findings, wherever the run is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from autotrace.insight import profile, registry
from autotrace.insight.evidence import Evidence
from autotrace.insight.examine import examine
from autotrace.insight.families.rewards import misread
from autotrace.insight.profile import Profile
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import Record, Step
from autotrace.tables.columns import ID
from autotrace.tables.conditions import Condition
from autotrace.tables.errors import QueryError
from autotrace.tables.hung import hanging
from autotrace.tables.reader import Reader, mapping
from autotrace.trajectory.durations import PARTS
from autotrace.trajectory.model import OPEN

Watch = Callable[[Sequence[Any]], Iterable[Any]]
MAX_TEXTS, FEW_TEXTS = 256, 4
"""Trajectories whose texts are compared with the texts that rewards judged: for a run, and at least for a step."""
AT_ONCE = 10_000
"""Maximum trajectories in memory, unless a single step has more."""
COLUMNS = (
    *ID, "group_id", "step", "status", "profile", "validate", "uid", "data_source", "reward", "facts",
    "start_ns", "end_ns", "attempt", "rollout_n", "error", "complete", *PARTS,
)  # fmt: skip
"""Columns of a step's rows; ``PARTS`` come last."""


def steps(
    reader: Reader,
    step: int | None = None,
    watch: Watch = iter,
    *,
    texts: bool = False,
    now_ns: int | None = None,
) -> Iterator[Step]:
    """Yield the steps of a run in order, or a single step. Trajectories that were not examined on completion (by an
    older release, or before a detector was installed) are read and examined now; ``watch`` iterates over these
    trajectories. ``texts``: decode the texts of ``MAX_TEXTS`` trajectories to check whether rewards judged the texts.
    ``now_ns``: see ``hanging``. Raises ``QueryError`` for several runs."""
    if len(reader.sources) > 1:
        names = ", ".join(source.info.run_id for source in reader.sources[:3])
        raise QueryError(f"these are {len(reader.sources)} runs ({names}, ...); name one")
    settings = _settings(reader)
    recorded = reader.run.step_facts(step)
    counts = reader.steps() or dict.fromkeys(sorted(recorded), 0)  # a run without rollouts has its metrics
    last = list(counts)[-1:]
    living = reader.run.living
    hung = hanging(reader, now_ns)
    wanted = {number: count for number, count in counts.items() if step is None or number == step}
    for number, rows in _by_step(reader, wanted):
        records = list(_records(rows, reader, settings, watch))
        for one in records:
            if one.trace_id in hung:
                one.profile = Profile(marks=[hung[one.trace_id]])
        if texts:
            _with_texts(records, reader, settings, max(FEW_TEXTS, MAX_TEXTS // len(wanted)))
        live = living and (number in last or any(row.status == OPEN for row in rows))
        of_step = {} if number is None else recorded.get(number, {})
        yield Step(number, records, settings, live, of_step.get("metrics", {}), of_step.get("token_facts", {}))


def _by_step(reader: Reader, counts: Mapping[int | None, int]) -> Iterator[tuple[int | None, list[Any]]]:
    """Yield each step with its rows, some thousands of rows at a time."""
    numbered, at = [number for number in counts if number is not None], 0
    while at < len(numbered):
        end, rows = at, 0
        while end < len(numbered) and (end == at or rows + counts[numbered[end]] <= AT_ONCE):
            rows += counts[numbered[end]]
            end += 1
        steps = (numbered[at], numbered[end - 1])
        by_step: dict[int | None, list[Any]] = {number: [] for number in numbered[at:end]}
        for row in reader.select(columns=COLUMNS, steps=steps):
            by_step[row.step].append(row)
        reader.views.forget(steps)
        yield from by_step.items()
        at = end
    if None in counts:
        yield None, reader.select(Condition("step IS NULL", (), frozenset({"step"})), COLUMNS)


def _settings(reader: Reader) -> TrainerSettings:
    """Read the run's settings from its reports, or from its tables if nothing else is left."""
    if binds := reader.run.binds():
        return TrainerSettings.of(binds)
    # with the step, which is read next: a column more would read all rows again
    rows = reader.rows("trajectories", ("settings", "step"), "settings IS NOT NULL")
    return TrainerSettings.decode(next((text for text, _ in rows), None))


def _records(rows: Sequence[Any], reader: Reader, settings: TrainerSettings, watch: Watch) -> Iterator[Record]:
    stamp, late = registry.stamp(), []
    for row in rows:
        known = profile.decode(row.profile)
        if row.complete and (known is None or known.stamp != stamp):
            late.append(row)
        else:
            yield _record(row, known or Profile())
    for row, one in reader.each(watch(late), texts=False):
        yield _record(row, Profile() if one is None else examine(one, settings))


def _record(row: Any, known: Profile) -> Record:
    facts = mapping(row.facts)
    times = {name: value for name, value in zip(PARTS, row[-len(PARTS) :], strict=True) if value is not None}
    return Record(
        row.trace_id, row.group_id, row.step, row.status, known, bool(row.validate), row.uid, row.data_source,
        row.reward, facts, times, row.start_ns, row.end_ns, row.attempt or 1, row.rollout_n, row.error, row.run_id,
    )  # fmt: skip


def _with_texts(records: list[Record], reader: Reader, settings: TrainerSettings, most: int) -> None:
    """Compare the texts that rewards judged with the texts of rollouts, in at most ``most`` trajectories."""
    judged = [record for record in records if record.profile.judged and not record.has("AT-REWARD-MISMATCHED")]
    for one, trajectory in reader.each(judged[:: max(1, -(-len(judged) // most))]):
        if trajectory is not None and (marks := list(misread(Evidence(trajectory, settings)))):
            one.profile = msgspec.structs.replace(one.profile, marks=[*one.profile.marks, *marks])
