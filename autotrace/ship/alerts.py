"""What a finding does while the run goes on: it sends a message (``--alert``) or ends the run (``--stop-on``).

A message is sent at most once: it is noted before it goes out. It is tried again only where the other end cannot have
taken it (no connection, 429, 5xx).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autotrace.config import environment as env
from autotrace.insight.finding import Finding, Place
from autotrace.insight.registry import codes
from autotrace.insight.words import amount, plain
from autotrace.run.info import RunInfo
from autotrace.ship.live import Live
from autotrace.ship.store.state import State
from autotrace.tables.conditions import Condition
from autotrace.tables.hung import hanging
from autotrace.tables.reader import Reader

_log = logging.getLogger("autotrace.ship")
MOST = 200
"""Messages of a run."""
TRIES = 7
"""With pauses of 1, 2, 4, ... seconds between them."""
TIMEOUT = 5.0, 10.0
"""Seconds to connect, and to wait for an answer."""
LAST = 30.0
"""Seconds after the end of the run for what is on its way."""
HUNG, LOOK_EVERY = "AT-HUNG", 30.0
_KEY, _STOPPED = "alert:", "stopped-on"


class Alerts:
    """Only the run's own shipper sends messages and ends the run; ``stop`` ends it, and returns whether it could."""

    def __init__(self, state: State, info: RunInfo, run_folder: Path, stop: Callable[[], bool]) -> None:
        self._state = state
        self._info = info
        self._stop = stop
        own = env.is_own(run_folder)
        self._url = os.environ.get(env.ALERT, "") if own else ""
        self._stop_on = frozenset(info.stop_on if own else ())
        self._sent = set(state.metas(_KEY))
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._run_folder = run_folder
        self._watches = HUNG in self._stop_on or (bool(self._url) and HUNG in (info.alert_on or [HUNG]))
        self._hung: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        self._look: threading.Thread | None = None
        self._look_at = time.monotonic() + LOOK_EVERY
        self.problem = ""
        """Why a message did not arrive."""

    def found(self, step: int | None, findings: Sequence[Finding]) -> None:
        """A step has these findings now. Each is said once a step if ``--alert-on`` names it, else once a run."""
        for finding in findings:
            if finding.code in self._stop_on:
                self._end(step, finding)
            if not self._url or (self._info.alert_on and finding.code not in self._info.alert_on):
                continue
            key = f"{_KEY}{finding.code}:{step if self._info.alert_on else ''}"
            if key not in self._sent and len(self._sent) < MOST:
                self._sent.add(key)
                with self._state:
                    self._state.put_meta(key, "1")
                self._send(message(self._info, self._run_folder, step, finding))

    def settle(self, open_traces: int) -> None:
        """Look at what hangs, if it is time; the looking is done by a thread."""
        while not self._hung.empty():
            finding = self._hung.get()
            self.found(finding.since_step, [finding])
        if not self._watches or not open_traces or time.monotonic() < self._look_at:
            return
        if self._look is None or not self._look.is_alive():
            self._look = threading.Thread(target=self._look_for_hung, daemon=True)
            self._look.start()

    def _look_for_hung(self) -> None:
        begin = time.monotonic()
        try:
            with contextlib.closing(Reader([Live.open(self._run_folder)])) as reader:
                if finding := _of_hung(reader):
                    self._hung.put(finding)
        except Exception:  # a fault here must not end the shipper
            _log.exception("what hangs could not be looked for")
        self._look_at = time.monotonic() + max(LOOK_EVERY, 20 * (time.monotonic() - begin))

    def _end(self, step: int | None, finding: Finding) -> None:
        if self._state.meta(_STOPPED) is None and self._stop():
            where = "" if step is None else f" in step {step}"
            with self._state:
                self._state.put_meta(_STOPPED, f"{finding.code}{where}")
            _log.warning("ended the run: %s", self.stopped_by)

    @property
    def stopped_by(self) -> str:
        """The finding that ended the run, ``AT-REWARD-CONSTANT in step 3``; empty: none did."""
        return self._state.meta(_STOPPED) or ""

    def _send(self, text: dict[str, Any]) -> None:
        self._messages.put(text)
        if self._thread is None:
            self._thread = threading.Thread(target=self._post_all, daemon=True)
            self._thread.start()

    def _post_all(self) -> None:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        retry = Retry(
            TRIES, read=0, other=0, redirect=0, status_forcelist=(429, 500, 502, 503, 504), allowed_methods=None,
            backoff_factor=1, respect_retry_after_header=False, raise_on_status=False,
        )  # fmt: skip
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=retry))
            host = str(urlsplit(self._url).hostname)  # of the rest nothing is said: it may be a secret
            while True:
                text = self._messages.get()
                try:
                    body = {"text": text["text"]} if wants_slack(self._url) else text
                    with session.post(
                        self._url, json=body, timeout=TIMEOUT, allow_redirects=False, stream=True
                    ) as answer:
                        said = "" if answer.status_code < 300 else f"answered {answer.status_code}"
                except (OSError, ValueError) as error:  # a library's own are OSError
                    said = f"could not be asked ({type(error).__name__})"
                self.problem = f"{host} {said}: the alert about {text['code']} did not arrive" if said else ""
                self._messages.task_done()

    def close(self) -> None:
        """Wait for what is on its way, ``LAST`` seconds at most."""
        until = time.monotonic() + LAST
        while self._messages.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.05)


