"""Forward this node's segments to the collector of the run: ``python -m autotrace.ship.cluster.relay RUN_FOLDER``.

The first process that records on a node without the run's folder (see ``run.remote_node``) starts the relay, and the
process's guard starts a killed relay again. A node has one relay (``shipper.lock``). A relay ends when every writer
here is gone and the collector has everything, or after ``LAST_TRIES``. Segments that are left stay in the folder, and
the same command sends them later.

The relay writes to the stderr of the process that started the relay until the relay knows whether the collector can be
reached. The user needs this message at the start of a run and not at its end (Ray shows it in the driver's log).
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from autotrace.config import environment as env
from autotrace.config import exit_codes
from autotrace.config.plan import Plan
from autotrace.config.stderr import say
from autotrace.run import layout
from autotrace.run.process import boot_id
from autotrace.run.remote_node import plan_text
from autotrace.run.shipper_process import ShipperLock
from autotrace.ship.cluster.channel import Channel, encrypted
from autotrace.ship.cluster.receiver import ForwardedPart
from autotrace.ship.process import log_to_file
from autotrace.spool.reader import opened, segments, writer_alive
from autotrace.spool.writer import REMOVE_ABOVE, REMOVE_TO

_log = logging.getLogger("autotrace.relay")

POLL = 0.1
"""Wait so many seconds between two looks at the segments. A node that is switched off loses this time and a
``flush_interval``."""
PROBE = 0.5
"""Wait so many seconds before checking again whether the writers live."""
HEARTBEAT = 5.0
"""Wait so many seconds between two heartbeats for a silent living writer."""
CHUNK = 4 << 20
IDLE = 30.0
"""End the relay after so many seconds without a living writer."""
LAST_TRIES = 600.0
"""Try an unreachable collector for so many seconds after the last writer ended."""
TIMEOUT = 15.0


@dataclass
class _Sent:
    size: int = 0
    heartbeat_at: float = -HEARTBEAT
    probed: float = -PROBE
    ended: bool = False
    """Store whether the collector has everything and knows that the writer is gone."""


class Collector:
    """Send to the collector. Raises ``OSError`` if the collector cannot be reached or belongs to another run."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._certificate = parts.fragment
        self._token = token
        self._boot = boot_id()
        self._channel: Channel | None = None

    def append(self, name: str, offset: int, alive: bool, data: bytes) -> int:
        """Append to segment ``name``; return the size of the segment at the collector afterwards."""
        try:
            channel = self._channel = self._channel or self._connected()
            arrived = ForwardedPart(name, offset, alive, self._boot, time.monotonic_ns())
            channel.send(msgspec.msgpack.encode(arrived), data)
            return int(channel.rest(channel.begun())[0])
        except (OSError, ValueError):
            self.close()
            raise

    def _connected(self) -> Channel:
        connection = socket.create_connection(self._address, TIMEOUT)
        if self._certificate:
            connection = encrypted(connection, self._certificate)
        return Channel(connection, self._token, collector=False)

    def __str__(self) -> str:
        return f"the collector of this run ({self._address[0]}:{self._address[1]})"

    def close(self) -> None:
        """Drop the connection; the next ``append`` opens another."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class Relay:
    """Forward the segments of one folder; ``round`` sends new bytes. ``limit``: bytes the folder may take
    (``--spool-limit``). Segments that the collector has whole are removed first, the oldest before the others."""

    def __init__(self, run_folder: str | Path, collector: Collector, limit: int = 0) -> None:
        self._folder = run_folder
        self._collector = collector
        self._limit = limit
        self._sent: dict[str, _Sent] = {}
        self.living = True

    def round(self) -> bool:
        """Send new bytes; return whether bytes were sent. Raises the errors of ``Collector.append``."""
        moved = False
        self.living = False
        for file in segments(self._folder):
            sent = self._sent.setdefault(file.name, _Sent())
            if sent.ended:
                continue
            now = time.monotonic()
            if sent.size == file.size and now - sent.probed < PROBE:
                self.living = True
                continue
            sent.probed = now
            alive = writer_alive(self._folder, file.name)  # before the size: the writer's last bytes are seen below
            self.living = self.living or alive
            with opened(self._folder, file.name) as fd:
                size = os.fstat(fd).st_size
                while sent.size < size:
                    data = os.pread(fd, min(CHUNK, size - sent.size), sent.size)
                    last = sent.size + len(data) >= size
                    sent.size = self._collector.append(file.name, sent.size, alive or not last, data)
                    sent.heartbeat_at, moved = time.monotonic(), True
            if not alive or time.monotonic() - sent.heartbeat_at > HEARTBEAT:
                sent.size = self._collector.append(file.name, sent.size, alive, b"")
                sent.heartbeat_at, sent.ended = time.monotonic(), not alive
        if self._limit:
            self._make_room()
        return moved

    def _make_room(self) -> None:
        files = segments(self._folder)
        total = sum(file.size for file in files)
        if total <= REMOVE_ABOVE * self._limit:
            return
        for file in sorted(files, key=lambda file: file.changed_ns):
            sent = self._sent.get(file.name)
            if total > REMOVE_TO * self._limit and sent is not None and sent.ended and sent.size == file.size:
                os.unlink(os.path.join(layout.spool_of(str(self._folder)), file.name))
                total -= file.size

    def behind(self) -> bool:
        """Return whether a process has begun to write since the last round."""
        return any(file.name not in self._sent for file in segments(self._folder))

    def follow(self) -> bool:
        """Forward until the writers are gone and the collector has everything. Returns False if something is left."""
        quiet_since = failing_since = None
        delay = POLL
        reported = False
        while True:
            try:
                moved = self.round()
                if failing_since is not None:
                    _log.info("the collector can be reached again")
                failing_since, delay = None, POLL
                reported = reported or not _hush()
            except (OSError, ValueError) as error:
                failing_since = failing_since or time.monotonic()
                delay = min(delay * 2, 15.0)
                _log.warning("the collector cannot be reached (%s: %s)", type(error).__name__, error)
                if not reported:
                    say(
                        f"autotrace: {self._collector} cannot be reached from {os.uname().nodename}: what is recorded "
                        f"there stays in {self._folder} until it can; why: {layout.SHIPPER_LOG} in that folder"
                    )
                    reported = not _hush()
                moved = False
            now = time.monotonic()
            quiet_since = None if self.living or moved else quiet_since or now
            if quiet_since is not None:
                if failing_since is None and now - quiet_since > IDLE:
                    return True
                if failing_since is not None and now - quiet_since > LAST_TRIES:
                    return False
            time.sleep(delay)


def _spool_limit() -> int:
    try:
        return Plan.loads(plan_text(os.environ)).settings.spool_limit
    except (OSError, ValueError, TypeError, KeyError):
        return 0


def _hush() -> bool:
    """Stop writing to the stderr of the process that started the relay; return False."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    return False


def main(run_folder: str) -> int:
    """Return ``OK`` if everything was forwarded (or another relay is at work), ``FAILED`` if something is left or no
    collector is set, ``BROKEN`` if the relay must be started again."""
    os.environ[env.AUTOTRACE] = "0"
    url, token = os.environ.get(env.COLLECTOR), os.environ.get(env.TOKEN)
    log_to_file(Path(run_folder))
    if not url or not token:
        _log.error("no collector: set %s and %s", env.COLLECTOR, env.TOKEN)
        return exit_codes.FAILED
    relay = Relay(run_folder, Collector(url, token), _spool_limit())
    try:
        while True:
            with ShipperLock(run_folder) as lock:
                if not lock.held:
                    return exit_codes.OK
                if not relay.follow():
                    return exit_codes.FAILED
            if not relay.behind():  # a process that began meanwhile saw the lock and started no relay
                return exit_codes.OK
    except Exception:
        _log.exception("the relay stopped because of an unexpected error")
        return exit_codes.BROKEN


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
