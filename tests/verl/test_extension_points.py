"""veRL's documented extension points under autotrace-run, on every release whose source is there.

``VERL_RELEASES`` names a folder of unpacked wheels (``0.7.1/verl/...``) beside the installed release.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import HERE, LIMIT, ROOT

pytestmark = [pytest.mark.timeout(900), pytest.mark.row("veRL's switches")]
OLDER = sorted(folder.parent for folder in Path(os.environ.get("VERL_RELEASES", "/nowhere")).glob("*/verl"))


@pytest.fixture(scope="module", params=[None, *OLDER], ids=lambda folder: folder.name if folder else "installed")
def delivered(request: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """The traces by sample index, and the run's information under ``run``."""
    folder = tmp_path_factory.mktemp("extension")
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(folder / "runs")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    path = os.pathsep.join(map(str, [ROOT, *([request.param] if request.param else [])]))
    done = subprocess.run(
        [*launch, "--backend", "jsonl", "--drain-timeout", "120", sys.executable, str(HERE / "extension_program.py")],
        env={**environ, "PYTHONPATH": path}, cwd=folder, timeout=LIMIT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (status,) = Path(folder, "runs").glob("*/status.json")
    assert not [reason for reason in json.loads(status.read_text())["drops"] if reason.startswith("fault:")]
    (lines,) = Path(folder, "runs").glob("*/trajectories.jsonl")
    traces = [json.loads(line) for line in lines.read_text().splitlines()]
    return {trace["attributes"]["sample_index"]: trace for trace in traces}


def test_a_block_is_the_root_of_a_trajectory(delivered: dict[Any, Any]) -> None:
    assert sorted(delivered) == ["17", "18"], "trace=False records nothing"
    root = delivered["17"]["spans"][0]
    assert (root["name"], root["role"], root["status"]) == ("own_loop", "trajectory", "OK")
    known = delivered["17"]["attributes"]
    assert (known["step"], known["rollout_n"], known["validate"]) == (3, 1, False)
    assert delivered["18"]["spans"][0]["status"] == "ERROR"
    assert delivered["18"]["attributes"]["validate"] is True


def test_a_decorated_function_is_a_span_once(delivered: dict[Any, Any]) -> None:
    spans = delivered["17"]["spans"]
    below = [(span["name"], span["role"]) for span in spans[1:]]
    assert below == [
        ("Search.look_up", "span"), ("Search.clean", "span"), ("Better.look_up", "span"), ("Search.clean", "span"),
        ("Tool.execute", "tool"), ("Search.fail", "span"),
    ]  # fmt: skip
    first = spans[1]
    assert first["inputs"]["query"] == " apples "
    assert first["output"] == ["apples"] * 3
    assert spans[-1]["status"] == "ERROR"
    assert spans[-1]["error"][0] == "ValueError"
