"""The real agent loop of every release of veRL since 0.5: who is who, turns, tools, rewards (`make verl-releases`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from releases import FOLDERS, Ran, environment, run

# test_agent_loop.py has the installed release
pytestmark = [pytest.mark.timeout(900), *([] if FOLDERS else [pytest.mark.long])]
AGENT_LOOP = "verl.experimental.agent_loop.agent_loop"
CREATE = f"{AGENT_LOOP}.AgentLoopManager.create"
ACTORS = ("0.5.0", "0.6.1", "0.7.0", "0.7.1")
"""Releases whose worker is tried as a real Ray actor: a class under ``@ray.remote``, one with a base class in the same
module, and a class that veRL itself makes an actor of. (0.9.1: ``tests/e2e``.)"""


def _version(folder: Path | None) -> Version:
    return Version(folder.name) if folder else Version("0.9.1")


CASES: list[tuple[Path | None, str]] = [(folder, "process") for folder in FOLDERS] or [(None, "process")]
CASES += [(folder, "ray") for folder in FOLDERS if folder.name in ACTORS]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0].name if case[0] else 'installed'}-{case[1]}")
def case(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Version, Ran, dict[str, Any]]:
    """The release, its run, and what the engine saw."""
    release, mode = request.param
    folder = tmp_path_factory.mktemp("release")
    ran = run(folder, release, "release_program.py", mode, str(folder / "out.json"), spec=f"- {CREATE}\n")
    return _version(release), ran, json.loads((folder / "out.json").read_text())


Case = tuple[Version, Ran, dict[str, Any]]


def trajectories(ran: Ran) -> list[dict[str, Any]]:
    """Those with a root of role trajectory."""
    return [one for one in ran.trajectories if one["spans"][0]["role"] == "trajectory"]


def test_each_rollout_is_a_trajectory_that_says_which(case: Case) -> None:
    release, ran, _ = case
    known = [one["attributes"] for one in trajectories(ran)]
    assert sorted((one["sample_index"], one["rollout_n"]) for one in known) == [
        ("11", 0), ("11", 1), ("12", 0), ("12", 1),
    ]  # fmt: skip
    assert {(one["step"], one["validate"], one["agent_name"]) for one in known} == {(3, False, "tool_agent")}
    assert {(one["experiment_name"], one["project_name"]) for one in known} == {("one", "releases")}
    if release >= Version("0.6"):  # 0.5 passes no more than the messages
        assert {one["uid"] for one in known} == {"uid-11", "uid-12"}
        assert {one["data_source"] for one in known} == {"openai/gsm8k"}


def test_two_turns_with_a_tool_call_in_between(case: Case) -> None:
    release, ran, _ = case
    client = "LLMServerClient" if release >= Version("0.8") else "AsyncLLMServerManager"
    for trajectory in trajectories(ran):
        number = int(trajectory["attributes"]["sample_index"])
        spans = [(span["name"], span["role"]) for span in trajectory["spans"] if span["role"] != "reward"]
        assert spans[1] == ("ToolAgentLoop.run", "agent")
        assert spans.count((f"{client}.generate", "llm")) == 2
        (call,) = [span for span in trajectory["spans"] if span["name"] == "ToolAgentLoop._call_tool"]
        (tool,) = [span for span in trajectory["spans"] if span["name"] == "Double.execute"]
        assert tool["parent_id"] == call["span_id"] and tool["attributes"]["tool_name"] == "double"
        assert tool["inputs"]["parameters"] == {"number": number}
        assert str(2 * number) in json.dumps(tool["output"])
        parsed = [span for span in trajectory["spans"] if span["name"] == "HermesToolParser.extract_tool_calls"]
        assert parsed and {span["role"] for span in parsed} == {"parser"}
        assert {span["status"] for span in trajectory["spans"]} == {"OK"}


def test_tokens_are_those_of_the_engine(case: Case) -> None:
    _, ran, out = case
    spans = [span for one in trajectories(ran) for span in one["spans"] if span["role"] == "llm"]
    assert len(out["calls"]) == len(spans) == 8
    assert sorted(span["response_ids"] for span in spans) == sorted(call["output_ids"] for call in out["calls"])
    assert all("What is twice the number" in json.dumps(span["messages"]) for span in spans[::2])


def test_the_reward_arrives(case: Case) -> None:
    release, ran, _ = case
    rewards = [one["facts"].get("reward") for one in trajectories(ran)]
    assert rewards == [None if release < Version("0.6") else 1.0] * 4, "0.5 computes it in the trainer"


def test_below_what_looks_at_its_caller(case: Case) -> None:
    """``@auto_await`` (since 0.7.1): a wrapper above it makes ``await`` raise, so the function below it is recorded."""
    release, ran, _ = case
    if release < Version("0.7.1"):
        assert not [
            target for target in ran.status["targets"] if target["key"] == CREATE and target["states"].get("bound")
        ]
        return
    target = ran.target(CREATE)
    assert set(target["states"]) == {"bound"}
    assert target["reasons"] == ["in place, below a decorator that looks at its caller's frame"]


@pytest.mark.long  # CI has `make packs`
@pytest.mark.parametrize("release", FOLDERS or [None], ids=lambda folder: folder.name if folder else "installed")
def test_reading_the_source_agrees_with_importing_it(release: Path | None, tmp_path: Path) -> None:
    code = "import release_shim; release_shim.install()\nfrom tests.spec.imported import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(release), cwd=tmp_path, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    of_verl = {kind: [name for name in found if name.startswith("verl.")] for kind, found in said.items()}
    assert len(of_verl["agree"]) + len(of_verl["not imported"]) >= 15
    assert of_verl["differ"] == []
    unread = [name for name in of_verl["not imported"] if not name.startswith(OPTIONAL)]
    assert not unread, unread


OPTIONAL = ("verl.workers.rollout.vllm_rollout", "verl.workers.rollout.sglang_rollout", "verl.workers.rollout.trtllm")
"""Import an engine that is not installed here."""
