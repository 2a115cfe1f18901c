"""What can be wrong with a question."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from autotrace.config.installation import DISTRIBUTION


class QueryError(ValueError):
    """A question cannot be answered; the message is one sentence for the user."""


def unknown(kind: str, name: str, choices: Iterable[str]) -> QueryError:
    """There is no such table or column."""
    names = list(choices)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
    return QueryError(f"there is no {kind} {name}; {hint}")


def missing(library: str, extra: str | None = None) -> ModuleNotFoundError:
    """A library is not installed."""
    remedy = f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {library}"
    return ModuleNotFoundError(f"this needs {library}, which is not installed: {remedy}", name=library)
