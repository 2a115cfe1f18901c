"""W&B's own server and the genuine client, each in an environment of its own (see ``setup.sh``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ports

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sinks"))
DEFAULT = HERE.parent.parent
SERVER = Path(os.environ.get("AUTOTRACE_TEST_WEAVE_SERVER") or DEFAULT / ".venv-weave-server")
CLIENT = Path(os.environ.get("AUTOTRACE_TEST_WEAVE_CLIENT") or DEFAULT / ".venv-weave-client")
KEY = "canary" * 7

ReadBack = Callable[..., dict[str, list[dict[str, Any]]]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "backends: needs environments of its own, which setup.sh makes (230 MB)")


@pytest.fixture(scope="session")
def weave_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running W&B server with an empty store."""
    if not (SERVER / "bin/python").exists() or not (CLIENT / "bin/python").exists():
        subprocess.run([str(HERE / "setup.sh"), str(SERVER), str(CLIENT)], check=True)
    folder = tmp_path_factory.mktemp("weave")
    port = ports.reserved()
    with open(folder / "log", "wb") as log:
        command = [str(SERVER / "bin/python"), str(HERE / "real_server.py"), str(port), str(folder / "weave.db")]
        environment = os.environ | {"PYTHONPATH": ""}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while not _answers(url):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/server_info", timeout=1):
            return True
    except OSError:
        return False


@pytest.fixture
def wandb(weave_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The environment of somebody who is logged in to the server."""
    settings = {"WANDB_BASE_URL": weave_url, "WF_TRACE_SERVER_URL": weave_url, "WANDB_API_KEY": KEY}
    for name, value in (settings | {"HOME": str(tmp_path), "WANDB_ERROR_REPORTING": "false"}).items():
        monkeypatch.setenv(name, value)
    # The client's cache is one per machine and does not know which server it is about.
    monkeypatch.setenv("WEAVE_USE_SERVER_CACHE", "false")
    return weave_url


@pytest.fixture
def read_back(wandb: str) -> ReadBack:
    """``read_back("dev/rl", name={...arguments of get_calls...})`` through W&B's client."""

    def read(project: str, **queries: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        command = [str(CLIENT / "bin/python"), str(HERE / "read_back.py"), project]
        environment = os.environ | {"PYTHONPATH": ""}
        done = subprocess.run(command, input=json.dumps(queries), capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
        return found

    return read
