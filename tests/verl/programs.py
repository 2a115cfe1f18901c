"""A process of real in-process veRL under ``autotrace-run``: start it, end it, see what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotrace.spool.reader import SegmentReader, segments
from autotrace.spool.records import Define, Open

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 600
"""Seconds after which a process is taken for hung."""


@dataclass
class Program:
    """One process of ``program.py``."""

    mode: str
    label: str
    folder: Path
    uri: str
    process: Any = None

    def start(self) -> Program:
        """Start it under the launcher."""
        self.folder.mkdir()
        launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(self.folder / "runs")]
        spec = ["--spec", str(ROOT / "examples" / "custom_agent_loop" / "traced.yaml")]
        program = [sys.executable, str(HERE / "program.py"), self.mode, self.label, str(self.folder / "out.json")]
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")},
            "PYTHONPATH": str(ROOT),
            "MLFLOW_TRACKING_URI": self.uri,
            "HANGS": str(self.folder / "hangs"),
            "AUTOTRACE_KEEP_SPOOL": "1",  # ``records`` reads it
        }
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*launch, "--drain-timeout", "120", *spec, *program],
                env=environ, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return self

    def wait(self) -> Program:
        """Wait for a good end."""
        code = self.process.wait(LIMIT)
        assert code == 0, (self.folder / "log").read_text()[-3000:]
        return self

    def kill_in_tool(self) -> Program:
        """SIGKILL once the tool is inside, then wait for the shipper to be done with what is left."""
        wait_for(lambda: (self.folder / "hangs").exists() or self.process.poll() is not None)
        assert self.process.poll() is None, (self.folder / "log").read_text()[-3000:]
        wait_for(self.in_spool)
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        wait_for(lambda: self.status().get("state") == "done")
        return self

    @property
    def run(self) -> Path:
        """The run folder."""
        (folder,) = (self.folder / "runs").glob("*/run.json")
        return folder.parent

    @property
    def run_id(self) -> str:
        return self.run.name

    def status(self) -> dict[str, Any]:
        """What the shipper says."""
        path = self.run / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def in_spool(self) -> bool:
        """Whether the open call of the tool was written."""
        for segment in segments(self.run):
            reader = SegmentReader(self.run, segment.name)
            tools: set[int] = set()
            while records := reader.read():
                for located in records:
                    if isinstance(located.record, Define) and located.record.name == "FunctionTool.call":
                        tools.add(located.record.id)
                    elif isinstance(located.record, Open) and located.record.target in tools:
                        return True
        return False

    @property
    def calls(self) -> list[dict[str, Any]]:
        """What the engine saw and said."""
        return json.loads((self.folder / "out.json").read_text())["calls"]


def wait_for(condition: Any) -> None:
    """Poll ``condition``; fail after ``LIMIT`` seconds."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
