"""The examples, run as their first lines say, and what arrives of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from tests.docs.printed_trees import assert_shows, on_page

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.timeout(700)


def delivered(folder: Path, name: str, program: str) -> list[dict[str, Any]]:
    """The trajectories of one example."""
    command = f"autotrace-run --spec examples/{name}/traced.yaml python examples/{name}/{program}"
    assert command in (EXAMPLES / name / program).read_text(), "the example says how to run it"
    launch = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--run-dir", str(folder)]
    words = ["--drain-timeout", "120", *command.split()[1:3], sys.executable, f"examples/{name}/{program}"]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("AUTOTRACE", "MLFLOW"))}
    done = subprocess.run(
        [*launch, *words], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (status,) = folder.glob("*/status.json")
    assert not [reason for reason in json.loads(status.read_text())["drops"] if reason.startswith("fault:")]
    lines = (status.parent / "trajectories.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [one for one in found if one["spans"][0]["role"] == "trajectory"]


def test_the_page_of_examples_names_each_folder_with_a_command_that_is_there() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| .* \| `([^`]+)` \| [^|]*\|$", (EXAMPLES / "README.md").read_text())
    assert sorted(name for name, _ in rows) == sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    for name, command in rows:
        files = [word for word in command.split() if word.endswith((".py", ".yaml"))]
        assert all((EXAMPLES / name / file).exists() for file in files), command


def test_a_plain_asyncio_program(tmp_path: Path) -> None:
    first, second = sorted(delivered(tmp_path, "plain_asyncio", "planner.py"), key=lambda one: -len(one["spans"]))
    assert [span["name"] for span in first["spans"]].count("Planner.look_up") == 3
    assert [span["name"] for span in second["spans"]].count("Planner.look_up") == 2
    (failed,) = [span for span in first["spans"] if span["status"] == "ERROR"]
    assert failed["error"][:2] == ["LookupError", "no weather station in Atlantis"]
    assert {one["spans"][0]["output"] for one in (first, second)} == {
        "Go to Aachen, it has 17 degrees.", "Go to Celle, it has 16 degrees.",
    }  # fmt: skip


@pytest.mark.long
def test_a_tool_that_calls_an_http_api(tmp_path: Path) -> None:
    found = {one["attributes"]["uid"]: one for one in delivered(tmp_path, "http_tool", "main.py")}
    assert set(found) == {"moon", "sea", "sun"}
    fetched = {}
    for uid, trajectory in found.items():
        (tool,) = [span for span in trajectory["spans"] if span["name"] == "SearchTool.execute"]
        (request,) = [span for span in trajectory["spans"] if span["name"] == "fetch"]
        assert request["parent_id"] == tool["span_id"], "also where the request was made in a thread"
        fetched[uid] = request["status"]
    assert fetched["moon"] == "TIMEOUT" and fetched["sun"] == "ERROR"


def test_an_agent_on_the_client_of_openai(tmp_path: Path) -> None:
    found = delivered(tmp_path, "openai_agent", "agent.py")
    assert len(found) == 6 and {one["facts"]["reward"] for one in found} == {0.0, 1.0}
    for one in found:
        assert [span["role"] for span in one["spans"]] == ["trajectory", "llm", "tool", "llm"]
        first, last = (span["messages"][-1] for span in one["spans"] if span["role"] == "llm")
        assert first["tool_calls"][0]["function"]["name"] == "temperature" and "degrees in" in last["content"]
    (status,) = tmp_path.glob("*/status.json")
    printed = CliRunner().invoke(main, ["ls", str(status.parent), "--tree"], catch_exceptions=False).output
    assert_shows(printed, on_page("your-agent.md", "python examples/openai_agent/agent.py"))


def test_a_pytest_fixture(tmp_path: Path) -> None:
    command = "pytest examples/pytest_fixture"
    assert command in (EXAMPLES / "pytest_fixture" / "conftest.py").read_text(), "the example says how to run it"
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("AUTOTRACE", "MLFLOW"))}
    words = [sys.executable, "-m", *command.split(), "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base")]
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert "2 passed" in done.stdout, done.stdout[-3000:]
    assert len({path.resolve() for path in tmp_path.glob("base/*/*/trajectories.jsonl")}) == 2


def test_the_demo_and_what_the_pages_show_of_it(tmp_path: Path) -> None:
    """`show` prints of `make demo` what commands.md has, and the end names the worse of the two faults."""
    command = "autotrace-run --project autotrace-demo --logprobs 1 python examples/verl_loop/main.py"
    assert command in (ROOT / "examples" / "demo.sh").read_text()
    words = ["--backend", "jsonl", "--run-dir", str(tmp_path), *command.split()[1:5]]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("AUTOTRACE", "MLFLOW"))}
    done = subprocess.run([sys.executable, "-m", "autotrace.launch.main", *words, sys.executable, command.split()[-1]],
                          cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0 and "2 findings, the worst: AT-TOOL-RAISES" in done.stderr, done.stderr[-3000:]
    (run,) = tmp_path.glob("*/run.json")

    chosen = ["--where", "step = 1 and sample = 11 and reward = 0"]
    printed = CliRunner().invoke(main, ["show", str(run.parent), *chosen], catch_exceptions=False).stdout
    shown = without_numbers(printed)
    page = without_numbers(
        (ROOT / "docs" / "commands.md").read_text().split("## What `show` prints")[1].split("```")[1]
    )
    assert page.strip() in shown


def without_numbers(text: str) -> str:
    """What differs from run to run left out: times, ids, which rollout of the prompt it was."""
    return re.sub(r"\b[0-9a-f]{12,32}\b|(?<=rollout_n )\d|\+?\d[\d.]* m?s\b|(?<=(?:time|cost) ).*", "#", text)


@pytest.mark.long
def test_an_agent_loop_of_ones_own(tmp_path: Path) -> None:
    found = delivered(tmp_path, "custom_agent_loop", "main.py")
    assert [one["facts"]["reward"] for one in found] == [pytest.approx(1.1)] * 2
    for trajectory in found:
        names = [span["name"] for span in trajectory["spans"]]
        assert names[1] == "DebateLoop.run" and "pick" in names and names.count("LLMServerClient.generate") == 3
