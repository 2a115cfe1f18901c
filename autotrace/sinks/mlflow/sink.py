"""Write trajectories into MLflow: choose store, experiment and run, and handle rejections."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autotrace.config import environment as env
from autotrace.config.installation import install
from autotrace.redact.masking import masked_uri
from autotrace.run import files, layout
from autotrace.run.info import RunInfo
from autotrace.sinks import DEFAULT_PROJECT, registry
from autotrace.sinks.mlflow.info import Issue, describe, linked, shown_codes, trace_id_of
from autotrace.sinks.mlflow.sending import MAX_BYTES, PATIENCE, MlflowTrace, Store, StoreError, isolate, put
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.mlflow.uri import check_uri, ui_command
from autotrace.sinks.own_keys import keep_secret
from autotrace.sinks.protocol import Refused, Rejected, Sink, Unavailable, batches, culprits
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")
ISSUES_AGAIN = 300.0
"""Seconds until a server that refused to make an issue is asked again."""

PAGE = "autotrace/findings-step-{step:06d}.txt"
"""Artifact of the trainer's run with the findings of a step."""
RUN_WAIT = 30.0
"""Seconds to wait for veRL's own MLflow run, if veRL's configuration announces a run."""


class MlflowSink(Sink):
    """Writes to MLflow; see ``sinks.protocol`` for the promises of the methods."""

    name = "mlflow"
    needs_calls = False
    """See ``Sink``."""

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
        self._no_issues_before = 0.0
        self._issues_of: dict[str, dict[str, str]] = {}
        """Maps an experiment to a map from a finding's code to the id of the issue."""
        self._tries: Counter[str] = Counter()
        """Counts the failures of each trajectory that may pass."""

    # -- where ---------------------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Take ``config`` (project, logger) and ``mlflow`` (run_id, experiment_id, tracking_uri of veRL's own run)."""
        if name == "config":
            self._config = {**self._config, **{key: item for key, item in value.items() if item is not None}}
        elif name == "mlflow":
            self._run = dict(value)

    def _await_run(self) -> None:
        """Wait for veRL's own MLflow run. Raises ``Unavailable`` while veRL will open a run and has not reported the
        run."""
        logger = self._config.get("logger")
        loggers = [logger] if isinstance(logger, str) else logger if isinstance(logger, list) else []
        if self._run or "mlflow" not in loggers:
            return
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        if time.monotonic() - self._waiting_since < RUN_WAIT:
            raise Unavailable("waiting for the MLflow run of veRL's own logger", retry_after=1.0)

    def _opened(self) -> Store:
        if self._store is None:
            self._uri = self._chosen_uri()
            keep_secret(self._uri)
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
        """Choose the user's URI, else this run's earlier place, else the URI of veRL's own logger, else a local
        file."""
        beside = os.path.abspath(self._run_folder.parent / layout.DEFAULT_MLFLOW_DB)
        default = f"sqlite:///{beside}"
        told = (
            self._info.tracking_uri or self._memory.get("place") or str(self._run.get("tracking_uri") or "") or default
        )
        by_hand = env.is_by_hand(self._run_folder)
        if told == default and by_hand and (why := files.strange_database(beside)):  # the file came with the run folder
            raise Refused(f"{why}; to deliver elsewhere: autotrace ship RUN --tracking-uri URI")
        if told == default and (why := files.planted(beside)):
            raise Refused(f"{beside}: {why}; to deliver elsewhere: autotrace ship RUN --tracking-uri URI")
        try:
            return _with_password(registry.trusted(told, not by_hand, default, *_named()))
        except registry.BackendError as error:
            raise Refused(f"{error}; to deliver there: autotrace ship RUN --tracking-uri {masked_uri(told)}") from None

    def _run_id(self) -> str | None:
        """Return veRL's run, if the run is in the store that the sink writes to."""
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

    def report(self, step: int, metrics: Mapping[str, float], page: str) -> None:
        """Report into the run of the trainer's own logger; see ``Sink``."""
        self._await_run()
        if not self._run:
            return
        store = self._opened()
        run_id = self._run_id()
        if run_id is None:
            return
        try:
            store.log_metrics(run_id, metrics, step, int(time.time() * 1000))
            store.log_text(run_id, PAGE.format(step=step), page)
        except StoreError as error:
            raise (Unavailable if error.passing else Refused)(f"MLflow did not store the report: {error}") from error

    # -- delivery ------------------------------------------------------------------------------------------------------

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """See ``Sink``."""
        self._await_run()
        store = self._opened()
        rejected: dict[str, str] = {}
        groups = self._grouped(store, trajectories)
        self._experiment_of |= {one.trace_id: of for (of, _), group in groups.items() for one in group}
        for (experiment, own_run), group in groups.items():
            issues = self._issues(store, experiment, group)
            encoded = _encoded(group, own_run, issues, rejected)
            for some in batches(encoded, lambda one: one.size, MAX_BYTES, store.max_traces):
                refused, taken = isolate(some, partial(put, store, experiment, own_run), self._tries)
                rejected |= refused
                self.sent += sum(one.size for one in taken)
        if rejected:
            raise Rejected(rejected)

    def facts(self, trajectories: Sequence[Trajectory]) -> None:
        """Store tags and feedback; see ``Sink``."""
        store = self._opened()
        rejected: dict[str, str] = {}
        for (experiment, own_run), group in self._grouped(store, trajectories).items():
            told = [describe(one, own_run) for one in group]
            for trace, error in culprits(told, partial(store.learn, experiment), StoreError):
                self._tries[trace.trace_id] += error.passing
                if error.passing and self._tries[trace.trace_id] < PATIENCE:
                    raise Unavailable(f"MLflow answers with errors: {error}")
                why = f"the trajectory is stored, but MLflow rejected its facts: {error}"
                rejected[trace.trace_id.removeprefix("tr-")] = why
        if rejected:
            raise Rejected(rejected)

    def _grouped(
        self, store: Store, trajectories: Iterable[Trajectory]
    ) -> dict[tuple[str, str | None], list[Trajectory]]:
        """Sort ``trajectories`` by experiment and linked run."""
        run_id = self._run_id()
        groups: dict[tuple[str, str | None], list[Trajectory]] = {}
        for trajectory in trajectories:
            try:
                experiment = self._experiment(store, trajectory, run_id)
            except StoreError as error:
                raise Unavailable(f"MLflow has no experiment to store into: {error}") from error
            groups.setdefault((experiment, run_id if linked(trajectory) else None), []).append(trajectory)
        return groups

    def _issues(self, store: Store, experiment: str, group: Iterable[Trajectory]) -> Mapping[str, str]:
        """Map the code of each finding of ``group`` to the id of the issue; empty if this MLflow has no issues, or
        takes none."""
        known = self._issues_of.setdefault(experiment, {})
        missing = {code for trajectory in group for code in shown_codes(trajectory)} - known.keys()
        if time.monotonic() >= self._no_issues_before:
            try:
                for code in missing:
                    if (issue := store.issue(experiment, Issue.of(code))) is None:
                        break
                    known[code] = issue
            except Exception as error:  # of any kind: feedback says the same, and traces do not wait
                self._no_issues_before = time.monotonic() + ISSUES_AGAIN
                _log.info("no issues are made for findings: %s", type(error).__name__)
        return known

    def size(self, trajectory: Trajectory) -> int:
        """Return the bytes of the trajectory's spans."""
        return sum(span.size for span in encode(trajectory))

    def page(self, trajectory: Trajectory) -> str | None:
        """Return the URL on a server; None for a store (see ``ui_command``)."""
        experiment = self._experiment_of.pop(trajectory.trace_id, None)
        if self._store is None or experiment is None:
            return None
        return self._store.page(experiment, trace_id_of(trajectory))

    def close(self) -> None:
        """See ``Sink``."""
        if self._store is not None:
            self._store.close()


