"""The delivery processes of a shipper (``--shippers``): started when they are needed, and again when they die; and what
one of them does: ``python -m autotrace.ship.delivery.workers RUN_FOLDER DESCRIPTOR``.

The shipper reads the spool, decides and writes the state. A delivery process reads both, loads, decodes and delivers
what it is told to, and answers. Traces are dealt out by id. A process may be killed at any point, and ends when the
shipper does. Nothing is lost then: what it was to deliver is still in the queue, and what it delivered without an
answer is replaced by the next delivery."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec

from autotrace.config import exit_codes
from autotrace.run import files, layout
from autotrace.run.info import RunInfo
from autotrace.run.process import python
from autotrace.ship import process
from autotrace.ship.assembly.about_run import binds_of
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery.carrier import Receipt, ThreadCarrier, Wanted
from autotrace.ship.delivery.packing import Packer
from autotrace.ship.store.delivery_queue import Share
from autotrace.ship.store.state import Memory, State
from autotrace.sinks import registry

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


_encode = msgspec.msgpack.Encoder().encode
_orders = msgspec.msgpack.Decoder(Deliver)
_answers = msgspec.msgpack.Decoder(Delivered)


class WorkerProcess:
    """One delivery process as the shipper sees it. There may be several in a row."""

    def __init__(self, number: int, run_folder: Path) -> None:
        self.note = ""
        self.deaths = 0
        """In a row."""
        self.connection: Connection | None = None
        self._number = number
        self._words = python("autotrace.ship.delivery.workers", str(run_folder))
        self._log = run_folder / layout.SHIPPER_LOG
        self._process: subprocess.Popen[bytes] | None = None
        self._began = self._not_before = 0.0
        self._numbers = itertools.count(1)
        self._parcels: dict[int, Future[Receipt]] = {}
        self._lost = False
        """It was told something that it could not hear."""

    @property
    def ready(self) -> bool:
        """It runs, or may be started."""
        return self.connection is not None or time.monotonic() >= self._not_before

    def deliver(self, backend: str, wanted: Wanted) -> Future[Receipt]:
        """Have it deliver them. What it does not hear because it died is handed back by ``listen``."""
        number, future = next(self._numbers), Future[Receipt]()
        self._parcels[number] = future
        try:
            connection = self.connection or self._start()
            connection.send_bytes(_encode(Deliver(number, backend, list(wanted))))
        except OSError as error:
            self._lost = True
            if self.connection is None and not self.deaths:
                _log.error("a delivery process cannot be started: %s", error)
        return future

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

    def listen(self) -> None:
        """Take what it has answered. Once it is dead, what it was to do is handed back."""
        try:
            while self.connection is not None and self.connection.poll():
                answer = _answers.decode(self.connection.recv_bytes())
                self.note = answer.note
                self._parcels.pop(answer.number).set_result(answer.receipt)
            if not self._lost:
                return
        except (EOFError, OSError, msgspec.MsgspecError):
            pass
        code = self.stop(0.0)
        self.deaths = 1 if time.monotonic() - self._began > CALM else self.deaths + 1
        self._not_before = time.monotonic() + min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self.deaths - 1))
        how = "ended" if code is None or code >= 0 else f"was killed by signal {-code}"
        _log.warning("delivery process %d %s; its trajectories are dealt out again", self._number + 1, how)

    def stop(self, seconds: float) -> int | None:
        """Let it end, or end it after ``seconds``; its exit code. What it has not done is not done by it."""
        connection, self.connection = self.connection, None
        running, self._process = self._process, None
        parcels, self._parcels = self._parcels, {}
        self._lost = False
        if connection is not None:
            connection.close()
        code = None
        if running is not None:
            try:
                code = running.wait(max(seconds, 0.5))
            except subprocess.TimeoutExpired:
                running.kill()
                code = running.wait()
        for parcel in parcels.values():
            parcel.set_result(Receipt())
        return code


class Workers:
    """``count`` delivery processes of one run."""

    def __init__(self, run_folder: Path, count: int) -> None:
        self.count = count
        self._all = [WorkerProcess(number, run_folder) for number in range(count)]

    @property
    def broken(self) -> bool:
        """They die again and again."""
        return any(worker.deaths >= GIVE_UP for worker in self._all)

    def carriers(self, backend: str, parallel: bool) -> list[tuple[RemoteCarrier, Share]]:
        """How traces get to ``backend``: through all processes, or through the first if it cannot be called by
        several at once."""
        count = self.count if parallel else 1
        return [(RemoteCarrier(self._all[number], backend), Share(number, count)) for number in range(count)]

    def listen(self, seconds: float = 0.0) -> None:
        """Take what the processes have answered; wait for the first answer at most ``seconds``."""
        connections = [worker.connection for worker in self._all if worker.connection is not None]
        if connections:
            wait(connections, seconds)
        else:
            time.sleep(seconds)
        for worker in self._all:
            worker.listen()

    def notes(self) -> Iterator[str]:
        """Notes for the user."""
        yield from dict.fromkeys(worker.note for worker in self._all if worker.note)

    def stop(self) -> None:
        """End all processes; they are started again when there is something for them to do."""
        for worker in self._all:
            worker.stop(2.0)


class RemoteCarrier:
    """A ``Carrier`` that has a delivery process load and deliver."""

    def __init__(self, worker: WorkerProcess, backend: str) -> None:
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
        return self._worker.deliver(self._backend, wanted)

    def wait(self, parcels: Sequence[Future[Receipt]], seconds: float) -> None:
        """See ``Carrier``."""
        deadline = time.monotonic() + seconds
        while not all(parcel.done() for parcel in parcels) and time.monotonic() < deadline:
            self._worker.listen()
            time.sleep(0.01)

    def close(self, idle: bool) -> None:
        """The process is ended by ``Workers``."""


class _Worker:
    """Carries out the shipper's orders, one after the other; sinks deliver in threads of their own."""

    def __init__(self, run_folder: Path, connection: Connection) -> None:
        self._run_folder = run_folder
        self._connection = connection
        self._info = RunInfo.read(run_folder)
        self._state = State.of_run(run_folder)
        self._decoder = Decoder(run_folder, much=True)
        self._packer = Packer(self._state, Loader(self._state, run_folder, self._info), self._decoder)
        self._carriers: dict[str, ThreadCarrier] = {}
        self._bound = 0
        self._sending = threading.Lock()

    def serve(self) -> None:
        """Until the shipper closes its end, which raises ``EOFError`` or ``OSError``."""
        while True:
            process.collect_garbage()
            self._deliver(_orders.decode(self._connection.recv_bytes()))

    def _deliver(self, order: Deliver) -> None:
        self._hand_on_binds()
        carrier = self._carriers.get(order.backend)
        if carrier is None:
            carrier = self._carriers[order.backend] = self._carrier(order.backend)

        def done(future: Future[Receipt]) -> None:
            answer = Delivered(order.number, future.result(), self._decoder.problem or "")
            with self._sending:
                self._connection.send_bytes(_encode(answer))

        carrier.send(order.wanted).add_done_callback(done)

    def _carrier(self, backend: str) -> ThreadCarrier:
        memory = Memory(self._state, f"backend:{backend}:")
        carrier = ThreadCarrier(registry.make(backend, self._info, self._run_folder, memory), self._packer)
        for name, value in binds_of(self._state)[: self._bound]:
            carrier.bind(name, value)
        return carrier

    def _hand_on_binds(self) -> None:
        """What was reported about the run since the last delivery: the shipper has stored it before its order."""
        binds = binds_of(self._state)
        new, self._bound = binds[self._bound :], len(binds)
        for name, value in new:
            if name == "tokenizer":
                self._decoder.bind(value)
            for carrier in self._carriers.values():
                carrier.bind(name, value)


def main(run_folder: str, descriptor: int) -> int:
    """Serve until the shipper is gone."""
    process.begin(Path(run_folder))
    try:
        _Worker(Path(run_folder), Connection(descriptor)).serve()
    except (EOFError, ConnectionError):
        return exit_codes.OK
    except Exception:
        _log.exception("a delivery process stopped because of an unexpected error")
        return exit_codes.BROKEN
    return exit_codes.OK


if __name__ == "__main__":
    code = main(sys.argv[1], int(sys.argv[2]))
    logging.shutdown()
    # Not sys.exit: a parcel on its way is the next shipper's to send again, and must not be sent by both.
    os._exit(code)
