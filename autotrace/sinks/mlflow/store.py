"""What the sink needs of an MLflow store; there are two implementations, ``server`` and ``sql``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan


class StoreError(Exception):
    """The store did not accept a request. It accepts one whole or not at all, so a part of it may be the reason.

    ``passing``: the reason may be the server instead (an answer 500), and the same request may succeed later.
    """

    def __init__(self, message: str, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class Store(Protocol):
    """Raises ``Unavailable``, ``Refused`` or ``StoreError``."""

    def experiment_id(self, name: str) -> str:
        """Id of the experiment ``name``, which is created if need be."""

    def log_spans(self, experiment_id: str, spans: Sequence[OtlpSpan], run_id: str | None) -> None:
        """Store spans, replacing those of the same ids; the traces whose roots are among them (at most 100) are linked
        to ``run_id``."""

    def start_trace(self, info: Mapping[str, Any]) -> None:
        """Store the trace info that ``info.describe`` made."""

    def page(self, experiment_id: str, trace_id: str) -> str | None:
        """URL of a trace."""

    def close(self) -> None:
        """Release connections; never raises."""
