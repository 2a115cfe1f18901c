"""The steps of a run as findings read them, from the run folder's state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from autotrace.insight import profile, registry
from autotrace.insight.evidence import Evidence
from autotrace.insight.examine import examine
from autotrace.insight.families.rewards import misread
from autotrace.insight.profile import Profile
from autotrace.insight.records import Record, Step
from autotrace.insight.settings import Settings
from autotrace.query.hung import hanging
from autotrace.ship.index.lines import record
from autotrace.ship.run_reader import Gone, RunReader
from autotrace.ship.store.row import Row
from autotrace.tables.rollout import ROLES
from autotrace.trajectory.model import OPEN

Watch = Callable[[Sequence[Row]], Iterable[Row]]
MAX_TEXTS, FEW_TEXTS = 256, 4
"""Trajectories whose texts are compared with what their rewards judged: of a run, and at least of a step."""


def steps(
    reader: RunReader,
    step: int | None = None,
    watch: Watch = iter,
    *,
    texts: bool = False,
    now_ns: int | None = None,
) -> Iterator[Step]:
    """The steps of a run in order, or one of them. Trajectories that were not examined when they were complete (by an
    older release, or before a detector was installed) are examined now, which reads them; ``watch`` iterates
    over these. ``texts``: of ``MAX_TEXTS`` trajectories the texts are decoded, to see whether rewards judged them.
    ``now_ns``: see ``hanging``."""
    settings = Settings.of(reader.binds())
    ids = reader.ids_by_step(ROLES)
    numbers = sorted(ids, key=lambda number: (number is None, number or 0)) if step is None else [step]
    living = reader.living
    hung = hanging(reader, now_ns)
    said = reader.step_facts(step)
    for number in numbers:
        if number not in ids:
            continue
        rows = reader.rows_of(ids[number])
        records = list(_records(rows, reader, settings, watch))
        for one in records:
            if one.trace_id in hung:
                one.profile = Profile(marks=[hung[one.trace_id]])
        if texts:
            _with_texts(records, reader, settings, max(FEW_TEXTS, MAX_TEXTS // len(numbers)))
        live = living and (number == numbers[-1] or any(row.status == OPEN for row in rows))
        of_step = {} if number is None else said.get(number, {})
        yield Step(number, records, settings, live, of_step.get("metrics", {}), of_step.get("token_facts", {}))


def _records(rows: list[Row], reader: RunReader, settings: Settings, watch: Watch) -> Iterator[Record]:
    stamp, late = registry.stamp(), []
    for row in rows:
        known = profile.decode(row.profile)
        if row.complete and (known is None or known.stamp != stamp):
            late.append(row)
        else:
            yield record(row, known or Profile())
    for row in watch(late):
        made = Profile()
        with contextlib.suppress(Gone):
            made = examine(reader.load(row.trace_id, texts=False), settings)
        yield record(row, made)


def _with_texts(records: list[Record], reader: RunReader, settings: Settings, most: int) -> None:
    """Compare what rewards judged with what rollouts said, in at most ``most`` of them."""
    judged = [record for record in records if record.profile.judged and not record.has("AT-REWARD-MISMATCHED")]
    for one in judged[:: max(1, -(-len(judged) // most))]:
        with contextlib.suppress(Gone, KeyError):
            marks = list(misread(Evidence(reader.load(one.trace_id), settings)))
            if marks:
                one.profile = msgspec.structs.replace(one.profile, marks=[*one.profile.marks, *marks])
