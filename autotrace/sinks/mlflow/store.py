"""What the sink needs of an MLflow store; there are two implementations, ``server`` and ``sql``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotrace.sinks.mlflow.info import TraceDescription
from autotrace.sinks.mlflow.spans import MlflowSpan


class StoreError(Exception):
    """The store did not accept a request. It accepts one whole or not at all, so a part of it may be the reason.

    ``passing``: the reason may be the server instead (an answer 500), and the same request may succeed later.
    """

    def __init__(self, message: str, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


@dataclass(frozen=True, eq=False)
class Delivery:
    """One trace on its way."""

    description: TraceDescription
    spans: list[MlflowSpan]
    """All of them."""
    new: list[MlflowSpan]
    """Those that the store does not have yet in this form."""
    size: int
    """Bytes of those, about."""

    @property
    def id(self) -> str:
        """The trajectory's trace id."""
        return self.description.trace_id.removeprefix("tr-")


MAX_LINKED = 100
"""Traces that MLflow links to a run in one request."""


class Store(Protocol):
    """Raises ``Unavailable``, ``Refused`` or ``StoreError``."""

    @property
    def max_traces(self) -> int:
        """Traces in one request, at most."""

    @property
    def adds_usage(self) -> bool:
        """``log_spans`` adds the spans' token counts to those that ``start_trace`` stored (MLflow 3.6 to 3.11), so that
        they must be stored again."""

    def experiment_id(self, name: str) -> str:
        """Id of the experiment ``name``, which is created if need be."""

    def write(self, experiment_id: str, deliveries: Sequence[Delivery], run_id: str | None) -> Sequence[Delivery]:
        """Store ``deliveries`` whole and in one go, in the cheapest way; those that this way cannot take are returned,
        for ``start_trace`` and ``log_spans``."""

    def log_spans(self, experiment_id: str, spans: Sequence[MlflowSpan], run_id: str | None) -> None:
        """Store spans, replacing those of the same ids; the traces whose roots are among them (at most ``MAX_LINKED``)
        are linked to ``run_id``."""

    def start_trace(self, experiment_id: str, trace: TraceDescription) -> None:
        """Store what is known about a trace beside its spans."""

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int, at_ms: int) -> None:
        """Add numbers to a run of the trainer's."""

    def log_text(self, run_id: str, path: str, text: str) -> None:
        """Put a text below the artifacts of a run, instead of what is there at ``path``."""

    def page(self, experiment_id: str, trace_id: str) -> str | None:
        """URL of a trace."""

    def close(self) -> None:
        """Release connections; never raises."""
