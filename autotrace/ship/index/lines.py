"""Lines of the state as findings read them."""

from __future__ import annotations

from typing import Any

import msgspec

from autotrace.insight.profile import Profile
from autotrace.insight.records import Record
from autotrace.ship.store.row import Row


def record(row: Row, known: Profile) -> Record:
    """Of a line of the state."""
    facts: dict[str, Any] = msgspec.json.decode(row.facts)
    return Record(
        row.trace_id, row.group, row.step, row.status, known, bool(row.validate), row.uid, row.data_source, row.reward,
        facts, msgspec.json.decode(row.times), row.start_ns, row.end_ns, row.attempt, row.rollout_n, row.error,
    )  # fmt: skip
