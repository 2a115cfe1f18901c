"""The tables: every column with its type, what it means, and where its value comes from. The one place for all of it.

Names are veRL's where veRL has one, else those of rLLM, slime or the GenAI conventions. ``docs/data.md`` is made of
this: ``python -m autotrace.tables.schema`` prints its tables.
"""

from __future__ import annotations

from operator import attrgetter

from autotrace.tables.calls import SPANS, TOKENS, TURNS
from autotrace.tables.columns import OF_ROLLOUT, Column, Table
from autotrace.tables.metrics import METRICS
from autotrace.tables.rollout import Call, Known, Rollout, exact
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.trajectory.numbers import number

VERSION = 1
"""Counts up when a column changes its meaning or goes; new columns and tables need no new version."""

FACTS = Table("facts", "something that became known about a trajectory later", (
    *OF_ROLLOUT,
    Column("name", "string", "`reward`, `advantage`, `trained_in_step`, ...; `reward.1` is of a second output",
           attrgetter("name")),
    Column("number", "float64", "the value, if it is a number", lambda known: number(known.value)),
    Column("value", "json", "the value", lambda known: exact(known.value)),
))  # fmt: skip

OF_TRAJECTORIES: dict[str, Table] = {table.name: table for table in (TRAJECTORIES, TURNS, SPANS, FACTS, TOKENS)}
"""Those whose rows belong to one trajectory each."""
TABLES: dict[str, Table] = {**OF_TRAJECTORIES, METRICS.name: METRICS}


def rows(table: Table, rollouts: list[Rollout]) -> list[Rollout] | list[Call] | list[Known]:
    """What ``Column.of`` is asked for each row of ``table``, one of ``OF_TRAJECTORIES``."""
    if table is TRAJECTORIES:
        return rollouts
    if table is TURNS:
        return [call for rollout in rollouts for call in rollout.worded]
    if table is SPANS:
        return [call for rollout in rollouts for call in rollout.spans]
    if table is TOKENS:
        return [call for rollout in rollouts for call in rollout.computed]
    return [known for rollout in rollouts for known in rollout.known()]


def markdown() -> str:
    """The tables as they stand in ``docs/data.md``."""
    parts = []
    for table in TABLES.values():
        lines = [
            f"### `{table.name}`",
            "",
            f"A row is {table.row}.",
            "",
            "| column | type | what it is |",
            "|---|---|---|",
        ]
        lines += [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in table.columns]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
