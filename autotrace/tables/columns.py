"""Describe tables and columns, and the columns with which every table identifies the trajectory of a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any


@dataclass(frozen=True)
class Column:
    """Describe a column: name, type, meaning and value."""

    name: str
    type: str
    """``string`` | ``json`` (text) | ``bool`` | ``int64`` | ``int32`` | ``int8`` | ``float64`` | ``float32`` |
    ``list<...>`` of such a type."""
    meaning: str
    of: Callable[[Any], Any]
    """Return the value of the column for a row; None: not known."""
    text: bool = False
    """Whether the value needs decoded tokens."""
    packed: Callable[[Any], bytes | None] | None = None
    """Return a list of numbers as the bytes of an array, if the bytes exist already; None: call ``of``."""
    head: str = ""
    """Heading of a trajectory's column in ``autotrace ls``, which shows the column where a trajectory has a value.
    ``ls`` assembles nothing for a column that is only shown: a value that the state of the run lacks appears once the
    trajectory is in the tables. Empty: not shown, or shown in another way."""
    tag: bool = False
    """Whether backends show the value of a trajectory as a tag or an attribute of the trace."""
    fact: Callable[[Any], Any] | None = None
    """Convert the fact of the same name, which may become known later, to the column's value. None: the column is not a
    fact of a trajectory."""


@dataclass(frozen=True)
class Table:
    """Describe a table: name, columns and rows."""

    name: str
    row: str
    """Description of a row in the documentation."""
    columns: tuple[Column, ...]
    of: Callable[[Any], Iterable[Any]] = lambda rollout: ()
    """Return the objects that ``Column.of`` takes: one object for each row of a ``Rollout``."""

    def rows(self, rollouts: Iterable[Any]) -> list[Any]:
        """Return the row objects of all ``rollouts``."""
        return [row for rollout in rollouts for row in self.of(rollout)]

    def chosen(self, *names: str) -> list[Column]:
        """Return the columns with these names. Raises ``KeyError``."""
        by_name = {column.name: column for column in self.columns}
        return [by_name[name] for name in names]


IDENTITY = (
    Column("run_id", "string", "the run", attrgetter("run_id"), tag=True),
    Column("trace_id", "string", "id of the trajectory in every backend and command", attrgetter("trace_id")),
    Column("version", "int64", "counts up when calls or facts come after completion", attrgetter("version")),
    Column("step", "int64", "training step", attrgetter("step"), tag=True),
    Column("uid", "string", "the prompt in this step, shared by the group", attrgetter("uid"), tag=True),
    Column("rollout_n", "int64", "number of the rollout in the group", attrgetter("rollout_n"), tag=True),
    Column("validate", "bool", "whether the rollout belongs to a validation", attrgetter("validate"), tag=True),
)
ID = ("run_id", "trace_id")
"""Columns that identify a trajectory: an actor that outlives a run may give two runs the same trace id."""
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
    """Return a column that shows a field of the call's span; by default the field has the column's name. ``made``
    converts a value that is not None."""
    of = attrgetter(f"span.{field or name}")
    if made is None:
        return Column(name, kind, meaning, of, text)
    return Column(name, kind, meaning, lambda call: None if (value := of(call)) is None else made(value), text)


def duration(start_ns: int, end_ns: int | None) -> float | None:
    """Return the duration in seconds; None if the end is not known."""
    return None if end_ns is None else (end_ns - start_ns) / 1e9
