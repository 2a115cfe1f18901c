"""Trajectories into MLflow: which store, which experiment, which run, and what to do with what it rejects."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from autotrace.config import environment as env
from autotrace.redact.masking import masked_uri
from autotrace.run import layout
from autotrace.run.info import RunInfo
from autotrace.sinks import DEFAULT_PROJECT
from autotrace.sinks.backend import extra
from autotrace.sinks.mlflow.info import describe, trace_id_of
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.mlflow.store import Store, StoreError
from autotrace.sinks.mlflow.tags import linked
from autotrace.sinks.mlflow.uri import check_uri, ui_command
from autotrace.sinks.protocol import Refused, Rejected, Unavailable
from autotrace.trajectory.model import Trajectory

RUN_WAIT = 30.0
"""Seconds to wait for veRL's own MLflow run when its configuration says that there will be one."""
MAX_BYTES = 8 << 20
"""Of spans in one request, about."""
PATIENCE = 5
"""Answers 500 to one trajectory, beside others that were taken, until it counts as rejected."""
REMEMBERED = 4_096
"""Traces whose delivered spans are remembered."""
MAX_ROOTS = 100
"""Traces in one request: MLflow links no more to a run at once."""

Encoded = tuple[Trajectory, list[OtlpSpan]]


class MlflowSink:
    """See the module; ``sinks.protocol.Sink`` for what the methods promise."""

    name = "mlflow"

    def __init__(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str] | None = None) -> None:
        self.sent = 0
        self._info = info
        self._run_folder = run_folder
        self._memory = {} if memory is None else memory
        self._config: Mapping[str, Any] = {}
        self._run: Mapping[str, Any] = {}
        self._waiting_since: float | None = None
        self._store: Store | None = None
        self._uri = ""
        self._experiment_of: dict[str, str] = {}
        self._tries: Counter[str] = Counter()
        self._delivered: OrderedDict[str, dict[bytes, bytes]] = OrderedDict()
        """Trace id -> span id -> digest of what MLflow has, so that a late fact does not send a trajectory again."""

    # -- where ---------------------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """``config`` (project, logger) and ``mlflow`` (run_id, experiment_id, tracking_uri of veRL's own run)."""
        if name == "config":
            self._config = {**self._config, **{key: item for key, item in value.items() if item is not None}}
        elif name == "mlflow":
            self._run = dict(value)

    def _awaited(self) -> bool:
        """veRL will open an MLflow run of its own and has not reported it yet."""
        logger = self._config.get("logger")
        loggers = [logger] if isinstance(logger, str) else logger if isinstance(logger, list) else []
        if self._run or "mlflow" not in loggers:
            return False
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        return time.monotonic() - self._waiting_since < RUN_WAIT

    def _opened(self) -> Store:
        if self._store is None:
            self._uri = self._chosen_uri()
            try:
                check_uri(self._uri)
            except ValueError as error:
                raise Refused(str(error)) from error
            shown = masked_uri(self._uri)
            self._memory["place"] = shown
            command = ui_command(shown)
            if command:
                self._memory["open_with"] = command
            self._store = _store(self._uri)
        return self._store

    def _chosen_uri(self) -> str:
        """The user's; else where this run's trajectories went before; else veRL's own logger's; else a local file."""
        configured = self._info.tracking_uri
        if configured:
            return _with_password(configured)
        default = f"sqlite:///{os.path.abspath(self._run_folder.parent / layout.DEFAULT_MLFLOW_DB)}"
        return _with_password(self._memory.get("place") or str(self._run.get("tracking_uri") or "") or default)

    def _run_id(self) -> str | None:
        """veRL's run, if it is in the store we write to."""
        run_id, theirs = self._run.get("run_id"), self._run.get("tracking_uri")
        if not isinstance(run_id, str):
            return None
        return run_id if not theirs or _same_store(str(theirs), self._uri) else None

    def _experiment(self, store: Store, trajectory: Trajectory, run_id: str | None) -> str:
        project = self._info.project
        if project is None and run_id and self._run.get("experiment_id"):
            return str(self._run["experiment_id"])
        name = project or trajectory.attributes.get("project_name") or self._config.get("project_name")
        return store.experiment_id(str(name or DEFAULT_PROJECT)[:250])

    # -- delivery ------------------------------------------------------------------------------------------------------

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """See ``Sink``."""
        if self._awaited():
            raise Unavailable("waiting for the MLflow run of veRL's own logger", retry_after=1.0)
        store = self._opened()
        run_id = self._run_id()
        rejected: dict[str, str] = {}
        groups: dict[tuple[str, str | None], list[Encoded]] = {}
        for trajectory in trajectories:
            try:
                experiment = self._experiment(store, trajectory, run_id)
            except StoreError as error:
                raise Unavailable(f"MLflow has no experiment to store into: {error}") from error
            self._experiment_of[trajectory.trace_id] = experiment
            try:
                encoded = encode(trajectory)
            except Exception as error:  # an unforeseen failure of one trajectory must not hold up the others
                rejected[trajectory.trace_id] = f"cannot be encoded: {type(error).__name__}"
                continue
            own_run = run_id if linked(trajectory) else None
            groups.setdefault((experiment, own_run), []).append((trajectory, encoded))
        for (experiment, own_run), group in groups.items():
            for batch in _batches(group):
                rejected.update(self._send(store, experiment, own_run, batch))
        if rejected:
            raise Rejected(rejected)

    def _send(self, store: Store, experiment: str, run_id: str | None, batch: list[Encoded]) -> dict[str, str]:
        """Store a batch; trace id -> reason for those that MLflow rejected."""

        def describe_all(part: Sequence[Encoded]) -> None:
            for trajectory, _ in part:
                store.start_trace(describe(trajectory, experiment, run_id))

        def log_all(part: Sequence[Encoded]) -> None:
            store.log_spans(experiment, [span for _, encoded in part for span in encoded], run_id)

        destination = f"{experiment}/{run_id}".encode()
        rejected: dict[str, str] = {}
        taken: list[Encoded] = []
        for encoded in batch:
            refused, accepted = _isolate([encoded], describe_all, self._tries)
            rejected.update(refused)
            taken.extend(accepted)
        _all_alike(rejected, bool(taken))
        unsent = [(trajectory, self._new(trajectory, spans, destination)) for trajectory, spans in taken]
        new = [one for one in unsent if one[1]]
        if new:
            refused, stored = _isolate(new, log_all, self._tries)
            rejected.update(refused)
            self.sent += sum(span.ByteSize() for _, spans in stored for span in spans)
            for trajectory, spans in stored:
                self._remember(trajectory, spans, destination)
        return rejected

    def _new(self, trajectory: Trajectory, spans: list[OtlpSpan], destination: bytes) -> list[OtlpSpan]:
        """Those that ``destination`` does not have yet in this form."""
        digests = self._delivered.get(trajectory.trace_id, {})
        return [span for span in spans if digests.get(span.span_id) != _digest(span, destination)]

    def _remember(self, trajectory: Trajectory, spans: list[OtlpSpan], destination: bytes) -> None:
        digests = self._delivered.setdefault(trajectory.trace_id, {})
        digests.update({span.span_id: _digest(span, destination) for span in spans})
        while len(self._delivered) > REMEMBERED:
            self._delivered.popitem(last=False)

    def size(self, trajectory: Trajectory) -> int:
        """Bytes of its spans."""
        return sum(span.ByteSize() for span in encode(trajectory))

    def page(self, trajectory: Trajectory) -> str | None:
        """URL on a server; None for a store (see ``ui_command``)."""
        experiment = self._experiment_of.pop(trajectory.trace_id, None)
        if self._store is None or experiment is None:
            return None
        return self._store.page(experiment, trace_id_of(trajectory))

    def close(self) -> None:
        """See ``Sink``."""
        if self._store is not None:
            self._store.close()


