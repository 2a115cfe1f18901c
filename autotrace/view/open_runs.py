"""Open the runs that the page shows: each run is read on request, and again after data was added."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from autotrace.insight import registry, words
from autotrace.insight.diagnose import Diagnosis, counts
from autotrace.insight.difference import OF_TIME
from autotrace.insight.finding import Finding
from autotrace.insight.step_lines import line as step_line
from autotrace.insight.why import details, headline, unexplained
from autotrace.run.drain import shipper_alive
from autotrace.run.losses import losses
from autotrace.run.status import Status
from autotrace.ship import pace
from autotrace.ship.readers import is_run, listed, name_of, opened, places
from autotrace.tables import steps as query
from autotrace.tables.errors import NotFound
from autotrace.tables.hung import IS_OPEN
from autotrace.tables.reader import Reader
from autotrace.tables.sources import ReadableRun
from autotrace.trajectory.jsonable import jsonable
from autotrace.view import columns

T = TypeVar("T")
FIRST = (
    "start", "step", "sample_index", "rollout_n", "status", "reward", "group", "turns", "tool_calls", "prompt_tokens",
    "response_tokens", "duration", "validate", "error",
)  # fmt: skip
"""Columns that a page needs first."""
REWARDS, CURVES, POINTS = 8, 60, 2000
"""Maximum curves of the reward, curves of metrics, and steps of a curve."""


class OpenRun:
    """Hold a run. A single thread at a time uses the reader."""

    def __init__(self, place: ReadableRun, name: str = "") -> None:
        self.place = place
        self.name = name or address(place)
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._seen: object = None
        self._version = 0
        self._answers: dict[tuple[str, ...], bytes] = {}
        """Encoded answers for this version."""
        self._diagnosing = threading.Lock()
        self._findings: tuple[int, dict[str, Any]] | None = None
        self._examined: tuple[int, int] | None = None
        """Number of trajectories that were examined for findings, and the total, while findings are computed."""

    def read(self, question: Callable[[Reader], T]) -> T:
        """Return the answer of ``question`` to the current run. Raises the errors of ``question`` and of opening."""
        with self._lock:
            return question(self._current())

    def columns(self, names: Sequence[str]) -> bytes:
        """See ``columns.packed``."""
        with self._lock:
            reader, key = self._current(), tuple(names)
            if key not in self._answers:
                self._answers[key] = columns.packed(reader, names)
            return self._answers[key]

    def findings(self) -> dict[str, Any]:
        """Return the findings of the steps (``steps.findings``); ``state`` tells meanwhile how many are examined."""
        with self._diagnosing:
            with self._lock:
                self._current()
                version = self._version
            if self._findings is None or self._findings[0] != version:
                try:
                    self._findings = version, self.apart(lambda reader: findings(reader, told=self._told))
                finally:
                    self._examined = None
            return self._findings[1]

    def _told(self, done: int, of: int) -> None:
        self._examined = done, of

    def apart(self, question: Callable[[Reader], T]) -> T:
        """Return the answer of ``question``, which takes long, to a separate reader: the run can answer other questions
        meanwhile."""
        with contextlib.closing(opened(self.place)) as reader:
            return question(reader)

    def state(self) -> dict[str, Any]:
        """Return the run's state, losses and oddities, which a person reads first."""
        with self._lock:
            source = self._current().run
            status, info, version = source.status(), source.info, self._version
            still = self._current().count(IS_OPEN) if status.open else 0
        living = status.living > 0 or (is_run(self.place.path) and shipper_alive(str(self.place.path)) is True)
        return {
            "run": self.name, "created": info.created, "command": " ".join(info.command), "version": version,
            "state": status.state, "live": living, "trajectories": status.trajectories + still,
            "open": still, "losses": losses(status.drops), "warnings": pace.warnings(status),
            "examined": self._examined, "notes": [*status.notes, *_oddities(status)], "error": status.error,
        }  # fmt: skip

    def _current(self) -> Reader:
        """Return a reader of the current data."""
        before = self._reader
        if before is None or before.run.fingerprint() != self._seen:
            self._reader = opened(self.place, before)
            if before is not None:
                before.close()
            self._seen = self._reader.run.fingerprint()
            self._version += 1
            self._answers = {}
            return self._reader
        return before

    def close(self) -> None:
        """Close the reader."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
            self._reader = None


def address(place: ReadableRun) -> str:
    """Return the run's name as a part of an address."""
    return _spelled(name_of(place))


def _spelled(name: str) -> str:
    spelled = name.encode("utf-8", "backslashreplace").decode().replace("/", "_")
    return spelled if spelled.strip(".") else f"_{spelled}"


def _oddities(status: Status) -> list[str]:
    found = []
    if status.torn:
        found.append(f"torn: {status.torn:,} bytes at the ends of segments are not whole records")
    if status.died:
        found.append(f"{status.died} of {status.processes} processes ended without a last record (killed, or crashed)")
    if status.facts_waiting:
        found.append(f"{status.facts_waiting} facts (rewards, ...) belong to no trajectory that was recorded")
    return found


