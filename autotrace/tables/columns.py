"""What a table and a column are, and the columns by which every table says whose its rows are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    type: str
    """``string`` | ``json`` (text) | ``bool`` | ``int64`` | ``int32`` | ``int8`` | ``float64`` | ``float32`` |
    ``list<...>`` of one of them."""
    meaning: str
    of: Callable[[Any], Any]
    """Its value in a row; None: not known."""
    text: bool = False
    """Needs the tokens decoded."""
    packed: Callable[[Any], bytes | None] | None = None
    """Of a list of numbers: the same as an array of them has it, where that is at hand; None: ask ``of``."""
    head: str = ""
    """Of a trajectory's: its head in ``autotrace ls``, which shows it where a trajectory has a value. ``ls`` assembles
    nothing for what it only shows: a value that the run's state lacks appears once the trajectory is in the tables.
    Empty: not shown, or shown in a way of its own."""
    tag: bool = False
    """Of a trajectory's: backends show it as a tag, or an attribute, of the trace."""
    fact: Callable[[Any], Any] | None = None
    """Of a trajectory's: the column is the fact of the same name, which may become known later, and this makes the
    column's value of the fact's. None: it is not a fact."""


@dataclass(frozen=True)
class Table:
    """One table."""

    name: str
    row: str
    """What a row is."""
    columns: tuple[Column, ...]
    of: Callable[[Any], Iterable[Any]] = lambda rollout: ()
    """What ``Column.of`` is asked for each row that a ``Rollout`` has."""

    def rows(self, rollouts: Iterable[Any]) -> list[Any]:
        """The same of all ``rollouts``."""
        return [row for rollout in rollouts for row in self.of(rollout)]

    def chosen(self, *names: str) -> list[Column]:
        """The columns that are called so. Raises ``KeyError``."""
        by_name = {column.name: column for column in self.columns}
        return [by_name[name] for name in names]


IDENTITY = (
    Column("run_id", "string", "the run", attrgetter("run_id"), tag=True),
    Column("trace_id", "string", "the trajectory: its id in every backend and command", attrgetter("trace_id")),
    Column("version", "int64", "counts up when calls or facts of it came after it was complete", attrgetter("version")),
    Column("step", "int64", "training step", attrgetter("step"), tag=True),
    Column("uid", "string", "the prompt in this step: the rollouts of a group share it", attrgetter("uid"), tag=True),
    Column("rollout_n", "int64", "number of the rollout in its group", attrgetter("rollout_n"), tag=True),
    Column("validate", "bool", "whether it is of a validation", attrgetter("validate"), tag=True),
)
ID = ("run_id", "trace_id")
"""What tells trajectories apart: an actor that outlives a run may give two runs the same trace id."""
id_of: Callable[[Any], tuple[str, str]] = attrgetter(*ID)
OF_ROLLOUT = tuple(dataclasses.replace(column, of=attrgetter(f"rollout.{column.name}")) for column in IDENTITY)


def of_span(
    name: str,
    kind: str,
    meaning: str,
    field: str | None = None,
    made: Callable[[Any], Any] | None = None,
    *,
    text: bool = False,
) -> Column:
    """A column that is made of one field of a call's span: of the one that is called the same, as it is. ``made`` is
    called where the field has a value."""
    of = attrgetter(f"span.{field or name}")
    if made is None:
        return Column(name, kind, meaning, of, text)
    return Column(name, kind, meaning, lambda call: None if (value := of(call)) is None else made(value), text)


def duration(start_ns: int, end_ns: int | None) -> float | None:
    """Seconds; None of what has not ended."""
    return None if end_ns is None else (end_ns - start_ns) / 1e9
