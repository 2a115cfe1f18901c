"""Check the forms of ids, as regular expressions that Python and DuckDB read alike.

An id becomes part of file names, of the page and of the page's addresses. A reader of rows checks the ids first,
because a stranger may have written the rows.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

TRACE = "[0-9a-f]{32}"
SPAN = "[0-9a-f]{1,16}"
"""Span id; autotrace writes 16 digits."""
RUN = "([0-9A-Za-z_][0-9A-Za-z_.-]{0,127})?"
"""Runs id; empty if a file of lines names no run."""
OF_COLUMN = {
    "trace_id": TRACE, "run_id": RUN,
    **dict.fromkeys(("span_id", "parent_id", "prompt_base", "mask_of", "text_base", "prompt_of"), f"({SPAN})?"),
}  # fmt: skip
"""Maps a column of a table to the form of the column's values."""


SpanId = Annotated[str, Meta(pattern=rf"\A{SPAN}\Z")]
RunId = Annotated[str, Meta(pattern=rf"\A{RUN}\Z")]


def run_id(name: str, otherwise: str) -> str:
    """Return a run id made from a folder's ``name``: each run of characters that no id may hold becomes ``-``."""
    return re.sub("[^0-9A-Za-z_.-]+", "-", name).strip(".-")[:128] or otherwise
