"""Examine steps while the run goes on: when the trajectories of a step are complete, and again after late facts.

Marks that a step or a group puts on a trajectory are written into the trajectory's line, and the first marked
trajectories are delivered again with their marks. Costs the shipper at most ``SHARE`` of its time.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from autotrace.insight import profile
from autotrace.insight.diagnose import Diagnosis, StepFound
from autotrace.insight.finding import Finding
from autotrace.insight.profile import Mark, Profile
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_lines import line
from autotrace.insight.step_records import Hit, Step
from autotrace.insight.words import metrics, page, verdict, worst
from autotrace.run.status import Found
from autotrace.ship.assembly.about_run import binds_of
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.delivery.reporting import StepReport
from autotrace.ship.index import facts
from autotrace.ship.index.indexer import Subscriber
from autotrace.ship.index.summary import record
from autotrace.ship.store.row import LOCAL, TraceRow
from autotrace.ship.store.state import State
from autotrace.tables.rollout import ROLES

_log = logging.getLogger("autotrace.ship")
QUIET = 5.0
"""Examine a step after so many seconds without news of the step."""
SHARE = 0.05
"""Limit the share of the shipper's time."""
MAX_ROWS = 20_000
"""Limit the trajectories of a step. A larger step does not fit into a shipper and is left to ``autotrace diagnose``."""
DELIVERED_AGAIN = 4, 32, 32
"""Limit the trajectories of a step that are delivered again because a group or the step marks them: at least the first
number, at most the third, otherwise a share of 1 / the second. Each costs a delivery."""
MAX_NOTES = 3
_OF_ROLES = f"role IN ({', '.join('?' * len(ROLES))})"
_KEY = "found:"


