"""``python -m autotrace.ship.relay RUN_FOLDER``: forwards this node's segments to the collector of the run.

Started by the first process that records on a node without the run's folder (see ``bootstrap.elsewhere``); one per node
(``shipper.lock``). Ends when every writer here is gone and everything was taken, or after ``LAST_TRIES``; what is left
stays in the folder, and the same command sends it later.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from autotrace.bootstrap import environment as env
from autotrace.ship.lock import ShipperLock
from autotrace.spool import layout
from autotrace.spool.reader import opened, segments, writer_alive

_log = logging.getLogger("autotrace.relay")

POLL = 0.3
"""Seconds between two looks at the segments."""
HEARTBEAT = 5.0
"""Seconds between two words about a writer that lives and writes nothing."""
CHUNK = 4 << 20
IDLE = 30.0
"""Seconds without a living writer after which the relay ends."""
LAST_TRIES = 600.0
"""Seconds the collector may be out of reach after the last writer ended."""
TIMEOUT = 15.0


@dataclass
class _Sent:
    size: int = 0
    said: float = -HEARTBEAT
    ended: bool = False
    """The collector knows that the writer is gone, and has everything."""


class Collector:
    """The other end. Raises ``OSError`` or ``http.client.HTTPException`` when it cannot be reached or refuses."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._place = (parts.hostname or "", parts.port or 80)
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    def append(self, name: str, offset: int, alive: bool, data: bytes) -> int:
        """Size of segment ``name`` at the collector afterwards."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._place, timeout=TIMEOUT)
        try:
            self._connection.request(
                "PUT",
                f"/segments/{name}?offset={offset}&alive={int(alive)}",
                body=data,
                headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/octet-stream"},
            )
            response = self._connection.getresponse()
            body = response.read(1024)
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if response.status not in (200, 409):
            self.close()
            raise ConnectionError(f"the collector answered {response.status}")
        return int(json.loads(body)["size"])

    def close(self) -> None:
        """Drop the connection; the next request makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Relay:
    """Forwards the segments of one folder; ``round`` sends what is new."""

    def __init__(self, run_folder: str | Path, collector: Collector) -> None:
        self._folder = run_folder
        self._collector = collector
        self._sent: dict[str, _Sent] = {}
        self.living = True

    def round(self) -> bool:
        """Send what is new; True when something was sent. Raises what ``Collector.append`` raises."""
        moved = False
        self.living = False
        for file in segments(self._folder):
            sent = self._sent.setdefault(file.name, _Sent())
            if sent.ended:
                continue
            alive = writer_alive(self._folder, file.name)  # before the size: what it wrote last is seen below
            self.living = self.living or alive
            with opened(self._folder, file.name) as fd:
                size = os.fstat(fd).st_size
                while sent.size < size:
                    data = os.pread(fd, min(CHUNK, size - sent.size), sent.size)
                    last = sent.size + len(data) >= size
                    sent.size = self._collector.append(file.name, sent.size, alive or not last, data)
                    sent.said, moved = time.monotonic(), True
            if not alive:
                sent.size = self._collector.append(file.name, sent.size, False, b"")
                sent.ended = True
            elif time.monotonic() - sent.said > HEARTBEAT:
                sent.size = self._collector.append(file.name, sent.size, True, b"")
                sent.said = time.monotonic()
        return moved

    def follow(self) -> bool:
        """Until the writers are gone and everything was taken; False when something is left."""
        quiet_since = failing_since = None
        delay = POLL
        while True:
            try:
                moved = self.round()
                failing_since, delay = None, POLL
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                failing_since = failing_since or time.monotonic()
                delay = min(delay * 2, 15.0)
                _log.warning("the collector cannot be reached (%s: %s)", type(error).__name__, error)
                moved = False
            now = time.monotonic()
            quiet_since = None if self.living or moved else quiet_since or now
            if quiet_since is not None:
                if failing_since is None and now - quiet_since > IDLE:
                    return True
                if failing_since is not None and now - quiet_since > LAST_TRIES:
                    return False
            time.sleep(delay)


def main(run_folder: str) -> int:
    """0: everything was forwarded (or another relay does it); 1: something is left, or nobody to send it to."""
    os.environ[env.AUTOTRACE] = "0"
    url, token = os.environ.get(env.COLLECTOR), os.environ.get(env.TOKEN)
    logging.basicConfig(
        filename=os.path.join(run_folder, layout.SHIPPER_LOG),
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    if not url or not token:
        _log.error("no collector: set %s and %s", env.COLLECTOR, env.TOKEN)
        return 1
    with ShipperLock(run_folder) as lock:
        if not lock.held:
            return 0
        collector = Collector(url, token)
        try:
            return 0 if Relay(run_folder, collector).follow() else 1
        except Exception:
            _log.exception("the relay ended")
            return 1
        finally:
            collector.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
