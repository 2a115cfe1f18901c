"""Findings while the run goes on: a step is looked at when its trajectories are complete, and again when late facts
about them have come.

What a step or a group shows of a trajectory is written into the trajectory's line, and the first of them are delivered
once more with it. Costs the shipper ``SHARE`` of its time at most.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

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
"""Seconds without news of a step after which it is looked at."""
SHARE = 0.05
"""Of the shipper's time."""
MAX_ROWS = 20_000
"""A step with more trajectories is looked at by ``autotrace diagnose`` alone: they do not fit into a shipper."""
DELIVERED_AGAIN = 4, 32, 32
"""Trajectories of a step that are, because a group or the step shows something of them: at least so many, one of so
many, at most so many. Each costs a delivery."""
MAX_NOTES = 3
_OF_ROLES = f"role IN ({', '.join('?' * len(ROLES))})"
_KEY = "found:"


class LiveFindings(Subscriber):
    """Of one run. The indexer tells it what is complete; ``settle`` looks at the steps whose turn it is."""

    def __init__(
        self,
        state: State,
        outbox: Outbox,
        report: Callable[[StepReport], None],
        found: Callable[[int | None, Sequence[Finding]], None],
    ) -> None:
        """``report`` is called with what there is to say about each step of training, ``found`` with what was found in
        each step that was looked at, inside the transaction that remembers it."""
        self._state = state
        self._outbox = outbox
        self._report = report
        self._found = found
        self._diagnosis = Diagnosis()
        self._due: dict[int | None, float] = {}
        """Step -> when something of it was complete last."""
        self._latest = -1
        """Step of which something is complete."""
        self._not_before = 0.0
        self._so_far: Found | None = None
        self.notes: list[str] = []
        """What was not looked at."""
        self._resume()

    def _resume(self) -> None:
        """Go on where the last shipper of this run stopped."""
        for text in self._state.metas(_KEY).values():
            with contextlib.suppress(msgspec.MsgspecError):  # of another release: the step is looked at again
                self._diagnosis.put(msgspec.json.decode(text, type=StepFound))
        known = self._diagnosis.numbers
        sql = f"SELECT DISTINCT step FROM traces WHERE complete = 1 AND {_OF_ROLES}"
        for (step,) in self._state.db.execute(sql, ROLES):
            self._latest = max(self._latest, -1 if step is None else step)
            if step not in known:
                self._due[step] = time.monotonic()

    def completed(self, row: TraceRow) -> None:
        """A trace is complete, or complete anew."""
        if row.role in ROLES:
            self._due[row.step] = time.monotonic()
            self._latest = max(self._latest, -1 if row.step is None else row.step)

    def learned(self, row: TraceRow) -> None:
        """Facts of a complete trace changed: its step is looked at again."""
        self.completed(row)

    def recorded(self, step: int) -> None:
        """Numbers about a step were stored: it is looked at again."""
        if step in self._diagnosis.numbers:
            self._due[step] = time.monotonic()

    @property
    def waiting(self) -> bool:
        """Some step has not been looked at since something of it was complete."""
        return bool(self._due)

    def found(self) -> Found:
        """Of the run so far."""
        if self._so_far is None:
            findings = self._diagnosis.findings()
            said = "" if findings else verdict(self._diagnosis, most=3)
            self._so_far = Found(len(findings), *worst(findings), self._diagnosis.trajectories, said)
        return self._so_far

    def settle(
        self,
        open_traces: Callable[[], Mapping[str, int | None]],
        binds: Sequence[tuple[str, Mapping[str, Any]]],
        over: bool,
    ) -> bool:
        """Look at one step, if it is a step's turn; whether it was. ``open_traces``: those that may still grow, with
        their steps. ``over``: the run has ended."""
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
            self._look(step, still_open, TrainerSettings.of(binds), live=not over)
        except (sqlite3.Error, OSError):
            raise
        except Exception:  # a fault here must not hold up delivery
            _log.exception("step %s could not be looked at", step)
        self._so_far = None
        self._not_before = now + (time.thread_time() - begin) / SHARE
        return True

    def _is_ready(self, step: int | None, unfinished: Collection[int | None], now: float, over: bool) -> bool:
        """Nothing comes any more; what hangs is not waited for once a later step is there. After the run all that is
        open is completed within a few rounds: what a part of the step shows would be wrong and delivered in vain."""
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
        """Write what groups and the step showed of a trajectory into its line. Inside a transaction."""
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
