"""What of a trajectory's line in the state a condition may name (``where``), and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NUMBER, TEXT, FLAG, ANY = "a number", "text", "true or false", ""
STATUSES = ("OK", "OPEN", "ERROR", "TIMEOUT", "INTERRUPTED", "CANCELLED")


@dataclass(frozen=True)
class Column:
    """What stands for a name."""

    sql: str
    kind: str
    meaning: str
    values: tuple[Any, ...] = ()
    member: str = ""
    """Of a name for several values: SQL that is true where one of them is ``?``; ``sql`` says how many there are, NULL
    for none."""
    containing: str = ""
    """Of such a name: SQL that is true where one of them contains ``?``."""


_EXAMINED = "profile != '{}'"
OF_FINDINGS = frozenset({"finding", "truncated", "tool_error"})
"""Columns that are NULL or out of date where a trajectory was not examined by this release."""


def json(column: str) -> str:
    """SQL for a value within a column of JSON; its path is bound."""
    return f"CASE WHEN json_valid({column}) THEN json_extract({column}, ?) END"


COLUMNS: dict[str, Column] = {
    "step": Column("step", NUMBER, "training step"),
    "sample": Column("sample_index", TEXT, "the same as sample_index"),
    "sample_index": Column("sample_index", TEXT, "index of the prompt in the dataset; may be compared with a number"),
    "rollout_n": Column("rollout_n", NUMBER, "number of the rollout in its group"),
    "validate": Column("ifnull(validate, 0)", FLAG, "validation, not training"),
    "uid": Column("uid", TEXT, "the group"),
    "data_source": Column("data_source", TEXT, "dataset"),
    "project_name": Column("project_name", TEXT, "project"),
    "experiment_name": Column("experiment_name", TEXT, "experiment"),
    "attempt": Column("attempt", NUMBER, "1, or 2 when the same rollout began once more, and so on"),
    "trace_id": Column("trace_id", TEXT, "id of the trajectory"),
    "name": Column("name", TEXT, "what was called: the root"),
    "role": Column("role", TEXT, "role of the root: trajectory, trainer, ..."),
    "status": Column("status", TEXT, ", ".join(STATUSES)),
    "error": Column("error", TEXT, "the error's type and message"),
    "reward": Column("reward", NUMBER, "reward"),
    "advantage": Column(json("facts"), NUMBER, "advantage", ('$."advantage"',)),
    "mismatch_mean": Column(json("facts"), NUMBER, "mean mismatch of log-probabilities", ('$."mismatch_mean"',)),
    "mismatch_max": Column(json("facts"), NUMBER, "the largest of one token", ('$."mismatch_max"',)),
    "entropy": Column(json("facts"), NUMBER, "mean entropy", ('$."entropy"',)),
    "turns": Column("turns", NUMBER, "LLM calls"),
    "llm_calls": Column("turns", NUMBER, "the same as turns"),
    "tool_calls": Column("tool_calls", NUMBER, "tool calls"),
    "spans": Column("spans", NUMBER, "calls of every kind"),
    "late_spans": Column("late_spans", NUMBER, "calls that began after the trajectory had ended"),
    "prompt_tokens": Column("prompt_tokens", NUMBER, "tokens of the first prompt"),
    "response_tokens": Column("response_tokens", NUMBER, "tokens generated over all turns"),
    "duration": Column("((end_ns - start_ns) / 1e9)", NUMBER, "seconds from the first call to the last"),
    "duration_s": Column("((end_ns - start_ns) / 1e9)", NUMBER, "the same as duration"),
    "start": Column("(start_ns / 1e9)", NUMBER, "when it began, in seconds since 1970"),
    "start_ns": Column("start_ns", NUMBER, "the same in nanoseconds"),
    "finding": Column(
        f"CASE WHEN {_EXAMINED} THEN nullif(json_array_length(profile, '$[3]')"
        " + ifnull(json_array_length(profile, '$[8]'), 0), 0) END", TEXT,
        "what was found of it: finding = 'AT-RETOKENIZED'", member="instr(profile, '[\"' || upper(?) || '\",') > 0",
        containing="EXISTS (SELECT 1 FROM json_each(json_array(json_extract(profile, '$[3]'),"
        " json_extract(profile, '$[8]'))) AS marks, json_each(marks.value) AS mark"
        " WHERE instr(json_extract(mark.value, '$[0]'), upper(?)))",
    ),
    "truncated": Column(
        f"CASE WHEN {_EXAMINED} THEN instr(profile, '[\"AT-TRUNCATED') > 0 END", FLAG, "cut at a limit of tokens"
    ),
    "tool_error": Column(
        f"CASE WHEN {_EXAMINED} THEN instr(profile, '[\"AT-TOOL-') > 0 OR EXISTS (SELECT 1 FROM"
        " json_each(profile, '$[2]') WHERE json_extract(value, '$[2]') > 0) END", FLAG, "a tool failed",
    ),
    **{
        name: Column(json("times"), NUMBER, f"seconds: {meaning}", (f'$."{name}"',))
        for name, meaning in {
            "queue_s": "waiting for the engine", "prefill_s": "prefill", "decode_s": "decode",
            "way_s": "router, Ray, HTTP", "llm_s": "a model whose engine is not traced", "tool_s": "tools",
            "reward_s": "reward", "other_s": "everything else",
        }.items()
    },
}  # fmt: skip
"""Name -> what it is; the names are veRL's."""
JSON = {
    "facts": "what became known later: facts.advantage, facts.reward_extra_info.acc",
    "attributes": "attributes of the first call",
}
"""Columns that hold names of the user's."""


def lookup(name: str) -> Column | None:
    """The column that people call ``name``; None: there is none."""
    column, _, rest = name.partition(".")
    if column in JSON and rest:
        return Column(json(column), ANY, "", ("$" + "".join(f'."{part}"' for part in rest.split(".")),))
    return COLUMNS.get(name)


NAMES = (*COLUMNS, *(f"{name}.NAME" for name in JSON))
"""Everything that can be named."""
