"""The delivery processes of a run (``--shippers``): started when there is something for them, and again when they die;
and what one of them does: ``python -m autotrace.ship.delivery.deliverers RUN_FOLDER KEY``.

The shipper reads the spool, decides, and queues what is to be delivered. Each delivery process delivers a share of the
queue, by trace id, and stores in the state what was acknowledged. A process may be killed at any point, and ends when
the shipper does. Nothing is lost then: what was not acknowledged is still in the queue, and what was without being
stored is replaced by the next delivery."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from autotrace.config import exit_codes
from autotrace.run import files, layout
from autotrace.run.info import RunInfo
from autotrace.run.process import python
from autotrace.ship import process
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery.courier import Couriers
from autotrace.ship.store.delivery_queue import Share
from autotrace.ship.store.state import State

_log = logging.getLogger("autotrace.ship")

FIRST_DELAY = 0.2
"""Seconds before the first new start of a process that died; doubled each time, up to ``LONGEST_DELAY``."""
LONGEST_DELAY = 30.0
CALM = 60.0
"""Seconds of life after which earlier deaths are forgotten."""
GIVE_UP = 6
"""Deaths in a row after which the shipper goes on alone."""
PATIENCE = 60.0
"""Seconds for which a process is waited for that closes its sinks."""
KEYS = "deliverer:"
"""In the state, what is said about each process."""
BUSY, IDLE = 0.02, 0.2
"""Seconds between two rounds of a process: while a parcel is on its way, else."""


class Remote(msgspec.Struct):
    """A courier in a delivery process: the shipper says what it delivers, and the process how it does."""

    name: str
    share: Share
    state: str = "ok"
    """This and the next two as in ``Courier``."""
    error: str | None = None
    gave_up: bool = False
    note: str | None = None
    """For the user: why texts could not be decoded."""
    busy: ClassVar[bool] = False
    """What is on its way is in the queue."""
    after: ClassVar[str] = ""


_remotes = msgspec.json.Decoder(list[Remote])


def said(state: State, key: str) -> list[Remote]:
    """What was said last about the couriers of a process; ``key``: its own in the state."""
    return _remotes.decode(state.meta(key) or "[]")


def say(state: State, key: str, remotes: Sequence[Remote]) -> None:
    """Say it, for the other process."""
    with state:
        state.put_meta(key, msgspec.json.encode(remotes).decode())


class Deliverer:
    """One delivery process as the shipper sees it. There may be several in a row."""

    def __init__(self, state: State, run_folder: Path, number: int) -> None:
        self.key = f"{KEYS}{os.getpid()}:{number}"
        """An earlier shipper's processes have others: one may be about to end."""
        self.deaths = 0
        """In a row."""
        self._state = state
        self._number = number
        self._words = python("autotrace.ship.delivery.deliverers", str(run_folder), self.key)
        self._log = run_folder / layout.SHIPPER_LOG
        self._process: subprocess.Popen[bytes] | None = None
        self._began = self._not_before = 0.0

    def keep(self) -> None:
        """Start it when something waits for it; after a death, some time later."""
        if self._process is not None:
            if self._process.poll() is not None:
                code = self.stop()
                self._died("ended" if code >= 0 else f"was killed by signal {-code}")
        elif time.monotonic() >= self._not_before and self._waited_for():
            self._began = time.monotonic()
            try:
                with os.fdopen(files.append(self._log), "wb") as log:
                    self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=log, stderr=log)
            except OSError as error:
                self._died(f"cannot be started: {error}")

    def _waited_for(self) -> bool:
        sql = "SELECT EXISTS (SELECT 1 FROM queue WHERE backend = ?)"
        return any(self._state.count(sql, (remote.name,)) for remote in said(self._state, self.key))

    def _died(self, how: str) -> None:
        self.deaths = 1 if time.monotonic() - self._began > CALM else self.deaths + 1
        self._not_before = time.monotonic() + min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self.deaths - 1))
        _log.warning("delivery process %d %s; it is started again", self._number + 1, how)

    def ask(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> int:
        """Wait for its end, at most ``PATIENCE``; its exit code."""
        running, self._process = self._process, None
        if running is None:
            return exit_codes.OK
        with running:
            try:
                running.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                running.kill()
        return running.returncode


def main(run_folder: str, key: str) -> int:
    """Deliver until the shipper asks for the end (SIGTERM), or is gone. Logs to ``shipper.log`` alone."""
    folder, asked = Path(run_folder), list[int]()
    process.begin(folder)
    signal.signal(signal.SIGTERM, lambda received, _: asked.append(received))
    threading.Thread(target=_end_with_the_shipper, name="shipper-lives", daemon=True).start()
    try:
        _deliver(folder, key, asked)
    except Exception:
        _log.exception("a delivery process stopped because of an unexpected error")
        return exit_codes.BROKEN
    return exit_codes.OK


def _end_with_the_shipper() -> None:
    """The shipper holds the other end of stdin. What is on its way is the next shipper's to send again, and must not be
    sent by both."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(exit_codes.OK)


def _deliver(folder: Path, key: str, asked: Sequence[int]) -> None:
    state, info = State.of_run(folder), RunInfo.read(folder)
    couriers = Couriers(state, folder, info, Loader(state, folder, info))
    before = said(state, key)
    couriers.own = [couriers.to(remote.name, remote.share) for remote in before]
    while not asked:
        coming = bool(state.count("SELECT EXISTS (SELECT 1 FROM traces WHERE complete = 0)"))
        moved = couriers.deliver(True, coming)
        now = [Remote(c.name, c.share, c.state, c.error, c.gave_up, couriers.decoder.problem) for c in couriers.own]
        if now != before:
            say(state, key, now)
            before = now
        process.collect_garbage()
        time.sleep(0.0 if moved else BUSY if couriers.busy else IDLE)
    couriers.let_go()


if __name__ == "__main__":
    process.leave(main(*sys.argv[1:]))