class OpenRuns:
    """Open the run at each path, or all runs there. Raises ``QueryError`` for any other file."""

    def __init__(self, *paths: str | Path) -> None:
        self._paths = paths
        self._runs: dict[str, OpenRun] = {}
        self._lock = threading.Lock()
        self._places()

    def listed(self) -> list[dict[str, Any]]:
        """See ``readers.listed``; the names are spelled as in addresses."""
        found = [{**listed([place])[0], "run": name} for name, place in self._places().items()]
        return sorted(found, key=lambda run: (run["created"], run["run"]), reverse=True)

    def run(self, name: str) -> OpenRun:
        """Return the run called ``name``. Raises ``NotFound``."""
        with self._lock:
            if name not in self._runs:
                place = self._places().get(name)
                if place is None:
                    raise NotFound(f"there is no run {name} here; the start page lists the runs")
                self._runs[name] = OpenRun(place, name)
            return self._runs[name]

    def prepare(self) -> None:
        """Encode the first columns of the newest run, while the browser is still starting. More work would delay the
        page's own request."""
        with contextlib.suppress(Exception):  # a request for the run reports the error
            self.run(self.listed()[0]["run"]).columns(FIRST)

    def named(self, place: ReadableRun) -> str:
        """Return the name of a run, as in addresses."""
        every = self._places().items()
        return next(name for name, one in every if (one.path, one.info.run_id) == (place.path, place.info.run_id))

    def _places(self) -> dict[str, ReadableRun]:
        """Return name -> run. A name that several runs have gets a number."""
        found: dict[str, ReadableRun] = {}
        for path in self._paths:
            with contextlib.suppress(OSError):
                for place in places(path):
                    name, number = address(place), 1
                    while name in found:
                        number += 1
                        name = f"{address(place)}-{number}"
                    found[name] = place
        return found

    def close(self) -> None:
        """Close all runs."""
        for run in self._runs.values():
            run.close()


def findings(
    reader: Reader, rows: Sequence[Any] | None = None, told: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, Any]:
    """Return the findings of ``autotrace diagnose`` in the run, or in the trajectories ``rows``, which are compared
    with the others of their steps. ``found``: the findings, most costly first; ``steps``: step -> code -> number of
    trajectories; ``titles``: meaning of the codes; ``trajectories``: number of examined trajectories; ``metrics``:
    number of metrics of a run without rollouts; ``curves``: the mean reward of the training and the parts of the
    reward, or the metrics. ``told`` receives the number of trajectories examined so far, and the total."""
    named = None if rows is None else {row.trace_id for row in rows}
    diagnosis, steps, curves = Diagnosis(among=named), {}, dict[str, list[tuple[int, float | None]]]()
    alone = rows[0].step if rows and len(rows) == 1 else None  # a single trajectory needs no history
    done, of = 0, sum(reader.steps().values())
    for step in query.steps(reader, alone, texts=True):
        told(done := done + len(step.records), of)
        concerned, training = counts(diagnosis.add(step)), diagnosis.counted(step.training)
        if step.number is None:
            continue
        if concerned:
            steps[str(step.number)] = concerned
        values: Mapping[str, float | None] = {} if of else step.metrics
        if training:
            of_step = step_line(step, training if rows else step.training, validate=False)
            values = {"reward, mean": of_step.reward_mean, **of_step.reward_parts}
        for name, value in values.items():
            curves.setdefault(name, []).append((step.number, value))
    used = {code for of_step in steps.values() for code in of_step}
    titles = {name: code.title for name, code in registry.codes().items() if name in used}
    found = [_finding(finding, named) for finding in diagnosis.findings()]
    shown = [*curves][:REWARDS] if of else sorted(curves, key=lambda name: (bool(OF_TIME.search(name)), name))[:CURVES]
    thinned = {name: zip(*curves[name][:: -(-len(curves[name]) // POINTS)], strict=True) for name in shown}
    plain: dict[str, Any] = jsonable({
        "found": found, "steps": steps, "titles": titles, "trajectories": diagnosis.trajectories,
        "metrics": 0 if of else len(curves),
        "curves": [{"title": name, "steps": at, "middle": values} for name, (at, values) in thinned.items()],
    })  # fmt: skip
    return plain


def _finding(finding: Finding, named: Collection[str] | None) -> dict[str, Any]:
    """Describe a finding in the words of ``autotrace diagnose``."""
    answer, cut = finding.answer, {words.AFFECTS, *([words.CAUSES] if finding.answer else [])}
    return {
        **finding.as_dict(), "amount": words.amount(finding),
        "change": answer.title if answer and answer.step is not None else None,
        "lines": [line for line in (*words.facts(finding), *words.prose(finding)) if line[0] not in cut],
        "causes": [{**msgspec.to_builtins(cause), "said": headline(cause, answer.other),
                    "more": "; ".join(details(cause))} for cause in answer.causes] if answer else [],
        "unexplained": unexplained(answer) if answer and not answer.causes else None,
        "places": [{**msgspec.to_builtins(place), "where": words.where(place)}
                   for place in finding.places if named is None or place.trace_id in named],
    }  # fmt: skip
