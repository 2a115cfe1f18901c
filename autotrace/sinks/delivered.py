"""What a sink remembers of what its backend has, so that a late fact does not send a whole trajectory again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

MOST = 100_000
"""Values that are remembered (about 20 MB), those of the latest traces."""


class Delivered:
    """Trace id and name -> value: of a call its digest. What was forgotten is sent again, which replaces it."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._count = 0

    def of(self, trace_id: str) -> dict[str, Any]:
        """All that is known of a trace."""
        return self._traces.get(trace_id, {})

    def put(self, trace_id: str, name: str, value: Any) -> None:
        """The backend has ``value``."""
        names = self._traces.setdefault(trace_id, {})
        self._count += name not in names
        names[name] = value
        while self._count > MOST:
            self._count -= len(self._traces.popitem(last=False)[1])
