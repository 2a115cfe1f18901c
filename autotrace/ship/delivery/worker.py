"""``python -m autotrace.ship.delivery.worker RUN_FOLDER DESCRIPTOR``: one of the delivery processes of a shipper
with ``--shippers``; ``workers`` starts it.

It loads, decodes and delivers what it is told to, and writes nothing into the state: the shipper does, by what it
answers. It may be killed at any point, and ends when the shipper does.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path

from autotrace.config import environment as env
from autotrace.config import exit_codes
from autotrace.run.info import RunInfo
from autotrace.ship import process
from autotrace.ship.assembly.about_run import binds_of
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery import workers
from autotrace.ship.delivery.admission import Ledger
from autotrace.ship.delivery.carrier import Receipt, ThreadCarrier
from autotrace.ship.delivery.packing import Packer
from autotrace.ship.delivery.workers import Deliver, Delivered
from autotrace.ship.process import log_to_file
from autotrace.ship.store.state import Memory, State
from autotrace.sinks import registry


class Worker:
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
            self._deliver(workers.orders.decode(self._connection.recv_bytes()))

    def _deliver(self, order: Deliver) -> None:
        carrier = self._carriers.get(order.backend)
        if carrier is None:
            carrier = self._carriers[order.backend] = self._carrier(order.backend)
            for name, value in binds_of(self._state)[: self._bound]:
                carrier.bind(name, value)
        self._hand_on_binds()

        def done(future: Future[Receipt]) -> None:
            answer = Delivered(order.number, future.result(), self._decoder.problem or "")
            with self._sending:
                self._connection.send_bytes(workers.encode(answer))

        carrier.send(order.wanted).add_done_callback(done)

    def _carrier(self, backend: str) -> ThreadCarrier:
        memory = Memory(self._state, f"backend:{backend}:")
        sink = registry.make(backend, self._info, self._run_folder, memory)
        return ThreadCarrier(sink, self._packer, Ledger(self._state, backend, None))

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
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.environ[env.AUTOTRACE] = "0"
    process.put_off_garbage()
    log_to_file(Path(run_folder))
    try:
        Worker(Path(run_folder), Connection(descriptor)).serve()
    except (EOFError, ConnectionError):
        return exit_codes.OK
    except Exception:
        logging.getLogger("autotrace.ship").exception("a delivery process stopped because of an unexpected error")
        return exit_codes.BROKEN
    return exit_codes.OK


if __name__ == "__main__":
    code = main(sys.argv[1], int(sys.argv[2]))
    logging.shutdown()
    # Not sys.exit: a parcel on its way is the next shipper's to send again, and must not be sent by both.
    os._exit(code)
