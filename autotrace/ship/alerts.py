"""Act on a finding while the run goes on: send a message (``--alert``) or ask the run to end (``--stop-on``).

A message is a row of the state, written together with the finding. A message is sent at most once: the row is marked as
on the way before the message leaves. A message is sent again only if the address refused the message (nobody listens,
429, 503).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shlex
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from autotrace.config import environment as env
from autotrace.config.installation import look_at
from autotrace.insight.finding import Finding, Location
from autotrace.insight.registry import codes
from autotrace.insight.words import amount, plain
from autotrace.run.info import RunInfo
from autotrace.ship.live import Live
from autotrace.ship.store.state import State
from autotrace.sinks.http import OPENER
from autotrace.tables.conditions import Condition
from autotrace.tables.hung import hanging
from autotrace.tables.reader import Reader

_log = logging.getLogger("autotrace.ship")
MOST = 200
"""Limit the messages of a run."""
TRIES, LONGEST_PAUSE = 8, 60.0
"""Try a message so many times, with pauses of 1, 2, 4, ... seconds."""
PATIENCE = 10.0
"""Give up a try after so many seconds, and leave its thread behind. Whether the message arrived is then unknown."""
LAST = 30.0
"""Wait so many seconds after the end of the run for messages to be sent."""
HUNG, LOOK_EVERY = "AT-HUNG", 30.0
_KEY, _STOPPED = "alert:", "stopped-on"
WANTED, ON_ITS_WAY, ARRIVED = "wanted", "on its way", "arrived"


class Alert(msgspec.Struct):
    """Hold one message."""

    body: dict[str, Any]
    state: str = WANTED
    """Name the state: ``WANTED`` | ``ON_ITS_WAY`` | ``ARRIVED`` | why the message did not arrive."""
    tries: int = 0


class Alerts:
    """Send messages and end the run, for the run's own shipper only. ``stop`` asks the run to end and returns whether
    the run could be asked."""

    def __init__(self, state: State, info: RunInfo, run_folder: Path, stop: Callable[[], bool]) -> None:
        self._state = state
        self._info = info
        self._run_folder = run_folder
        self._stop = stop
        own = env.is_own(run_folder)
        self._url = os.environ.get(env.ALERT, "") if own else ""
        self._stop_on = frozenset(info.stop_on if own else ())
        known = state.metas(_KEY) if own else {}
        self._all = {key: msgspec.json.decode(text, type=Alert) for key, text in known.items()}
        self._post: _AlertPost | None = None
        self._not_before = 0.0
        self._watches = HUNG in self._stop_on or (bool(self._url) and HUNG in (info.alert_on or [HUNG]))
        self._hung: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        self._look: threading.Thread | None = None
        self._look_at = time.monotonic() + LOOK_EVERY
        self._full = False

    def found(self, step: int | None, findings: Sequence[Finding]) -> None:
        """Act on the present findings of a step, inside a transaction. A finding is sent once a step if ``--alert-on``
        names the code, otherwise once a run."""
        for finding in findings:
            if finding.code in self._stop_on and self._state.meta(_STOPPED) is None and self._stop():
                self._state.put_meta(_STOPPED, f"{finding.code}{'' if step is None else f' in step {step}'}")
                _log.warning("asked the run to end: %s", self.stopped_by)
            if not self._url or (self._info.alert_on and finding.code not in self._info.alert_on):
                continue
            key = f"{_KEY}{finding.code}:{step if self._info.alert_on else ''}"
            self._full |= key not in self._all and len(self._all) >= MOST
            if key not in self._all and not self._full:
                self._put(key, Alert(message(self._info, self._run_folder, step, finding)))

    def _put(self, key: str, alert: Alert) -> None:
        self._all[key] = alert
        self._state.put_meta(key, msgspec.json.encode(alert).decode())

    def settle(self, open_traces: int) -> None:
        """Send the waiting messages, and look for hung calls when a look is due. Waits for neither."""
        while not self._hung.empty():
            finding = self._hung.get()
            with self._state:
                self.found(finding.since_step, [finding])
        self._deliver()
        if not self._watches or not open_traces or time.monotonic() < self._look_at:
            return
        if self._look is None or not self._look.is_alive():
            self._look = threading.Thread(target=self._look_for_hung, daemon=True)
            self._look.start()

    def _deliver(self) -> None:
        if self._post is not None and (said := self._post.answer()) is not None:
            key, alert = self._post.key, self._all[self._post.key]
            again = said in NOT_TAKEN and alert.tries < TRIES
            self._not_before = time.monotonic() + min(LONGEST_PAUSE, 2.0 ** (alert.tries - 1)) * again
            self._post = None
            with self._state:
                self._put(key, msgspec.structs.replace(alert, state=WANTED if again else said))
        wanted = next((key for key, alert in self._all.items() if alert.state == WANTED), None)
        if self._post is None and self._url and wanted is not None and time.monotonic() >= self._not_before:
            alert = self._all[wanted]
            with self._state:
                self._put(wanted, msgspec.structs.replace(alert, state=ON_ITS_WAY, tries=alert.tries + 1))
            self._post = _AlertPost(wanted, self._url, alert.body)

    def _look_for_hung(self) -> None:
        begin = time.monotonic()
        try:
            with contextlib.closing(Reader([Live.open(self._run_folder)])) as reader:
                if finding := _of_hung(reader):
                    self._hung.put(finding)
        except Exception:  # a fault here must not end the shipper
            _log.exception("what hangs could not be looked for")
        self._look_at = time.monotonic() + max(LOOK_EVERY, 20 * (time.monotonic() - begin))

    @property
    def stopped_by(self) -> str:
        """Name the finding for which the run was asked to end (``AT-REWARD-CONSTANT in step 3``), or return an empty
        text."""
        return self._state.meta(_STOPPED) or ""

    @property
    def notes(self) -> list[str]:
        """Describe messages that did not arrive, for the status. Only the host of the address is named: the address may
        be a secret."""
        host = urlsplit(self._url).hostname or "nobody"
        reasons = Counter(
            UNKNOWN if alert.state == ON_ITS_WAY else alert.state
            for key, alert in self._all.items()
            if alert.state != ARRIVED and not (self._post is not None and self._post.key == key)
        )
        said = [f"alerts to {host}: {count} {reason}" for reason, count in reasons.items()]
        return said + [f"alerts to {host}: no more than {MOST} are sent"] * self._full

    @property
    def _busy(self) -> bool:
        return self._post is not None or (bool(self._url) and any(one.state == WANTED for one in self._all.values()))

    def close(self) -> None:
        """Wait for unsent messages, at most ``LAST`` seconds."""
        until = time.monotonic() + LAST
        self._watches = False
        while self._busy and time.monotonic() < until:
            self.settle(0)
            time.sleep(0.05)


UNKNOWN = "were not answered: it is not known whether they arrived"
_SAID: dict[type, str] = {
    ConnectionRefusedError: "were refused: nobody listens", socket.gaierror: "were refused: the host has no address",
    TimeoutError: UNKNOWN,
}  # fmt: skip
NOT_TAKEN = frozenset({
    _SAID[ConnectionRefusedError], _SAID[socket.gaierror], "were answered with 429", "were answered with 503",
})  # fmt: skip
"""List the answers after which a message may be sent again."""


class _AlertPost:
    """Send one message in a thread of its own."""

    def __init__(self, key: str, url: str, body: dict[str, Any]) -> None:
        self.key = key
        self._request = urllib.request.Request(
            url,
            msgspec.json.encode({"text": body["text"]} if wants_slack(url) else body),
            {"Content-Type": "application/json", "User-Agent": "autotrace"},
        )
        self._until = time.monotonic() + PATIENCE
        self._said: str | None = None
        threading.Thread(target=self._send, daemon=True).start()

    def answer(self) -> str | None:
        """Return ``ARRIVED`` or the reason of the failure; None: no answer yet."""
        return self._said or (UNKNOWN if time.monotonic() > self._until else None)

    def _send(self) -> None:
        try:
            with OPENER.open(self._request, timeout=PATIENCE):
                self._said = ARRIVED  # the body of the answer is not read
        except urllib.error.HTTPError as error:
            self._said = f"were answered with {error.code}"
            error.close()
        except Exception as error:
            reason: object = getattr(error, "reason", error)
            self._said = _SAID.get(type(reason), f"failed ({type(reason).__name__})")


def wants_slack(url: str) -> bool:
    """Return whether the address takes Slack's format (Slack itself, or Discord's and Mattermost's addresses for
    Slack)."""
    parts = urlsplit(url)
    return parts.hostname == "hooks.slack.com" or parts.path.rstrip("/").endswith("/slack")


def message(info: RunInfo, run_folder: Path, step: int | None, finding: Finding) -> dict[str, Any]:
    """Build the message about one finding of one step. Notes and places quote models, so both need
    ``--alert-texts``."""
    trace = next((place.trace_id[:12] for place in finding.places), "")
    look = look_at(shlex.quote(str(run_folder)), trace)
    lines = [
        f"{finding.code}: {finding.title}; {amount(finding)}",
        f"on {info.host}: {look}",
    ]
    told = {"run": info.run_id, "host": info.host, "project": info.project, "experiment": info.experiment, "step": step}
    body = {**told, **finding.as_dict()}
    if info.alert_texts:
        lines += [f"{note} ({count:,})" for note, count in finding.notes.items()]
    else:
        del body["notes"], body["answer"]
        body["places"] = [{name: value for name, value in place.items() if name != "note"} for place in body["places"]]
    return {"text": "\n".join(map(plain, lines)), **body}


def _of_hung(reader: Reader) -> Finding | None:
    """Return the calls that hang now as a finding."""
    found = hanging(reader)
    if not found:
        return None
    is_open = Condition("NOT complete", (), frozenset({"complete"}))
    steps = {row.trace_id: row.step for row in reader.select(is_open, ("trace_id", "step"))}
    since = min((steps[trace] for trace in found if steps.get(trace) is not None), default=None)
    places = [Location(trace, steps.get(trace), mark.turn, None, mark.note) for trace, mark in [*found.items()][:3]]
    notes, code = dict(Counter(mark.kind for mark in found.values())), codes()[HUNG]
    return Finding(
        HUNG, code.title, code.what, len(found), len(steps), len(found) / len(steps), since, 1, code.why, code.remedy,
        places, notes=notes,
    )  # fmt: skip
