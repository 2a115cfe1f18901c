"""The steps of a run as findings read them, from Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from autotrace.insight import profile
from autotrace.insight.profile import Profile
from autotrace.insight.records import Record, Step
from autotrace.insight.settings import Settings
from autotrace.query.errors import QueryError
from autotrace.query.source import need_arrow
from autotrace.query.stored.tables import Tables

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


def steps(folder: Path, step: int | None = None) -> Iterator[Step]:
    """The steps of the run whose table ``trajectories`` is below ``folder``, or one of them. What was written by an
    older release has no profiles. Raises ``QueryError``, and ``ModuleNotFoundError`` with the remedy."""
    need_arrow()
    import pyarrow as pa
    import pyarrow.dataset as ds

    files, tables = _located(folder)
    try:
        whole = ds.dataset([str(path) for path in files], format="parquet")
        if not {"trace_id", "group_id", "reward"} <= set(whole.schema.names):
            raise _none(folder)
        if "profile" not in whole.schema.names:
            raise QueryError(f"{folder} was written before findings were recorded; diagnose the run folder instead")
        present = [name for name in COLUMNS if name in whole.schema.names]  # some came later than others
        for number in [step] if step is not None else _numbers(whole):
            wanted = ds.field("step").is_null() if number is None else ds.field("step") == number
            rows = whole.to_table(columns=present, filter=wanted).to_pylist()
            if rows:
                known = next((row["settings"] for row in rows if row.get("settings")), None)
                recorded = {} if number is None or tables is None else tables.step_facts(number).get(number, {})
                records = [_of_columns(row) for row in rows]
                settings = Settings.decode(known)
                yield Step(
                    number, records, settings, False, recorded.get("metrics", {}), recorded.get("token_facts", {})
                )
    except (OSError, pa.ArrowException) as error:
        problem = str(error).partition("\n")[0]
        raise QueryError(f"the tables below {folder} cannot be read: {problem}") from error


def _located(folder: Path) -> tuple[list[Path], Tables | None]:
    """The files of trajectories of one run that count, and all tables of it; None of files that stand alone."""
    files = sorted(folder.absolute().rglob("*.parquet"))
    ours = [path for path in files if len(path.parts) > 5 and path.parts[-5] == "trajectories"]
    runs = {(path.parents[4], path.parts[-4], path.parts[-3]): path.parents[1] for path in ours}
    if len(runs) > 1:
        names = ", ".join(run_id for _, _, run_id in list(runs)[:3])
        example = next(iter(runs.values()))
        raise QueryError(f"{folder} holds {len(runs)} runs ({names}{', ...' * (len(runs) > 3)}); name one: {example}")
    if not runs:
        if not files:
            raise _none(folder)
        return files, None
    ((root, project, run_id),) = runs
    tables = Tables(root, project, run_id)
    visible = set(tables.files())
    return [path for path in ours if path in visible], tables


def _none(folder: Path) -> QueryError:
    return QueryError(f"{folder} holds no Parquet files of trajectories")


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
