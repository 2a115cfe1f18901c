"""List the errors of questions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from autotrace.config.installation import install, installer

if TYPE_CHECKING:
    from autotrace.tables.columns import Table


class QueryError(ValueError):
    """Report that a question cannot be answered; the message is a sentence for the user."""


class NotFound(QueryError, KeyError):
    """Report that a trajectory, call or column does not exist."""

    __str__ = QueryError.__str__  # without the quotes of a ``KeyError``


class Gone(NotFound):
    """Report that only the line of a trajectory is left: the segments or tables were removed by hand, or by an earlier
    release (``--spool-limit``)."""


def unknown(kind: str, name: str, choices: Iterable[str]) -> QueryError:
    """Return the error for a table or column that does not exist, with the nearest name."""
    names = list(choices)
    near = sorted(difflib.get_close_matches(name, names), key=lambda one: not name.startswith(one))  # a plural first
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
    return QueryError(f"there is no {kind} {name}; {hint}")


def missing(library: str, extra: str | None = None) -> ModuleNotFoundError:
    """Return the error for a library that is not installed, with the command that installs the library."""
    remedy = install(extra) if extra else f"{installer()} {library}"
    return ModuleNotFoundError(f"this needs {library}, which is not installed: {remedy}", name=library)


def known(name: str, columns: Sequence[str] | None = None) -> Table:
    """Return the table ``name`` after checking that the table has ``columns``. Raises ``QueryError``."""
    from autotrace.tables.schema import TABLES

    if name not in TABLES:
        raise unknown("table", name, TABLES)
    table = TABLES[name]
    names = [column.name for column in table.columns]
    for column in columns or ():
        if column not in names:
            raise unknown(f"column of {name} called", column, names)
    return table
