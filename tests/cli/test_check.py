"""``autotrace check``: lines for people, JSON for programs, exit codes for CI."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autotrace.cli.main import main

AGENTS = """
import asyncio

class Agent:
    async def run(self, messages, *, tools=None): ...
    def stop(self): ...

class SearchAgent(Agent):
    def search(self, query): ...
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one module and nothing of autotrace in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOTRACE_SPECS", raising=False)
    Path("checked_agents.py").write_text(AGENTS)
    return tmp_path


def check(text: str, *options: str) -> Result:
    """Run ``autotrace check specs.yaml`` on this text."""
    Path("specs.yaml").write_text(text)
    return CliRunner().invoke(main, ["check", "specs.yaml", *options])


def test_each_target_is_one_line() -> None:
    result = check("- checked_agents.Agent.run\n- target: [checked_agents.Gone.run, checked_agents.SearchAgent.stop]\n")
    assert result.output.splitlines() == [
        "specs.yaml",
        "  ok    checked_agents.Agent.run  async function (self, messages, *, tools)",
        "  ok    checked_agents.SearchAgent.stop  function (self), name 2 of 2, defined as checked_agents.Agent.stop",
        "2 targets found",
    ]
    assert result.exit_code == 0


def test_a_required_miss_is_exit_code_1_and_a_hint() -> None:
    result = check("- checked_agents.SerchAgent.search\n")
    assert "  MISS  checked_agents.SerchAgent.search" in result.output
    assert "line 1: no such name; did you mean `checked_agents.SearchAgent.search`?" in result.output
    assert result.exit_code == 1


def test_a_method_of_a_class_that_was_renamed_is_found_under_its_new_name() -> None:
    """What the shipped spec knows of one method of a class holds for the others."""
    old, new = "verl.experimental.agent_loop.agent_loop.AsyncLLMServerManager", "verl.workers.rollout.llm_server"
    result = check(f"- {old}._acquire_server\n- {old}.generate\n")
    moved = f"`AsyncLLMServerManager._acquire_server` moved to `{new}.LLMServerClient._acquire_server`"
    assert f"line 1: no such name; {moved}" in result.output
    assert f"  ok    {new}.LLMServerClient.generate" in result.output


def test_a_note_about_a_path_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "lines.yaml").write_text(
        "- target: shlex.quote\n  role: tool\n  attributes:\n    a: s\n    b: nothere.x\n  capture: {exclude: [ss]}\n"
    )
    printed = CliRunner().invoke(main, ["check", str(tmp_path / "lines.yaml")]).output
    assert "mistake, line 5: attributes.b: no argument `nothere`" in printed


def test_a_function_that_is_used_in_a_with_is_called_so() -> None:
    Path("checked_managers.py").write_text(
        "import contextlib\nfrom contextlib import asynccontextmanager as later\n\n"
        "@contextlib.contextmanager\ndef episode(task):\n    yield task\n\n"
        "@later\nasync def session():\n    yield\n\n"
        "class Agent:\n    @staticmethod\n    @contextlib.contextmanager\n    def turn():\n        yield\n\n"
        "def stream():\n    yield\n"
    )
    names = ("episode", "session", "Agent.turn", "stream")
    spec = "".join(f"- checked_managers.{name}\n" for name in names)
    kinds = ("context manager (task)", "async context manager ()", "static context manager ()", "generator ()")
    lines = [" ".join(line.split()) for line in check(spec).output.splitlines()]
    for name, kind in zip(names, kinds, strict=True):
        assert f"ok checked_managers.{name} {kind}" in lines


def test_a_target_of_the_program_itself_is_unclear() -> None:
    done = check("- __main__.solve\n")
    assert done.exit_code == 0 and "?     __main__.solve" in done.stdout
    assert "the run decides which program this is; name the file to check it: FILE.solve" in done.stdout


