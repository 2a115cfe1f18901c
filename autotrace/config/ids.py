"""The forms of ids, as expressions that Python and DuckDB read alike. An id becomes the name of a file, of a part of
the page and of its addresses, so a reader of rows checks the ids first: a stranger may have written them."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

TRACE = "[0-9a-f]{32}"
SPAN = "[0-9a-f]{1,16}"
"""autotrace writes 16 digits."""
RUN = "([0-9A-Za-z_][0-9A-Za-z_.-]{0,127})?"
"""Empty where a file of lines names no run."""
OF_COLUMN = {
    "trace_id": TRACE, "run_id": RUN,
    **dict.fromkeys(("span_id", "parent_id", "prompt_base", "mask_of", "text_base", "prompt_of"), f"({SPAN})?"),
}  # fmt: skip
"""Column of a table -> form of its values."""


SpanId = Annotated[str, Meta(pattern=rf"\A{SPAN}\Z")]
RunId = Annotated[str, Meta(pattern=rf"\A{RUN}\Z")]


def run_id(name: str, otherwise: str) -> str:
    """Return the id of a run that only the name of a folder tells: ``name`` with ``-`` for what no id has."""
    return re.sub("[^0-9A-Za-z_.-]+", "-", name).strip(".-")[:128] or otherwise
