"""One line about a trace: what ``autotrace ls`` shows, kept in the state so that no segment must be read for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

ALL, LOCAL = "all", ""
"""``TraceRow.kept`` where no rule has a say, and of a trajectory that stays in the run folder."""


class TraceRow(msgspec.Struct):
    """One trace. Fields of a trajectory's identity are those of veRL; None where the trace has none."""

    trace_id: str
    name: str = ""
    """Name of the root span; empty until the root was seen."""
    role: str = ""
    """Role of the root: ``trajectory``, or what a trace without a trajectory begins with (``trainer``)."""
    status: str = "OPEN"
    step: int | None = None
    sample_index: str | None = None
    """Text: a dataset's index may be a number or a uuid."""
    rollout_n: int | None = None
    validate: bool | None = None
    uid: str | None = None
    session: str | None = None
    """``session_id`` of veRL's V1 path, else ``rollout_n``, as text: with ``uid`` the key of late facts."""
    data_source: str | None = None
    experiment_name: str | None = None
    project_name: str | None = None
    attempt: int = 1
    """1, or 2 when the same (uid, session) began once more, and so on."""
    start_ns: int | None = None
    end_ns: int | None = None
    turns: int = 0
    tool_calls: int = 0
    spans: int = 0
    late_spans: int = 0
    """Calls that began after the root had ended."""
    prompt_tokens: int | None = None
    """Tokens of the first prompt."""
    response_tokens: int | None = None
    """Tokens generated over all turns."""
    reward: float | None = None
    error: str | None = None
    """``Type: message`` of the root, or of the first span that failed."""
    facts: str = "{}"
    """JSON object of all facts."""
    attributes: str = "{}"
    """JSON object of the root's attributes."""
    times: str = "{}"
    """JSON object: where the time went (``durations.Times``), once the trace is complete."""
    profile: str = "{}"
    """What findings need to know of it (``insight.profile``), once the trace is complete; ``{}``: not examined."""
    group_key: str | None = None
    """What the rollouts of one prompt in one step share (``tables.rollout``); set once the root was read."""
    kept: str | None = None
    """Why the keep-rules let it be delivered (``all``: there are none); empty: it stays in the spool; None:
    undecided."""
    complete: bool = False
    version: int = 0
    """Counts up whenever something is added to a complete trace."""
    root_id: str = ""
    """Span id of the root, once the trace is complete."""

    @property
    def group(self) -> str:
        """What the rollouts of one prompt in one step share."""
        return self.group_key or self.trace_id

    @property
    def root_read(self) -> bool:
        """Whether the root's beginning was read. What was delivered without it has the name of a call that was."""
        return self.group_key is not None

    @classmethod
    def of(cls, values: Iterable[Any]) -> TraceRow:
        """From a row of the state, whose columns are in the order of ``COLUMNS``."""
        row = cls(*values)
        if row.validate is not None:
            row.validate = bool(row.validate)
        row.complete = bool(row.complete)
        return row

    def values(self) -> tuple[Any, ...]:
        """In the order of ``COLUMNS``."""
        return msgspec.structs.astuple(self)


COLUMNS = TraceRow.__struct_fields__
"""Its fields, in order."""
