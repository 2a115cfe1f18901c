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

FACTS = Table("facts", "something that became known about a trajectory later", (
    *OF_ROLLOUT,
    Column("name", "string", "`reward`, `advantage`, `trained_in_step`, ...; `reward.1` is of a second output",
           attrgetter("name")),
    Column("number", "float64", "the value, if it is a number", lambda known: number(known.value)),
    Column("value", "json", "the value", lambda known: exact(known.value)),
), Rollout.known)  # fmt: skip

CHAINS = Table("chains", "a path through the turns of a trajectory: one, or several where it branches", (
    *OF_ROLLOUT,
    Column("chain", "int64", "0, 1, ... by their first own turns", attrgetter("chain.number")),
    Column("parent", "int64", "the chain that it leaves", attrgetter("chain.parent")),
    Column("after", "int64", "the turn after which it leaves that; 0: at its beginning",
           lambda one: None if one.chain.kind is None else one.chain.after),
    Column("kind", "string", "why: `sub-agent`, `compaction`, `rewrite`, `retry`, `best-of` or `restart`; empty: it"
           " leaves none", attrgetter("chain.kind")),
    Column("first_turn", "int64", "its first own turn; those before it belong to the chain that it leaves",
           lambda one: one.chain.turns[0]),
    Column("turns", "int64", "own turns", lambda one: len(one.chain.turns)),
    Column("tokens", "int64", "tokens that they generated", attrgetter("tokens")),
    Column("in_rows", "int64", "how many of these the rows of the trainer have; empty: not known",
           attrgetter("in_rows")),
    Column("row", "int64", "the trainer's row that it is, from 0; empty: none, or not known", attrgetter("row")),
    Column("trained", "int64", "tokens of that row that the loss is taken over, shared turns included",
           attrgetter("trained")),
    Column("clipped", "int64", "tokens of that row whose importance weight was cut", lambda one: one.count("clipped")),
    Column("reward", "float64", "of that row, else of the trajectory",
           lambda one: number(one.fact("reward")) if number(one.fact("reward")) is not None
           else number(one.rollout.facts.get("reward"))),
    Column("advantage", "float64", "of that row", lambda one: number(one.fact("advantage"))),
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
