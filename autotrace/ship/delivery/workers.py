"""The delivery processes of a shipper (``--shippers``): started when they are needed, and again when they die; and what
the two say to each other, through a pair of sockets.

The shipper reads the spool, decides and writes the state; a delivery process (``worker``) reads both, and answers.
Traces are dealt out by id. A process that died loses nothing: what it was to deliver is still in the queue, and what it
delivered without an answer is replaced by the next delivery."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run import files, layout
from autotrace.run.process import python
from autotrace.ship.delivery.carrier import Receipt, Wanted
from autotrace.ship.store.delivery_queue import Share


class Deliver(msgspec.Struct):
    """What a process is told: to deliver traces to a backend."""

    number: int
    backend: str
    wanted: list[tuple[str, int]]


class Delivered(msgspec.Struct):
    """What it answers: what came of that."""

    number: int
    receipt: Receipt
    note: str
    """For the user: why texts could not be decoded."""


encode = msgspec.msgpack.Encoder().encode
orders = msgspec.msgpack.Decoder(Deliver)
answers = msgspec.msgpack.Decoder(Delivered)

_log = logging.getLogger("autotrace.ship")

PARCELS = 2
"""Parcels for one backend that a process may have: one at the sink, one that is being loaded."""
FIRST_DELAY = 0.2
"""Seconds before the first new start of a process that died; doubled each time, up to ``LONGEST_DELAY``."""
LONGEST_DELAY = 30.0
CALM = 60.0
"""Seconds of life after which earlier deaths are forgotten."""
GIVE_UP = 6
"""Deaths in a row after which the shipper goes on alone."""


class WorkerProcess:
    """One delivery process, of which there may be several in a row."""

    def __init__(self, number: int, run_folder: Path) -> None:
        self.number = number
        self.parcels: dict[int, Future[Receipt]] = {}
        self.note = ""
        self.deaths = 0
        """In a row."""
        self._words = python("autotrace.ship.delivery.worker", str(run_folder))
        self._log = run_folder / layout.SHIPPER_LOG
        self._process: subprocess.Popen[bytes] | None = None
        self._began = self._not_before = 0.0
        self._lost = False
        """It was told something that it could not hear."""
        self.connection: Connection | None = None

    @property
    def ready(self) -> bool:
        """It runs, or may be started."""
        return self.connection is not None or time.monotonic() >= self._not_before

    @property
    def pid(self) -> int | None:
        """Of the process that runs."""
        return None if self._process is None else self._process.pid

    def _start(self) -> Connection:
        self._began = time.monotonic()
        ours, theirs = Pipe()
        log = files.append(self._log)
        try:
            words = [*self._words, str(theirs.fileno())]
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()]
            )
        except OSError:
            ours.close()
            raise
        finally:
            os.close(log)
            theirs.close()
        self.connection = ours
        return ours

    def send(self, order: Deliver) -> None:
        """Tell it what to do. What it does not hear because it died is handed back by ``bury``."""
        try:
            connection = self.connection or self._start()
            connection.send_bytes(encode(order))
        except OSError as error:
            self._lost = True
            if self.connection is None and not self.deaths:
                _log.error("a delivery process cannot be started: %s", error)

    def answered(self) -> Iterator[Delivered]:
        """What it has answered. Raises ``EOFError`` or ``OSError`` once it is dead and everything was handed out."""
        while self.connection is not None and self.connection.poll():
            yield answers.decode(self.connection.recv_bytes())
        if self._lost:
            raise EOFError

    def bury(self) -> None:
        """It died: take back what it was to do."""
        code = self.stop(0.0)
        self.deaths = 1 if time.monotonic() - self._began > CALM else self.deaths + 1
        self._not_before = time.monotonic() + min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self.deaths - 1))
        how = "ended" if code is None or code >= 0 else f"was killed by signal {-code}"
        _log.warning("delivery process %d %s; its trajectories are dealt out again", self.number + 1, how)
        self.take_back()

    def take_back(self) -> None:
        """What it has not done is not done by it."""
        self._lost = False
        parcels, self.parcels = self.parcels, {}
        for parcel in parcels.values():
            parcel.set_result(Receipt())

    def stop(self, seconds: float) -> int | None:
        """Let it end, or end it after ``seconds``; its exit code."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self._process is None:
            return None
        process, self._process = self._process, None
        try:
            return process.wait(max(seconds, 0.5))
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


class Workers:
    """``count`` delivery processes of one run."""

    def __init__(self, run_folder: Path, count: int) -> None:
        self._all = [WorkerProcess(number, run_folder) for number in range(count)]
        self._numbers = itertools.count(1)

    @property
    def broken(self) -> bool:
        """They die again and again."""
        return any(worker.deaths >= GIVE_UP for worker in self._all)

    def carriers(self, backend: str, parallel: bool) -> list[tuple[RemoteCarrier, Share]]:
        """How traces get to ``backend``: through all processes, or through the first if it cannot be called by
        several at once."""
        count = len(self._all) if parallel else 1
        return [(RemoteCarrier(self, self._all[number], backend), Share(number, count)) for number in range(count)]

    def deliver(self, worker: WorkerProcess, backend: str, wanted: Wanted) -> Future[Receipt]:
        """Have ``worker`` deliver them."""
        number, future = next(self._numbers), Future[Receipt]()
        worker.parcels[number] = future
        worker.send(Deliver(number, backend, list(wanted)))
        return future

    def listen(self, seconds: float = 0.0) -> None:
        """Take what the processes have answered; wait for the first answer at most ``seconds``."""
        connections = [worker.connection for worker in self._all if worker.connection is not None]
        if seconds and connections:
            wait(connections, seconds)
        elif seconds:
            time.sleep(seconds)
        for worker in self._all:
            try:
                for answer in worker.answered():
                    worker.note = answer.note
                    worker.parcels.pop(answer.number).set_result(answer.receipt)
            except (EOFError, OSError, msgspec.MsgspecError):
                worker.bury()

    def notes(self) -> Iterator[str]:
        """Notes for the user."""
        yield from dict.fromkeys(worker.note for worker in self._all if worker.note)

    def stop(self) -> None:
        """End all processes; they are started again when there is something for them to do."""
        for worker in self._all:
            worker.stop(2.0)
            worker.take_back()


class RemoteCarrier:
    """A ``Carrier`` that has a delivery process load and deliver."""

    def __init__(self, workers: Workers, worker: WorkerProcess, backend: str) -> None:
        self._workers = workers
        self._worker = worker
        self._backend = backend

    @property
    def capacity(self) -> int:
        """See ``Carrier``."""
        return PARCELS if self._worker.ready else 0

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Nothing: the process finds it in the state."""

    def send(self, wanted: Wanted) -> Future[Receipt]:
        """See ``Carrier``."""
        return self._workers.deliver(self._worker, self._backend, wanted)

    def wait(self, parcels: Sequence[Future[Receipt]], seconds: float) -> None:
        """See ``Carrier``."""
        deadline = time.monotonic() + seconds
        while not all(parcel.done() for parcel in parcels) and (left := deadline - time.monotonic()) > 0:
            self._workers.listen(min(left, 0.1))

    def close(self, idle: bool) -> None:
        """The process is ended by ``Workers``."""