def _digest(span: OtlpSpan, destination: bytes) -> bytes:
    return hashlib.blake2b(destination + span.SerializeToString(deterministic=True), digest_size=16).digest()


def _isolate(
    batch: list[Encoded], send: Callable[[Sequence[Encoded]], None], tries: Counter[str]
) -> tuple[dict[str, str], list[Encoded]]:
    """Send all, halving what is rejected until the culprits stand alone: (trace id -> reason, those that were taken).

    Raises ``Unavailable`` when something fails in a way that may pass (``tries``: how often it did so beside others
    that were taken; after ``PATIENCE`` times it is to blame itself), ``Refused`` when everything fails for one reason:
    then it is the store and not the trajectories.
    """
    rejected: dict[str, str] = {}
    taken: list[Encoded] = []
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
                passing[part[0][0].trace_id] = error
            else:
                rejected[part[0][0].trace_id] = str(error)
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


def _batches(group: list[Encoded]) -> list[list[Encoded]]:
    batches: list[list[Encoded]] = [[]]
    size = 0
    for encoded in group:
        weight = sum(span.ByteSize() for span in encoded[1])
        if batches[-1] and (size + weight > MAX_BYTES or len(batches[-1]) >= MAX_ROOTS):
            batches.append([])
            size = 0
        batches[-1].append(encoded)
        size += weight
    return batches


def _store(uri: str) -> Store:
    """Raises ``Refused`` when a library is missing."""
    try:
        if urlsplit(uri).scheme in ("http", "https"):
            from autotrace.sinks.mlflow.server import ServerStore

            return ServerStore(uri)
        from autotrace.sinks.mlflow.sql import SqlStore

        return SqlStore(uri)
    except ImportError as error:
        raise Refused(f"the backend mlflow needs {error.name}: {extra('mlflow')}") from error


def _with_password(uri: str) -> str:
    """The URI as the environment has it, password included, if it is the same one (``run.json`` holds none)."""
    for name in (env.TRACKING_URI, "MLFLOW_TRACKING_URI"):
        full = os.environ.get(name)
        if full and masked_uri(full) == masked_uri(uri):
            return full
    return uri


def _same_store(one: str, other: str) -> bool:
    def bare(uri: str) -> str:
        parts = urlsplit(uri)
        host = parts.netloc.rsplit("@", 1)[-1].replace("localhost", "127.0.0.1")
        return f"{parts.scheme}://{host}{parts.path}".rstrip("/")

    return bare(one) == bare(other)