def test_an_optional_miss_is_exit_code_0() -> None:
    result = check("- {target: checked_agents.SerchAgent.search, optional: true}\n")
    assert "  none  checked_agents.SerchAgent.search" in result.output
    assert result.exit_code == 0


def test_a_mistake_in_a_file_is_exit_code_2_on_stderr() -> None:
    result = check("- agents\n- target: checked_agents.Agent.run\n  rolle: llm\n")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert [line.split(" ")[0] for line in result.stderr.splitlines()] == ["specs.yaml:1:3:", "specs.yaml:3:3:"]


def test_another_release_is_skipped_and_said() -> None:
    result = check('- {target: click.core.Command.main, versions: "click<2"}\n')
    assert "  skip  click.core.Command.main  for click<2, but this is click " in result.output
    assert "nothing of click " in result.output
    assert "will be traced: the targets are for click<2" in result.output
    assert result.exit_code == 0


def test_a_library_that_is_not_installed_is_one_line_of_a_shipped_list() -> None:
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 0
    assert "  skip  sglang is not installed (" in result.output


def test_specs_of_the_environment_are_checked_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.yaml").write_text("- checked_agents.Agent.run\n")
    monkeypatch.setenv("AUTOTRACE_SPECS", "mine.yaml")
    result = CliRunner().invoke(main, ["check"])
    assert "mine.yaml\n  ok    checked_agents.Agent.run" in result.output
    assert "patch_specs/verl.yaml" in result.output


def test_a_refined_shipped_target_is_listed_under_the_users_file() -> None:
    name = "verl.experimental.agent_loop.agent_loop.AgentLoopBase.run"
    rows = json.loads(check(f"- target: {name}\n  label: mine\n", "--json").output)["targets"]
    assert [(row["target"], row["where"]) for row in rows] == [(name, "specs.yaml:1")]


def test_json_says_everything() -> None:
    result = check("- checked_agents.SearchAgent.run\n- checked_agents.Agent\n", "--json")
    found, refused = json.loads(result.output)["targets"]
    assert found | {"place": Path(found["place"]).name} == {
        "target": "checked_agents.SearchAgent.run",
        "where": "specs.yaml:1",
        "state": "resolves",
        "failed": False,
        "name": "checked_agents.SearchAgent.run",
        "versions": None,
        "optional": False,
        "reason": "",
        "notes": [],
        "mistakes": [],
        "functions": 1,
        "kind": "async function",
        "binding": "",
        "arguments": ["self", "messages", "*", "tools"],
        "defined": "checked_agents.Agent.run",
        "place": "checked_agents.py:5",
    }
    assert (refused["state"], refused["failed"], refused["functions"]) == ("refused", True, 0)
    assert result.exit_code == 1


def test_globs_count_their_functions() -> None:
    assert "  ok    checked_agents.*  3 functions" in check("- checked_agents.*\n").output


def test_a_wheel_is_checked_without_installing_it(project: Path) -> None:
    wheel = project / "verl-0.4.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("verl/__init__.py", "")
        archive.writestr("verl-0.4.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: verl\nVersion: 0.4.1\n")
    result = CliRunner().invoke(main, ["check", "--wheel", str(wheel)])
    assert result.exit_code == 0
    assert "nothing of verl 0.4.1 will be traced: the targets are for verl>=0.5" in result.output
    assert "  skip  vllm is not in verl-0.4.1-py3-none-any.whl" in result.output


def test_a_wheel_that_is_not_there_is_exit_code_2() -> None:
    result = CliRunner().invoke(main, ["check", "--wheel", "absent.whl"])
    assert result.exit_code == 2
    assert "absent.whl: no such file" in result.stderr


def test_a_list_beside_its_program_is_checked_from_anywhere() -> None:
    example = Path(__file__).parents[2] / "examples" / "plain_asyncio" / "traced.yaml"
    result = CliRunner().invoke(main, ["check", str(example)])
    assert result.exit_code == 0, result.output
    assert "  ok    planner.Planner.plan" in result.output
