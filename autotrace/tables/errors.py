"""What can be wrong with a question."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from autotrace.config.installation import install

if TYPE_CHECKING:
    from autotrace.tables.columns import Table


class QueryError(ValueError):
    """A question cannot be answered; the message is one sentence for the user."""


class NotFound(QueryError, KeyError):
    """There is no such trajectory, call or column."""

    __str__ = QueryError.__str__  # without the quotes of a ``KeyError``


class Gone(NotFound):
    """Only the line of a trajectory is left: its segments or its tables were removed by hand, or by an earlier
    release (``--spool-limit``)."""


def unknown(kind: str, name: str, choices: Iterable[str]) -> QueryError:
    """There is no such table or column."""
    names = list(choices)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
    return QueryError(f"there is no {kind} {name}; {hint}")


def missing(library: str, extra: str | None = None) -> ModuleNotFoundError:
    """A library is not installed."""
    remedy = install(extra) if extra else f"pip install {library}"
    return ModuleNotFoundError(f"this needs {library}, which is not installed: {remedy}", name=library)


def known(name: str, columns: Sequence[str] | None = None) -> Table:
    """The table ``name``, which has ``columns``. Raises ``QueryError``."""
    from autotrace.tables.schema import TABLES

    if name not in TABLES:
        raise unknown("table", name, TABLES)
    table = TABLES[name]
    names = [column.name for column in table.columns]
    for column in columns or ():
        if column not in names:
            raise unknown(f"column of {name} called", column, names)
    return table
