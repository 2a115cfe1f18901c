"""Backends in trouble, each with a run of its own and the shipper's own process; all of them at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotrace.run.status import Status
from tests.faults.outcome import Outcome, in_spool, ledger, ledgers
from tests.ship.spools import new_run
from tests.sinks.receiver import Receiver, attributes_of
from tests.waiting import DEADLINE, until
from tests.weave_server.fake_server import FakeServer, Fault

ROOT = Path(__file__).resolve().parent.parent.parent
TRAJECTORIES = 6
CALLS = "calls/complete"
_INPUTS = {"llm": "autotrace.inputs", "tool": "gen_ai.tool.call.arguments"}


@dataclass
class Trouble:
    """One backend and a run that delivers to it."""

    run: Path
    environ: dict[str, str]
    arrived: Callable[[], Iterable[Any]]
    """The number of each call that is stored there, once for each row."""
    shipper: subprocess.Popen[bytes] | None = None
    seen: dict[str, Status] = field(default_factory=dict)
    """State of the backend -> the first status that said so."""

    def record(self, trajectories: int = TRAJECTORIES) -> Trouble:
        """Run the traced program to its end."""
        self.program(trajectories).communicate(timeout=DEADLINE)
        return self

    def program(self, trajectories: int) -> subprocess.Popen[bytes]:
        """Start the traced program."""
        command = [sys.executable, "-m", "tests.faults.program", str(self.run), "some", str(trajectories), "0.01"]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "LEDGER": str(ledgers(self.run))}
        return subprocess.Popen(command, cwd=ROOT, env=environ)

    def ship(self) -> subprocess.Popen[bytes]:
        """Start a shipper."""
        self.shipper = subprocess.Popen(
            [sys.executable, "-m", "autotrace.ship", str(self.run)], env={**os.environ, **self.environ}
        )
        return self.shipper

    def look(self) -> Status | None:
        """Read the status; what it says about the backend is remembered."""
        try:
            status = Status.read(self.run)
        except (OSError, ValueError):
            return None
        (backend,) = status.backends.values()
        self.seen.setdefault(backend.state, status)
        return status

    def working(self) -> bool:
        """Whether the shipper is still at work; looks at the status."""
        self.look()
        return self.shipper is not None and self.shipper.poll() is None

    def wait(self) -> None:
        """Until the shipper has ended, and well."""
        assert self.shipper is not None
        until(lambda: not self.working())
        assert self.shipper.returncode == 0, (self.run / "shipper.log").read_text()

    def outcome(self) -> Outcome:
        """What happened against what arrived."""
        noted = ledger(self.run)
        calls, torn, drops = in_spool(self.run)
        stored = Counter(self.arrived())
        found = Outcome(len(noted), torn=torn, drops=drops, recovered=sum(number in calls for number in noted))
        found.delivered = sum(number in stored for number in noted)
        found.duplicated = sum(count - 1 for count in stored.values())
        return found


def into_weave(folder: Path, name: str, *faults: Fault, server: FakeServer | None = None) -> tuple[Trouble, FakeServer]:
    """A run whose trajectories go to a trace server with ``faults``."""
    server = server or FakeServer()
    server.faults = list(faults)
    run = new_run(folder, name, backends=["weave"], project="dev/faults")
    environ = {"WF_TRACE_SERVER_URL": server.url, "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "k" * 40}

    def arrived() -> Iterable[Any]:
        return [call["inputs"]["number"] for call in list(server.calls.values()) if call["parent_id"]]

    return Trouble(run, environ, arrived), server


def into_otlp(folder: Path, name: str, port: int, receivers: list[Receiver]) -> Trouble:
    """A run whose trajectories go to an OTLP receiver at ``port``, once there is one in ``receivers``."""
    run = new_run(folder, name, backends=["otlp"])
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}

    def arrived() -> Iterable[Any]:
        for receiver in receivers:
            for span in list(receiver.spans.values()):
                told = attributes_of(span)
                inputs = told.get(_INPUTS.get(told["autotrace.role"], ""))
                if inputs:
                    yield json.loads(inputs)["number"]

    return Trouble(run, environ, arrived)
