"""A real tracking server in a process of its own, which can be stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests import ports


class MlflowServer:
    """``mlflow server`` on SQLite in ``folder``; ``url`` stays the same over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/server.db"
        self.port = ports.reserved()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", self.store, "--workers", "1"]
        command += [
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--artifacts-destination",
            f"{self.folder}/artifacts",
        ]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env={**os.environ, **settings}, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 300  # a busy machine takes a minute
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)
        raise AssertionError((self.folder / "server.log").read_text()[-2000:])

    def stop(self) -> None:
        """End it at once, its worker processes too."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
