"""Send a batch of trajectories into a store in the cheapest way, and find the trajectories that the store rejects."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from autotrace.run import files
from autotrace.sinks.mlflow.info import TOKEN_USAGE, Issue, TraceDescription
from autotrace.sinks.mlflow.spans import MlflowSpan
from autotrace.sinks.protocol import Refused, Unavailable, culprits

MAX_BYTES = 4 << 20
"""Bytes of spans in one request, about."""
PATIENCE = 5
"""Answers 500 to a trajectory, beside others that were taken, before the trajectory counts as rejected."""


def put(store: Store, experiment: str, run_id: str | None, part: Sequence[MlflowTrace]) -> None:
    """Store ``part`` in the cheapest way, and the rest through the store's own interface: descriptions, then spans."""
    try:
        left = store.write(experiment, part, run_id)
    except StoreError:
        if len(part) > 1:
            raise
        left = part
    if left:
        for one in left:
            store.start_trace(experiment, one.description)
        store.log_spans(experiment, [span for one in left for span in one.spans], run_id)
        for one in left if store.adds_usage else ():
            if TOKEN_USAGE in one.description.metadata:
                store.start_trace(experiment, one.description)


def isolate(
    batch: Sequence[MlflowTrace], send: Callable[[Sequence[MlflowTrace]], Any], tries: Counter[str]
) -> tuple[dict[str, str], list[MlflowTrace]]:
    """Send all, as ``culprits`` does; return (trace id -> reason, the deliveries that were taken).

    Raises ``Unavailable`` for a failure that may pass. ``tries`` counts such failures of a trajectory beside others
    that were taken; after ``PATIENCE`` failures the trajectory counts as the cause. Raises ``Refused`` if everything
    fails for the same reason: then the cause is the store and not the trajectories.
    """
    rejected: dict[str, str] = {}
    taken: list[MlflowTrace] = []
    passing: dict[str, StoreError] = {}

    def send_part(part: Sequence[MlflowTrace]) -> None:
        send(part)
        taken.extend(part)

    for one, error in culprits(batch, send_part, StoreError):
        if error.passing:
            passing[one.id] = error
        else:
            rejected[one.id] = str(error)
        if not taken and sum(tries[id] < PATIENCE for id in passing) > 2:  # the server may be down
            break
    if taken:
        tries.update(passing.keys())
    rejected.update({id: str(error) for id, error in passing.items() if tries[id] >= PATIENCE})
    if passing.keys() - rejected.keys():
        raise Unavailable(f"MLflow answers with errors: {next(iter(passing.values()))}")
    if not taken and len(rejected) > 2 and len(set(rejected.values())) == 1:
        raise Refused(f"MLflow rejected every trace: {next(iter(rejected.values()))}")
    return rejected, taken


class StoreError(Exception):
    """Reports that the store did not accept a request. The store accepts a request whole or not at all, so a part of
    the request may be the cause.

    ``passing``: the server may be the cause instead (an answer 500), and the same request may succeed later.
    """

    def __init__(self, message: str, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


@dataclass(frozen=True, eq=False)
class MlflowTrace:
    """Holds a trace on the way to the store."""

    description: TraceDescription
    spans: list[MlflowSpan]
    size: int
    """Bytes of the spans, about."""

    @property
    def id(self) -> str:
        """Return the trajectory's trace id."""
        return self.description.trace_id.removeprefix("tr-")


MAX_LINKED = 100
"""Limits the traces that MLflow links to a run in one request."""


class Store(Protocol):
    """Stores traces. Methods raise ``Unavailable``, ``Refused`` or ``StoreError``."""

    @property
    def max_traces(self) -> int:
        """Return the most traces of a request."""

    @property
    def adds_usage(self) -> bool:
        """Tell whether ``log_spans`` adds the spans' token counts to the counts of ``start_trace`` (MLflow 3.6 to
        3.11).

        The counts must then be stored again.
        """

    def experiment_id(self, name: str) -> str:
        """Return the id of the experiment ``name``, created if missing."""

    def issue(self, experiment_id: str, issue: Issue) -> str | None:
        """Return the id of ``issue``, created if missing; None: this MLflow has no issues (before 3.11)."""

    def write(self, experiment_id: str, deliveries: Sequence[MlflowTrace], run_id: str | None) -> Sequence[MlflowTrace]:
        """Store ``deliveries`` whole and in one go, in the cheapest way. Return the deliveries that need
        ``start_trace`` and ``log_spans``."""

    def log_spans(self, experiment_id: str, spans: Sequence[MlflowSpan], run_id: str | None) -> None:
        """Store spans, replacing spans of the same ids. Traces whose roots are among the spans (at most ``MAX_LINKED``)
        are linked to ``run_id``."""

    def start_trace(self, experiment_id: str, trace: TraceDescription) -> None:
        """Store the description of a trace, apart from the spans."""

    def learn(self, experiment_id: str, traces: Sequence[TraceDescription]) -> None:
        """Add the tags and the feedback of ``traces`` to the stored traces."""

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int, at_ms: int) -> None:
        """Add numbers to a run of the trainer."""

    def log_text(self, run_id: str, path: str, text: str) -> None:
        """Put a text below the artifacts of a run, replacing the text at ``path``."""

    def page(self, experiment_id: str, trace_id: str) -> str | None:
        """Return the URL of a trace."""

    def close(self) -> None:
        """Release connections; never raises."""


def deleted(name: str, experiment_id: str) -> Refused:
    """Report that nothing can be stored into the experiment ``name``, because the experiment is deleted."""
    return Refused(
        f"the MLflow experiment {name!r} is deleted; `mlflow experiments restore -x {experiment_id}` brings it back, "
        "--project chooses another"
    )


def put_text(artifact_uri: str, path: str, text: str) -> None:
    """Store ``text`` at ``path`` below ``artifact_uri`` (a folder, an object store), with MLflow's own client. Raises
    ``StoreError``."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    place = PurePosixPath(path)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, place.name)
            files.replace(file, text.encode(errors="replace"))
            repository: Any = get_artifact_repository(artifact_uri)  # comes without types
            repository.log_artifact(str(file), str(place.parent))
    except Exception as error:  # each kind of store raises what its library does
        raise StoreError(f"{type(error).__name__}: {error}"[:300]) from error
