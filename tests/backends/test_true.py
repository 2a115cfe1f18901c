"""The numbers are the trainer's own, and no key is anywhere."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from launches import CANARY, HERE, RELEASES, ROOT, WANDB_FOLDER, Launch
from proxy import Proxy
from read import ReadBack, mlflow_of, spoken, weave_of

from autotrace.redact.redactor import REDACTED

pytestmark = [pytest.mark.timeout(1200), pytest.mark.backends]  # the first test waits for the runs

Runs = dict[tuple[str, str], Launch]
Told = Any
"""pytest's ``record_property``."""


@pytest.mark.row("rewards and advantages")
def test_rewards_are_those_of_verls_dump_and_advantages_those_the_trainer_used(
    both: Launch, read_back: ReadBack, release: str, record_property: Told
) -> None:
    rows = {
        (row["uid"], str(row["session"]) if "session" in row else spoken(row["response"])): row
        for row in both.truth["rows"]
    }
    assert len(rows) == 120
    for seen in (mlflow_of(both), weave_of(read_back, both)):
        for one in seen:
            said = spoken(one.texts["response_text"]).replace(REDACTED, CANARY)
            own = one.attributes["rollout_n"] if release == "V1" else said
            row = rows[one.attributes["uid"], own]
            assert one.facts["reward"] == pytest.approx(row["reward"], rel=1e-6)  # veRL's went through a float32
            assert one.facts["advantage"] == row["advantage"]
            assert one.facts["trained_in_step"] == 1
            assert one.attributes["sample_index"] == str(row["sample"])
    record_property("note", f"{release}: 80 rewards and advantages equal")


@pytest.mark.row("rewards and advantages")
def test_the_sync_trainer_of_080_run_as_a_module_tells_what_it_trained_on(releases: None, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--drain-timeout", "10"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    environ["PYTHONPATH"] = os.pathsep.join([str(RELEASES / "0.8.0"), str(ROOT)])
    program = [sys.executable, str(HERE / "sync_program.py")]
    done = subprocess.run([*command, *program], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "facts of the trainer: 2" in done.stdout


def _bytes(path: Path) -> bytes:
    """What stands in it; nothing where a database has taken its journal in since."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.row("secrets")
def test_the_key_is_in_no_byte_that_was_written(runs: Runs, weave_proxy: Proxy, record_property: Told) -> None:
    """Run folders, logs, both MLflow stores, W&B's store; not what W&B's own logger writes for itself."""
    spellings = [CANARY.encode(), quote(CANARY).encode(), *_in_base64(CANARY), CANARY.encode("utf-16-le")]
    top = next(iter(runs.values())).folder.parent.parent
    files = [path for path in top.rglob("*") if path.is_file() and not {WANDB_FOLDER, "model"} & set(path.parts)]
    assert {"mlflow.db", "server.db", "weave.db", "run.json", "state.db", "log", "shipper.log"} <= {
        path.name for path in files
    }
    assert any(REDACTED.encode() in path.read_bytes() for path in files if path.name == "weave.db")
    found = [(str(path), word) for path in files for word in spellings if word in _bytes(path)]
    found = [place for place in found if not _the_programs_own(Path(place[0]))]
    assert found == []
    record_property("note", f"{len(files)} files")


def _in_base64(word: str) -> list[bytes]:
    """As it stands in base64 at any offset."""
    found = []
    for shift in range(3):
        whole = base64.b64encode(b"x" * shift + word.encode())
        found.append(whole[4 * (shift > 0) : -4])
    return found


def _the_programs_own(path: Path) -> bool:
    """What the program writes itself: its record of what the engine said, and veRL's dump."""
    return path.name == "out.json" or path.parent.name == "dump"
