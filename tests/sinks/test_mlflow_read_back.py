"""``autotrace compare --tracking-uri``: a store that is not there or cannot be read is said at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.sinks.mlflow import server as mlflow_server
from tests.http_server import answering

pytestmark = pytest.mark.timeout(60)  # MLflow's own client tries a dead server for minutes


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def dead() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def compared(uri: str) -> str:
    """The one line that is printed."""
    done = CliRunner().invoke(main, ["compare", "--step", "1", "--sample", "1", "--tracking-uri", uri])
    assert done.exit_code == 2, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    (line,) = done.output.splitlines()
    return line


@pytest.mark.parametrize("scheme", ["http", "postgresql+psycopg"])
def test_a_dead_server(dead: int, scheme: str) -> None:
    line = compared(f"{scheme}://user:hush@127.0.0.1:{dead}/db")
    assert f"127.0.0.1:{dead}" in line and ("cannot be reached" in line or "does not answer" in line)
    assert "hush" not in line


def test_a_database_without_its_driver(dead: int) -> None:
    line = compared(f"postgresql+absent://user:hush@127.0.0.1:{dead}/db")
    assert "the module absent, which is not installed here" in line and "hush" not in line


def test_a_server_that_says_nothing(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_server, "ANSWER_TIMEOUT", 0.5)
    assert "does not answer" in compared(f"http://127.0.0.1:{silent}")


@pytest.mark.parametrize(
    ("code", "sentence"), [(401, "rejected the credentials (HTTP 401)"), (404, "is not an MLflow server")]
)
def test_a_server_that_answers_something_else(code: int, sentence: str) -> None:
    with answering(code) as (server, _):
        line = compared(server.url)
    assert sentence in line


@pytest.mark.parametrize("uri", ["foo://bar", "databricks", "./mlruns"])
def test_what_is_not_a_store(uri: str) -> None:
    line = compared(uri)
    assert (uri in line and "use http(s)://HOST:PORT" in line) or "use sqlite:////absolute/path" in line


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "absent.db"
    assert "there is no such file" in compared(f"sqlite:///{path}")
    assert not path.exists()


def test_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("hello\n" * 1000)
    assert "MLflow cannot read sqlite:///" in compared(f"sqlite:///{path}")
    assert path.read_text() == "hello\n" * 1000