class LiveFindings(Subscriber):
    """Examine the steps of one run. The indexer reports complete traces; ``settle`` diagnoses the steps that are
    due."""

    def __init__(
        self,
        state: State,
        outbox: Outbox,
        report: Callable[[StepReport], None],
        found: Callable[[int | None, Sequence[Finding]], None],
    ) -> None:
        """Set up the diagnosis. ``report`` gets the report on each training step, ``found`` the findings of each
        diagnosed step, inside the transaction that stores the findings."""
        self._state = state
        self._outbox = outbox
        self._report = report
        self._found = found
        self._diagnosis = Diagnosis()
        self._due: dict[int | None, float] = {}
        """Map step -> when a trace of the step was last completed."""
        self._latest = -1
        """Store the latest step with a complete trace."""
        self._not_before = 0.0
        self._so_far: Found | None = None
        self.notes: list[str] = []
        """List notes about steps that were not diagnosed."""
        self._resume()

    def _resume(self) -> None:
        """Resume where the last shipper of this run stopped."""
        for text in self._state.metas(_KEY).values():
            with contextlib.suppress(msgspec.MsgspecError):  # from another release: the step is diagnosed again
                self._diagnosis.put(msgspec.json.decode(text, type=StepFound))
        known = self._diagnosis.numbers
        sql = f"SELECT DISTINCT step FROM traces WHERE complete = 1 AND {_OF_ROLES}"
        for (step,) in self._state.db.execute(sql, ROLES):
            self._latest = max(self._latest, -1 if step is None else step)
            if step not in known:
                self._due[step] = time.monotonic()

    def completed(self, row: TraceRow) -> None:
        """Note that a trace is complete, or complete again."""
        if row.role in ROLES:
            self._due[row.step] = time.monotonic()
            self._latest = max(self._latest, -1 if row.step is None else row.step)

    def learned(self, row: TraceRow) -> None:
        """Examine the step again after facts of a complete trace changed."""
        self.completed(row)

    def recorded(self, step: int) -> None:
        """Examine a step again after numbers about the step were stored."""
        if step in self._diagnosis.numbers:
            self._due[step] = time.monotonic()

    @property
    def waiting(self) -> bool:
        """Return whether some step has not been diagnosed since a trace of the step was completed."""
        return bool(self._due)

    def found(self) -> Found:
        """Return the findings of the run so far."""
        if self._so_far is None:
            findings = self._diagnosis.findings()
            said = "" if findings else verdict(self._diagnosis)
            self._so_far = Found(len(findings), *worst(findings), self._diagnosis.trajectories, said)
        return self._so_far

    def settle(
        self,
        open_traces: Callable[[], Mapping[str, int | None]],
        over: bool,
    ) -> bool:
        """Examine one step that is due; return whether a step was due. ``open_traces``: the traces that may still
        grow, with their steps. ``over``: the run has ended."""
        now = time.monotonic()
        if not self._due or (now < self._not_before and not over):
            return False
        still_open = open_traces()
        unfinished = set(still_open.values())
        ready = [step for step in self._due if self._is_ready(step, unfinished, now, over)]
        if not ready:
            return False
        step = min(ready, key=lambda number: (number is None, number or 0))
        del self._due[step]
        begin = time.thread_time()
        try:
            self._look(step, still_open, TrainerSettings.of(binds_of(self._state)), live=not over)
        except (sqlite3.Error, OSError):
            raise
        except Exception:  # a fault here must not hold up delivery
            _log.exception("step %s could not be looked at", step)
        self._so_far = None
        self._not_before = now + (time.thread_time() - begin) / SHARE
        return True

    def _is_ready(self, step: int | None, unfinished: Collection[int | None], now: float, over: bool) -> bool:
        """Return whether no more traces of a step are expected. Hung traces are not waited for once a later step is
        there. After the run all open traces are completed within a few rounds: findings from a part of the step would
        be wrong and delivered in vain."""
        if over:
            return step not in unfinished
        is_past = step is not None and step < self._latest
        return now - self._due[step] > QUIET and (is_past or step not in unfinished)

    def _look(self, number: int | None, open_traces: Collection[str], settings: TrainerSettings, live: bool) -> None:
        condition = f"step IS ? AND {_OF_ROLES}"
        count = self._state.count(f"SELECT count(*) FROM traces WHERE {condition}", (number, *ROLES))
        if count > MAX_ROWS:
            which = "trajectories without a step" if number is None else f"trajectories of step {number}"
            note = f"the {which} are more than {MAX_ROWS:,}, and were not looked at while the run went on"
            self.notes += [f"{note}: autotrace diagnose"] if len(self.notes) < MAX_NOTES else []
            return
        rows = sorted(self._state.rows(condition, (number, *ROLES)), key=lambda row: (row.start_ns or 0, row.trace_id))
        records = [record(row, profile.decode(row.profile) or Profile()) for row in rows]
        said = {} if number is None else facts.read_steps(self._state, number).get(number, {})
        step = Step(number, records, settings, live, said.get("metrics", {}), said.get("token_facts", {}))
        hits = self._diagnosis.add(step)
        found = self._diagnosis.of_step(number)
        findings = [finding for finding in self._diagnosis.findings(number) if finding.code in found.tallies]
        with self._state:
            self._state.put_meta(f"{_KEY}{number}", msgspec.json.encode(found).decode())
            self._mark(hits, {row.trace_id: row for row in rows}, open_traces)
            self._found(number, findings)
        if number is None or number < 0 or not step.training:
            return
        title = f"step {number}: {len(rows):,} trajectories, {len(findings)} kinds of findings, most costly first"
        numbers = metrics(line(step, step.training, validate=False), findings)
        self._report(StepReport(number, numbers, page(title, findings)))

    def _mark(self, hits: Sequence[Hit], rows: Mapping[str, TraceRow], open_traces: Collection[str]) -> None:
        """Write the marks of groups and of the step into the lines of trajectories. Inside a transaction."""
        found: dict[str, dict[str, Mark]] = {trace_id: {} for trace_id in rows}
        for hit in hits:
            if not hit.record.has(hit.code):
                mark = Mark(hit.code, hit.turn, hit.token, hit.note, hit.kind)
                found[hit.record.trace_id].setdefault(hit.code, mark)
        least, one_of, most = DELIVERED_AGAIN
        again = min(most, max(least, len(rows) // one_of))
        for trace_id, marks in found.items():
            row = rows[trace_id]
            known = profile.decode(row.profile)
            if known is None or not row.complete or trace_id in open_traces or known.found == list(marks.values()):
                continue
            new = {mark.code for mark in known.found} != set(marks)
            row.profile = profile.encode(msgspec.structs.replace(known, found=list(marks.values())))
            delivered = new and again > 0 and row.kept not in (None, LOCAL)
            again -= delivered
            row.version += 1
            self._outbox.marked(row, delivered)
            self._state.db.execute(
                "UPDATE traces SET profile = ?, version = ? WHERE trace_id = ?", (row.profile, row.version, trace_id)
            )