def _encoded(
    group: Iterable[Trajectory], run_id: str | None, issues: Mapping[str, str], rejected: dict[str, str]
) -> Iterator[MlflowTrace]:
    """Yield each trajectory encoded, when due: encoding all at once would double the memory.

    A trajectory that cannot be encoded is added to ``rejected``.
    """
    for trajectory in group:
        try:
            spans = encode(trajectory)
            encoded = MlflowTrace(describe(trajectory, run_id, issues), spans, sum(span.size for span in spans))
        except Exception as error:  # an unforeseen failure of one trajectory must not hold up the others
            rejected[trajectory.trace_id] = f"cannot be encoded: {type(error).__name__}"
            continue
        yield encoded


def _store(uri: str) -> Store:
    """Open the store. Raises ``Refused`` when a library is missing."""
    try:
        if urlsplit(uri).scheme in ("http", "https"):
            from autotrace.sinks.mlflow.server import ServerStore

            return ServerStore(uri)
        from autotrace.sinks.mlflow.sql_store import SqlStore

        return SqlStore(uri)
    except ImportError as error:
        raise Refused(f"the backend mlflow needs {error.name or error}: {install('mlflow')}") from error


def _with_password(uri: str) -> str:
    """Return the environment's form of the same URI, password included (``run.json`` holds no password)."""
    return next((full for full in _named() if masked_uri(full) == masked_uri(uri)), uri)


def _named() -> list[str]:
    """List the URIs that a person named, here or in the environment."""
    return [uri for name in (env.TRACKING_URI, "MLFLOW_TRACKING_URI") if (uri := os.environ.get(name))]


def _same_store(one: str, other: str) -> bool:
    def bare(uri: str) -> str:
        parts = urlsplit(uri)
        host = parts.netloc.rsplit("@", 1)[-1].replace("localhost", "127.0.0.1")
        return f"{parts.scheme}://{host}{parts.path}".rstrip("/")

    return bare(one) == bare(other)
