"""The steps of a run as findings read them: from the run folder's state, or from Parquet files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from autotrace.data.rollout import ROLES
from autotrace.insight import profile, registry
from autotrace.insight.evidence import Evidence
from autotrace.insight.examine import examine
from autotrace.insight.families.rewards import misread
from autotrace.insight.profile import Profile
from autotrace.insight.records import Record, Step
from autotrace.insight.settings import Settings
from autotrace.query.errors import QueryError
from autotrace.query.hung import hanging
from autotrace.ship.index.lines import record
from autotrace.ship.run_reader import Gone, RunReader
from autotrace.ship.store.row import Row
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


# -- Parquet ----------------------------------------------------------------------------------------------------------

_TIMES = ("queue_s", "prefill_s", "decode_s", "way_s", "llm_s", "tool_s", "reward_s", "other_s")
_FACTS = (
    "advantage", "trained_in_step", "dropped", "min_global_steps", "max_global_steps", "mismatch_mean", "mismatch_max",
    "entropy",
)  # fmt: skip
_JSON = ("reward_extra_info", "token_facts", "trained_in_steps")
"""Facts that have parts."""
COLUMNS = (
    "trace_id", "group_id", "step", "status", "profile", "validate", "uid", "data_source", "reward", "start_ns",
    "end_ns", "attempt", "rollout_n", "error", "settings", *_JSON, *_FACTS, *_TIMES,
)  # fmt: skip


def parquet_steps(folder: Path, step: int | None = None) -> Iterator[Step]:
    """The steps of the Parquet files below ``folder`` (the folder ``trajectories``, or of one run in it). What was
    written by an older release has no profiles. Raises ``QueryError``."""
    import pyarrow.dataset as ds

    files = sorted(folder.glob("**/*.parquet"))
    if not files:
        raise QueryError(f"{folder} holds no Parquet files of trajectories")
    whole = ds.dataset([str(path) for path in files], format="parquet")
    if "profile" not in whole.schema.names:
        raise QueryError(f"{folder} was written before findings were recorded; diagnose the run folder instead")
    present = [name for name in COLUMNS if name in whole.schema.names]  # some came later than others
    numbers = [step] if step is not None else _numbers(whole)
    for number in numbers:
        wanted = ds.field("step").is_null() if number is None else ds.field("step") == number
        rows = whole.to_table(columns=present, filter=wanted).to_pylist()
        if rows:
            known = next((row["settings"] for row in rows if row.get("settings")), None)
            yield Step(number, [_of_columns(row) for row in rows], Settings.decode(known))


def _numbers(whole: Any) -> list[int | None]:
    found = set(whole.to_table(columns=["step"]).column("step").unique().to_pylist())
    return sorted(found, key=lambda number: (number is None, number or 0))


def _of_columns(row: Mapping[str, Any]) -> Record:
    facts = {name: value for name in _FACTS if (value := row.get(name)) is not None}
    facts |= {name: msgspec.json.decode(text) for name in _JSON if (text := row.get(name))}
    return Record(
        row["trace_id"], row["group_id"], row["step"], row["status"], profile.decode(row["profile"]) or Profile(),
        bool(row["validate"]), row["uid"], row["data_source"], row["reward"], facts,
        {name: value for name in _TIMES if (value := row[name]) is not None}, row["start_ns"], row["end_ns"],
        row["attempt"] or 1, row["rollout_n"], row["error"],
    )  # fmt: skip