def wants_slack(url: str) -> bool:
    """Slack's own address, or one that takes what Slack takes (Discord's and Mattermost's end so)."""
    parts = urlsplit(url)
    return parts.hostname == "hooks.slack.com" or parts.path.rstrip("/").endswith("/slack")


def message(info: RunInfo, run_folder: Path, step: int | None, finding: Finding) -> dict[str, Any]:
    """One finding of one step. Its notes and places say what models wrote: they are told if ``--alert-texts`` asks."""
    trace = [f"--trace {place.trace_id[:12]}" for place in finding.places[:1]]
    look = " ".join(["autotrace view", shlex.quote(str(run_folder)), *trace])
    lines = [
        f"{finding.code}: {finding.title}; {amount(finding)}",
        f"on {info.host}: {look}",
    ]
    texts = [f"{note} ({count:,})" for note, count in finding.notes.items()] if info.alert_texts else []
    return {
        "text": "\n".join(map(plain, [*lines, *texts])),
        "code": finding.code, "title": finding.title, "step": step, "share": round(finding.share, 6),
        "count": finding.trajectories, "of": finding.of, "unit": finding.unit, "since_step": finding.since_step,
        "what": finding.what, "try": finding.remedy, "run": info.run_id, "host": info.host,
        "project": info.project, "experiment": info.experiment,
        "places": [_place(place, info.alert_texts) for place in finding.places],
        **({"notes": finding.notes} if info.alert_texts else {}),
    }  # fmt: skip


def _place(place: Place, texts: bool) -> dict[str, Any]:
    named = {"trace_id": place.trace_id, "step": place.step, "turn": place.turn, "token": place.token}
    return {**named, **({"note": plain(place.note)} if texts else {})}


def _of_hung(reader: Reader) -> Finding | None:
    """What hangs now, as a finding."""
    found = hanging(reader)
    if not found:
        return None
    is_open = Condition("NOT complete", (), frozenset({"complete"}))
    steps = {row.trace_id: row.step for row in reader.select(is_open, ("trace_id", "step"))}
    since = min((steps[trace] for trace in found if steps.get(trace) is not None), default=None)
    places = [Place(trace, steps.get(trace), mark.turn, None, mark.note) for trace, mark in [*found.items()][:3]]
    notes, code = dict(Counter(mark.kind for mark in found.values())), codes()[HUNG]
    return Finding(
        HUNG, code.title, code.what, len(found), len(steps), len(found) / len(steps), since, 1, code.why, code.remedy,
        places, notes=notes,
    )  # fmt: skip
