"""A key that a program handles in every way people do is in no byte that autotrace writes or prints."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "program"
CANARY = "cAnArY/0123456789+abcdefXYZ"

pytestmark = [pytest.mark.timeout(700), pytest.mark.row("secrets")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with everything the run wrote, and everything that was printed."""
    folder = tmp_path_factory.mktemp("canary")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    environ = {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(PROGRAM)]),
        "CANARY": CANARY,
        "SEARCH_URL": f"https://user:{quote(CANARY, safe='')}@search.example/v1",
        "WANDB_API_KEY": CANARY,
        "MLFLOW_TRACKING_TOKEN": CANARY,
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "AUTOTRACE_KEEP_SPOOL": "1",
    }
    words = [
        sys.executable,
        "-m",
        "autotrace.launch.main",
        "--backend",
        "mlflow,jsonl",
        "--run-dir",
        str(folder / "runs"),
    ]
    program = ["--spec", str(PROGRAM / "spec.yaml"), sys.executable, str(PROGRAM / "main.py"), f"--api-key={CANARY}"]
    done = subprocess.run(
        [*words, "--drain-timeout", "120", *program],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    printed = done.stdout + done.stderr
    (run,) = (folder / "runs").iterdir()
    for command in (["status", "--all"], ["status", "--json"], ["ls", "--json"], ["ls", "--tree"], ["export"]):
        told = subprocess.run(
            [sys.executable, "-m", "autotrace.cli.main", command[0], str(run), *command[1:]],
            env=environ, cwd=folder, capture_output=True, text=True, timeout=DEADLINE,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        printed += told.stdout + told.stderr
    return folder, printed


def spellings() -> list[bytes]:
    """The key as it may be written down."""
    encoded = base64.b64encode(CANARY.encode()).rstrip(b"=")
    return [CANARY.encode(), quote(CANARY, safe="").encode(), json.dumps(CANARY)[1:-1].encode(), encoded]


def test_it_is_in_no_file(finished: tuple[Path, str]) -> None:
    files = [path for path in finished[0].rglob("*") if path.is_file()]
    assert {"mlflow.db", "run.json", "plan.json", "state.db", "trajectories.jsonl"} <= {path.name for path in files}
    assert any(path.suffix for path in files if path.parent.name == "spool")
    found = [(path.name, word) for path in files for word in spellings() if word in path.read_bytes()]
    assert found == []


def test_it_is_in_nothing_that_was_printed(finished: tuple[Path, str]) -> None:
    assert [word for word in spellings() if word.decode() in finished[1]] == []


def test_what_is_no_secret_is_there(finished: tuple[Path, str]) -> None:
    (lines,) = finished[0].glob("runs/*/trajectories.jsonl")
    (trajectory,) = [json.loads(line) for line in lines.read_text().splitlines()]
    spans = [span for span in trajectory["spans"] if span["name"] == "search"]
    assert spans[0]["inputs"] == {"query": "apples", "api_key": "<redacted>"}
    assert spans[0]["output"]["hits"] == 3
    fetched = [span for span in trajectory["spans"] if span["name"] == "fetch"]
    assert fetched[0]["inputs"]["headers"]["Accept"] == "*/*"
    assert fetched[0]["inputs"]["url"].endswith("@search.example/v1")
    assert fetched[1]["inputs"]["url"].startswith("https://search.example/v1?q=apples")
    called = [span for span in trajectory["spans"] if span["name"] == "call_tool"]
    assert called[1]["inputs"]["tool_call"]["arguments"]["argv"] == ["ls"]
    assert "apples" in called[0]["inputs"]["tool_call"]["arguments"]
