"""Batches of trajectories into one store: what is new in them, the cheapest way, and what it rejects."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from autotrace.sinks.mlflow.info import TOKEN_USAGE, TraceDescription
from autotrace.sinks.mlflow.spans import MlflowSpan
from autotrace.sinks.mlflow.store import Delivery, Store, StoreError
from autotrace.sinks.protocol import Refused, Unavailable

MAX_BYTES = 4 << 20
"""Bytes of spans in one request, about."""
PATIENCE = 5
"""Answers 500 to one trajectory, beside others that were taken, until it counts as rejected."""
REMEMBERED = 100_000
"""Delivered spans that are remembered (about 20 MB), those of the latest traces."""

Encoded = tuple[TraceDescription, list[MlflowSpan]]


class Sender:
    """Sends to one store and remembers what it took, so that a late fact does not send a trajectory again."""

    def __init__(self) -> None:
        self.sent = 0
        """Bytes of spans that were taken."""
        self._tries: Counter[str] = Counter()
        self._delivered: OrderedDict[str, dict[str, int]] = OrderedDict()
        """Trace id -> span id -> digest of what MLflow has."""
        self._remembered = 0
        """Spans in it."""

    def send(self, store: Store, experiment: str, run_id: str | None, group: Iterable[Encoded]) -> dict[str, str]:
        """Store ``group``; trace id -> reason for those that MLflow rejected."""
        destination = f"{experiment}/{run_id}"
        rejected: dict[str, str] = {}
        encoded = (self._delivery(trace, spans, destination) for trace, spans in group)
        for deliveries in _batches(encoded, store.max_traces):
            left = _written(store, experiment, deliveries, run_id)
            self._remember([one for one in deliveries if one not in left], destination)
            if left:
                rejected.update(self._singly(store, experiment, run_id, left, destination))
        return rejected

    def _singly(
        self, store: Store, experiment: str, run_id: str | None, left: Sequence[Delivery], destination: str
    ) -> dict[str, str]:
        """Through the store's own interface: descriptions one by one, then the spans of all."""

        def describe_all(part: Sequence[Delivery]) -> None:
            for delivery in part:
                store.start_trace(experiment, delivery.description)

        def log_all(part: Sequence[Delivery]) -> None:
            store.log_spans(experiment, [span for delivery in part for span in delivery.new], run_id)
            if store.adds_usage:
                describe_all([delivery for delivery in part if TOKEN_USAGE in delivery.description.metadata])

        rejected: dict[str, str] = {}
        described: list[Delivery] = []
        for delivery in left:
            refused, accepted = isolate([delivery], describe_all, self._tries)
            rejected.update(refused)
            described.extend(accepted)
        _all_alike(rejected, bool(described))
        new = [delivery for delivery in described if delivery.new]
        if new:
            refused, stored = isolate(new, log_all, self._tries)
            rejected.update(refused)
            self._remember(stored, destination)
        return rejected

    def _delivery(self, trace: TraceDescription, spans: list[MlflowSpan], destination: str) -> Delivery:
        new, digests = spans, self._delivered.get(trace.trace_id)
        if digests is not None:
            new = [span for span in spans if digests.get(span.span_id) != span.digest(destination)]
        return Delivery(trace, spans, new, sum(span.size for span in new))

    def _remember(self, deliveries: Sequence[Delivery], destination: str) -> None:
        for delivery in deliveries:
            digests = self._delivered.setdefault(delivery.description.trace_id, {})
            self._remembered -= len(digests)
            digests.update({span.span_id: span.digest(destination) for span in delivery.new})
            self._remembered += len(digests)
            self.sent += delivery.size
        while self._remembered > REMEMBERED:
            _, digests = self._delivered.popitem(last=False)
            self._remembered -= len(digests)


def _written(store: Store, experiment: str, deliveries: list[Delivery], run_id: str | None) -> list[Delivery]:
    """Store what can be stored in one go; those that cannot be, or are rejected there."""
    left: list[Delivery] = []
    parts = [deliveries]
    while parts:
        part = parts.pop()
        try:
            left += store.write(experiment, part, run_id)
        except StoreError:
            if len(part) == 1:
                left += part
            else:
                parts += [part[: len(part) // 2], part[len(part) // 2 :]]
    return left


def isolate(
    batch: Sequence[Delivery], send: Callable[[Sequence[Delivery]], Any], tries: Counter[str]
) -> tuple[dict[str, str], list[Delivery]]:
    """Send all, halving what is rejected until the culprits stand alone: (trace id -> reason, those that were taken).

    Raises ``Unavailable`` when something fails in a way that may pass (``tries``: how often it did so beside others
    that were taken; after ``PATIENCE`` times it is to blame itself), ``Refused`` when everything fails for one reason:
    then it is the store and not the trajectories.
    """
    rejected: dict[str, str] = {}
    taken: list[Delivery] = []
    passing: dict[str, StoreError] = {}
    parts = [batch]
    while parts:
        part = parts.pop()
        try:
            send(part)
            taken.extend(part)
        except StoreError as error:
            if len(part) > 1:
                parts += [part[: len(part) // 2], part[len(part) // 2 :]]
                continue
            if error.passing:
                passing[part[0].id] = error
            else:
                rejected[part[0].id] = str(error)
    if taken:
        tries.update(passing.keys())
    rejected.update({id: str(error) for id, error in passing.items() if tries[id] >= PATIENCE})
    if passing.keys() - rejected.keys():
        raise Unavailable(f"MLflow answers with errors: {next(iter(passing.values()))}")
    _all_alike(rejected, bool(taken))
    return rejected, taken


def _all_alike(rejected: Mapping[str, str], some_taken: bool) -> None:
    """Raises ``Refused`` when all were rejected for one reason: then it is the store, not the trajectories."""
    if not some_taken and len(rejected) > 2 and len(set(rejected.values())) == 1:
        raise Refused(f"MLflow rejected every trace: {next(iter(rejected.values()))}")


def _batches(deliveries: Iterable[Delivery], most: int) -> Iterator[list[Delivery]]:
    batch: list[Delivery] = []
    size = 0
    for delivery in deliveries:
        if batch and (size + delivery.size > MAX_BYTES or len(batch) >= most):
            yield batch
            batch, size = [], 0
        batch.append(delivery)
        size += delivery.size
    if batch:
        yield batch
