"""What the tests of the sinks share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "weave_server"))

from fake_server import FakeServer

from tests.mlflow_server import MlflowServer

WANDB = ("WANDB_BASE_URL", "WF_TRACE_SERVER_URL", "WANDB_ENTITY", "WANDB_APP_URL", "WANDB_PUBLIC_BASE_URL", "NETRC")


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """A tracking server that nobody stops; each file has a project of its own."""
    running = MlflowServer(tmp_path_factory.mktemp("server"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment without any W&B setting; the home folder is the returned one."""
    for name in (*WANDB, "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb"))
    return tmp_path


@pytest.fixture
def fake(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A running fake server that the environment points to."""
    server = FakeServer()
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WF_TRACE_SERVER_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", "canary" * 7)
    yield server
    server.shutdown()
    server.server_close()
