"""Describe the tables: every column with type, meaning and source, in a single place.

Names are veRL's where veRL has a name, else names of rLLM, slime or the GenAI conventions. ``make pages`` writes
``docs/data.md`` from this module.
"""

from __future__ import annotations

from operator import attrgetter

from autotrace.tables.call_tables import SPANS, TOKENS, TURNS
from autotrace.tables.columns import OF_ROLLOUT, Column, Table
from autotrace.tables.metrics import METRICS
from autotrace.tables.rollout import Rollout, exact
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.trajectory.jsonable import number

VERSION = 1
"""Version of the schema: increases when a column changes its meaning or is removed; new columns and tables keep the
version."""

FACTS = Table("facts", "a value that became known about a trajectory later", (
    *OF_ROLLOUT,
    Column("name", "string", "`reward`, `advantage`, `trained_in_step`, ...; `reward.1` belongs to a second output",
           attrgetter("name")),
    Column("number", "float64", "the value, if it is a number", lambda known: number(known.value)),
    Column("value", "json", "the value", lambda known: exact(known.value)),
), Rollout.known)  # fmt: skip

CHAINS = Table("chains", "a path through the turns of a trajectory; a trajectory that branches has several", (
    *OF_ROLLOUT,
    Column("chain", "int64", "0, 1, ... ordered by first own turn", attrgetter("chain.number")),
    Column("parent", "int64", "the chain from which this chain branches", attrgetter("chain.parent")),
    Column("after", "int64", "the last shared turn; 0: the chains share no turn",
           lambda one: None if one.chain.kind is None else one.chain.after),
    Column("kind", "string", "reason: `sub-agent`, `compaction`, `rewrite`, `retry`, `best-of` or `restart`;"
           " empty: no parent", attrgetter("chain.kind")),
    Column("first_turn", "int64", "first own turn; earlier turns belong to the parent",
           lambda one: one.chain.turns[0]),
    Column("turns", "int64", "own turns", lambda one: len(one.chain.turns)),
    Column("tokens", "int64", "tokens generated in the own turns", attrgetter("tokens")),
    Column("in_rows", "int64", "number of `tokens` that the trainer's rows contain; empty: not known",
           attrgetter("in_rows")),
    Column("row", "int64", "the trainer's row of this chain, from 0; empty: no row, or not known", attrgetter("row")),
    Column("trained", "int64", "tokens of `row` in the loss, shared turns included",
           attrgetter("trained")),
    Column("clipped", "int64", "tokens of `row` with a clipped importance weight", lambda one: one.count("clipped")),
    Column("reward", "float64", "reward of `row`, else of the trajectory",
           lambda one: number(one.fact("reward")) if number(one.fact("reward")) is not None
           else number(one.rollout.facts.get("reward"))),
    Column("advantage", "float64", "advantage of `row`", lambda one: number(one.fact("advantage"))),
), Rollout.chains)  # fmt: skip

OF_TRAJECTORIES: dict[str, Table] = {table.name: table for table in (TRAJECTORIES, TURNS, SPANS, FACTS, TOKENS, CHAINS)}
"""Tables whose rows each belong to a single trajectory."""
WITH_FACTS = (FACTS.name, CHAINS.name)
"""Tables that are written again when new facts of a trajectory arrive: the rows of the newest version count."""
TABLES: dict[str, Table] = {**OF_TRAJECTORIES, METRICS.name: METRICS}


def markdown() -> str:
    """Return the tables as Markdown for ``docs/data.md``."""
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
