"""Hold one line about a trace for ``autotrace ls``, kept in the state so that no segment must be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

ALL, LOCAL = "all", ""
"""Set ``TraceRow.kept`` where no rule applies, and for a trajectory that stays in the run folder."""


class TraceRow(msgspec.Struct):
    """Hold one trace. The fields of a trajectory's identity are veRL's; None where the trace has no such field."""

    trace_id: str
    name: str = ""
    """Name of the root span; empty until the root was seen."""
    role: str = ""
    """Role of the root: ``trajectory``, or the first role of a trace without a trajectory (``trainer``)."""
    status: str = "OPEN"
    step: int | None = None
    sample_index: str | None = None
    """Store as text: a dataset's index may be a number or a uuid."""
    rollout_n: int | None = None
    validate: bool | None = None
    uid: str | None = None
    session: str | None = None
    """Store ``session_id`` of veRL's V1 path, otherwise ``rollout_n``, as text: with ``uid`` the key of late facts."""
    data_source: str | None = None
    experiment_name: str | None = None
    project_name: str | None = None
    attempt: int = 1
    """Count how often the same (uid, session) began: 1, then 2, and so on."""
    start_ns: int | None = None
    end_ns: int | None = None
    turns: int = 0
    tool_calls: int = 0
    spans: int = 0
    late_spans: int = 0
    """Count the calls that began after the root had ended."""
    prompt_tokens: int | None = None
    """Count the tokens of the first prompt."""
    response_tokens: int | None = None
    """Count the tokens generated over all turns."""
    reward: float | None = None
    error: str | None = None
    """Store ``Type: message`` of the root, or of the first span that failed."""
    facts: str = "{}"
    """Store all facts as a JSON object."""
    attributes: str = "{}"
    """Store the root's attributes as a JSON object."""
    times: str = "{}"
    """Store where the time went (``durations.Times``) as a JSON object, once the trace is complete."""
    profile: str = "{}"
    """Store what findings need (``insight.profile``), once the trace is complete; ``{}``: not examined."""
    group_key: str | None = None
    """Store the key that the rollouts of one prompt in one step share (``tables.rollout``), once the root was read."""
    kept: str | None = None
    """Store why the keep-rules admit the trace (``all``: without rules); empty: the trace stays in the spool; None:
    undecided."""
    complete: bool = False
    version: int = 0
    """Count the additions to the complete trace."""
    root_id: str = ""
    """Store the span id of the root, once the trace is complete."""

    @property
    def group(self) -> str:
        """Return the key that the rollouts of one prompt in one step share."""
        return self.group_key or self.trace_id

    @property
    def root_read(self) -> bool:
        """Return whether the root's beginning was read. A trace that is delivered earlier has the name of a call that
        was read."""
        return self.group_key is not None

    @classmethod
    def of(cls, values: Iterable[Any]) -> TraceRow:
        """Create a row from a row of the state, whose columns are in the order of ``COLUMNS``."""
        row = cls(*values)
        if row.validate is not None:
            row.validate = bool(row.validate)
        row.complete = bool(row.complete)
        return row

    def values(self) -> tuple[Any, ...]:
        """Return the values in the order of ``COLUMNS``."""
        return msgspec.structs.astuple(self)


COLUMNS = TraceRow.__struct_fields__
"""List the fields of ``TraceRow``, in order."""
