"""Listens for other nodes once there are any: starts the receiver when the run asks for one."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.ship.cluster.receiver import Receiver

_log = logging.getLogger("autotrace.ship")

GRACE = 3.0
"""Seconds after the end of the run, or after a relay's last request, in which other nodes may still send."""


class Listening:
    """Takes what other nodes of one run record."""

    def __init__(self, run_folder: Path) -> None:
        self._run_folder = run_folder
        self._receiver: Receiver | None = None
        self._problem = ""

    def look(self) -> None:
        """Begin to listen if other nodes will send; let go of those that have stopped sending."""
        request = self._run_folder / layout.LISTEN
        if self._receiver is None and request.exists():
            host, _, port = os.environ.get(env.LISTEN, "").rpartition(":")
            try:
                self._receiver = Receiver(
                    self._run_folder, host or "0.0.0.0", int(port or 0), request.read_text().strip()
                )
                self._receiver.publish(self._run_folder)
            except (OSError, ValueError) as error:
                if not self._problem:
                    _log.error("cannot listen for other nodes: %s", error)
                self._problem = str(error)
        if self._receiver is not None:
            self._receiver.forget_the_silent()

    @property
    def clocks(self) -> Mapping[str, int]:
        """Boot of another node -> nanoseconds from its monotonic clock to our wall clock."""
        return {} if self._receiver is None else self._receiver.clocks

    def expects_more(self, ended_for: float) -> bool:
        """The run ended ``ended_for`` seconds ago, but the last records of other nodes may still be in transit."""
        receiver = self._receiver
        return receiver is not None and min(ended_for, time.monotonic() - receiver.last_heard) < GRACE

    def notes(self) -> Iterator[str]:
        """Notes for the user about other nodes."""
        if self._receiver is None:
            if self._problem:
                yield f"other nodes cannot send what they record: {self._problem}"
            return
        for node in self._receiver.silent:
            yield f"{node} is gone or cannot be reached: what it records stays on its disk"

    def close(self) -> None:
        """Stop listening."""
        if self._receiver is not None:
            self._receiver.close()
