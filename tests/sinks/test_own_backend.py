"""``examples/own_backend``, a package of its own for trackio: installed, run, and what trackio has is read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ship.spools import Process, new_run, trajectory
from tests.waiting import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
READ = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
print(json.dumps(SQLiteStorage.get_traces(sys.argv[1], run=sys.argv[2])))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for ``PYTHONPATH`` that holds the example and trackio, as ``pip install --target`` puts them there."""
    folder = tmp_path_factory.mktemp("packages")
    uv = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", sys.executable, "--target", str(folder)]
    subprocess.run([*uv, str(ROOT / "examples" / "own_backend")], check=True, timeout=DEADLINE)
    return folder


@pytest.fixture
def environ(packages: Path, tmp_path: Path) -> dict[str, str]:
    """With the packages, and a trackio of the test's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "TRACKIO"))}
    path = os.pathsep.join([str(packages), kept.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**kept, "PYTHONPATH": path, "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}


def ran(words: list[str], environ: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What a command did that succeeded."""
    done = subprocess.run(words, env=environ, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    return done


def stored(project: str, run: str, environ: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """trackio's traces of a run, read by trackio."""
    traces: list[dict[str, Any]] = json.loads(ran([sys.executable, "-c", READ, project, run], environ, folder).stdout)
    return traces


def test_a_program_runs_with_it_and_trackio_has_its_trajectories(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(
        "class Agent:\n    def run(self, question):\n        return self.look_up(question)\n\n"
        "    def look_up(self, word):\n        return word.upper()\n"
    )
    (tmp_path / "main.py").write_text("from agents import Agent\nfor word in ('sea', 'sun'):\n    Agent().run(word)\n")
    (tmp_path / "mine.yaml").write_text(
        "- {target: agents.Agent.run, role: trajectory}\n- {target: agents.Agent.look_up, role: tool}\n"
    )
    launch = [sys.executable, "-m", "autotrace.launch.main", "--backend", "trackio", "--project", "own"]
    words = ["--experiment", "first", "--spec", "mine.yaml", "--", sys.executable, "main.py"]
    done = ran([*launch, *words], environ, tmp_path)
    assert "2 trajectories to trackio" in done.stderr

    traces = stored("own", "first", environ, tmp_path)
    assert sorted(trace["spans"][0]["input"]["question"] for trace in traces) == ["sea", "sun"]
    for trace in traces:
        root, tool = trace["spans"]
        assert (root["kind"], tool["kind"], tool["parent_id"]) == ("span", "tool", root["id"])
        assert root["output"] == tool["output"] == root["input"]["question"].upper()
        assert trace["metadata"]["status"] == "OK" and tool["duration_ms"] > 0


def test_a_late_reward_replaces_the_trace(environ: dict[str, str], tmp_path: Path) -> None:
    run = new_run(tmp_path, backends=["trackio"], project="own", experiment="second")
    process = Process(run)
    trace_id = trajectory(process, reward=None)
    process.exit()
    ship = [sys.executable, "-m", "autotrace.cli.main", "ship", str(run)]
    assert "trackio: 1 delivered, 0 left" in ran(ship, environ, tmp_path).stdout
    (before,) = stored("own", "second", environ, tmp_path)
    assert (before["metadata"]["trace_id"], before["metadata"].get("reward")) == (trace_id.hex(), None)
    assert [message["role"] for message in before["messages"]] == ["user", "assistant"]

    process = Process(run, "node-1-bb")
    process.fact("reward", 0.5, trace_id)
    process.exit()
    ran(ship, environ, tmp_path)
    (after,) = stored("own", "second", environ, tmp_path)
    assert after == {**before, "metadata": {**before["metadata"], "reward": 0.5}}


def test_a_conversation_is_shown_turn_by_turn(environ: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from autotrace.sinks import registry; from tests.sinks import rollouts\n"
        "info = rollouts.info(project='own', experiment='third')\n"
        "sink = registry.make('trackio', info, pathlib.Path('.'), {})\n"
        "group = [rollouts.trajectory(rollout=0, reward=1.0), rollouts.trajectory(rollout=1)]\n"
        "sink.deliver(group); print(sink.sent == sum(map(sink.size, group)) > 0)\n"
    )
    path = os.pathsep.join([environ["PYTHONPATH"], str(ROOT)])
    assert ran([sys.executable, "-c", code], {**environ, "PYTHONPATH": path}, tmp_path).stdout.endswith("True\n")
    first, second = sorted(stored("own", "third", environ, tmp_path), key=lambda trace: trace["metadata"]["rollout_n"])
    assert [message["role"] for message in first["messages"]] == ["user", "assistant"] * 2
    assert first["messages"][0]["content"] == "What is 6 times 7?"
    assert first["messages"][1]["tool_calls"][0]["function"]["name"] == "multiply"
    assert (first["metadata"]["reward"], first["step"]) == (1.0, 3)
    assert first["metadata"]["session_id"] == second["metadata"]["session_id"]
    assert {span["kind"] for span in first["spans"]} == {"span", "generation", "tool"}
    assert all(span["usage"]["completion_tokens"] for span in first["spans"] if span["kind"] == "generation")


def test_doctor_and_help_know_it_and_without_trackio_it_says_what_to_install(
    environ: dict[str, str], packages: Path, tmp_path: Path
) -> None:
    doctor = [sys.executable, "-m", "autotrace.cli.main", "doctor", "--python", sys.executable]
    assert "trackio's traces" in ran(doctor, {**environ, "AUTOTRACE_BACKEND": "trackio"}, tmp_path).stdout
    launch = [sys.executable, "-m", "autotrace.launch.main"]
    assert "trackio (trackio's traces" in " ".join(ran([*launch, "--help"], environ, tmp_path).stdout.split())

    alone = tmp_path / "alone"
    alone.mkdir()
    for path in packages.glob("autotrace_trackio*"):
        (alone / path.name).symlink_to(path)
    done = subprocess.run(
        [*launch, "--backend", "trackio", "--", "true"],
        env={**environ, "PYTHONPATH": str(alone)}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "needs trackio, which is not installed beside autotrace: pip install trackio" in done.stderr
