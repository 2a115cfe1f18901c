"""``autotrace init``: a list that ``autotrace check`` accepts, from source text alone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from autotrace.cli.main import main

PROGRAM = """
raise SystemExit("imported")
from openai import OpenAI
from verl.tools.base_tool import BaseTool

class MathAgent:
    def solve(self, question, attempt, *, step=0): ...
    def think(self): return self.client.chat.completions.create(model="m")

class WebSearch(Tool):
    def execute(self, query): ...

class Priced(BaseTool):
    def execute(self, query): ...

@tool
def add(a, b): ...

def compute_score(answer): ...
def helper(): ...
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_program.py").write_text(PROGRAM)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def test_what_is_written_is_what_the_program_defines_and_check_accepts_it() -> None:
    result = call("init")
    assert result.exit_code == 0 and ": 5 targets; read the spec, then run: autotrace check " in result.output
    text = Path("patch_specs.yaml").read_text()
    entries = [line.partition("  #")[0] for line in text.splitlines() if not line.startswith("#") and line]
    assert entries == [
        "- target: my_program.MathAgent.solve",
        "  role: trajectory",
        "  attributes: {step: step, rollout_n: attempt}",
        "- target: my_program.MathAgent.think",
        "  role: llm",
        "- target: my_program.WebSearch.execute",
        "  role: tool",
        "- target: my_program.add",
        "  role: tool",
        "- target: my_program.compute_score",
        "  role: reward",
    ]
    assert "# By its base class BaseTool: my_program.Priced." in text and "openai 3." in text
    checked = call("check", "patch_specs.yaml")
    assert checked.exit_code == 0 and checked.output.count("  ok  ") == 5, checked.output


def test_tools_in_a_table_episodes_and_models_are_found(folder: Path) -> None:
    (folder / "my_program.py").write_text(
        "def search(q): ...\ndef look_up(q): ...\ndef helper(q): ...\n"
        "TOOLS = {'search': search, 'n': 1}\nMY_TOOLS: list = [look_up]\nOTHER = {'h': helper}\n"
        "def episode(task): ...\nasync def rollout(task, step): ...\n"
        "class LLM:\n    def __call__(self, prompt): ...\nclass VllmLLM:\n    async def generate(self, prompt): ...\n"
    )
    assert call("init").exit_code == 0
    entries = {one["target"]: one["role"] for one in yaml.safe_load((folder / "patch_specs.yaml").read_text())}
    assert entries == {
        "my_program.episode": "trajectory", "my_program.rollout": "trajectory", "my_program.search": "tool",
        "my_program.look_up": "tool", "my_program.LLM.__call__": "llm", "my_program.VllmLLM.generate": "llm",
    }  # fmt: skip


def test_tools_are_found_by_what_holds_them_and_identity_and_reward_by_their_use(folder: Path) -> None:
    """README's `WebSearch.execute`, a registry, an attribute, `tools=`; a class that nothing holds is no tool."""
    (folder / "my_tools").mkdir()
    (folder / "my_tools" / "__init__.py").write_text(
        "class WebSearch:\n    def execute(self, query): ...\n"
        "class Calculator:\n    def __call__(self, text): ...\n    def reset(self): ...\n"
    )
    (folder / "my_program.py").write_text(
        "class Browser:\n    def run(self, url): ...\nclass Shell:\n    async def call(self, line): ...\n"
        "class Notes:\n    def invoke(self): ...\nclass Trainer:\n    def run(self): ...\n"
        "class Policy:\n    def __call__(self, text): ...\ndef look_up(q): ...\ndef made(): ...\n"
        "@register_tool('clock')\nclass Clock:\n    def run(self): ...\n"
        "class SearchAgent:\n    def __init__(self):\n"
        "        self.browser, self.n = Browser(), 1\n        self.shell = Shell()\n        self.policy = Policy()\n"
        "        self.tools = {'look_up': look_up, 'made': made()}\n        self.tools['notes'] = Notes()\n"
        "    def solve(self, task, step):\n        return Answer(task['id'], reward=1.0)\n"
        "registry.register_tool(Browser())\nTrainer().run()\ndef score(answer) -> float: ...\n"
    )
    assert call("init").exit_code == 0
    text = Path("patch_specs.yaml").read_text()
    entries = {one.pop("target"): one for one in yaml.safe_load(text)}
    assert entries.pop("my_program.SearchAgent.solve") == {
        "role": "trajectory", "attributes": {"step": "step", "sample_index": "task.id"},
        "facts": {"reward": "result.reward"},
    }  # fmt: skip
    assert entries.pop("my_program.score") == {"role": "reward", "facts": {"reward": "result"}}
    assert entries.keys() == {
        "my_tools.WebSearch.execute", "my_tools.Calculator.__call__", "my_program.look_up", "my_program.Browser.run",
        "my_program.Shell.call", "my_program.Notes.invoke", "my_program.Clock.run",
    }  # fmt: skip
    assert {one["role"] for one in entries.values()} == {"tool"}
    assert call("check", "patch_specs.yaml").exit_code == 0
    schema = Path(text.partition("$schema=")[2].partition("\n")[0])
    assert json.loads(schema.read_text())["type"] == "array", "editors complete and check the spec with it"


def test_hints_can_be_pasted(folder: Path) -> None:
    said = call("init", "--out", str(folder / "my list.yaml")).output.split("run: ")[1].strip()
    assert shlex.split(said) == ["autotrace", "check", str(folder / "my list.yaml")]


def test_methods_that_solve_are_rollouts_whatever_their_class_is_called() -> None:
    Path("my_program.py").write_text(
        "class Agent:\n    def solve_sync(self, task): ...\n    async def solve_async(self, task): ...\n"
        "    def call_tool(self, name): ...\n    def reset(self): ...\n"
        "class ReAct:\n    def solve(self, task, step): ...\n    def solver(self): ...\n"
        "class SearchAgent:\n    def run(self): ...\n    def rollout(self): ...\n"
    )
    assert call("init").exit_code == 0
    found = {entry["target"]: entry["role"] for entry in yaml.safe_load(Path("patch_specs.yaml").read_text())}
    assert found == {
        "my_program.Agent.solve_sync": "trajectory",
        "my_program.Agent.solve_async": "trajectory",
        "my_program.Agent.call_tool": "tool",
        "my_program.ReAct.solve": "trajectory",
        "my_program.SearchAgent.run": "trajectory",
        "my_program.SearchAgent.rollout": "trajectory",
    }


def test_a_file_that_is_there_stays_unless_forced() -> None:
    Path("patch_specs.yaml").write_text("mine")
    result = call("init", "my_program.py")
    assert result.exit_code == 2 and "is there already; --force replaces it" in result.output
    assert Path("patch_specs.yaml").read_text() == "mine"
    assert call("init", "--force").exit_code == 0 and "MathAgent" in Path("patch_specs.yaml").read_text()


def test_a_package_is_called_by_its_name_and_what_is_no_python_is_passed_over(folder: Path) -> None:
    (folder / "pkg" / "inner").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "inner" / "__init__.py").write_text("")
    (folder / "pkg" / "inner" / "agents.py").write_text("class Solver:\n    async def run(self): ...\n")
    (folder / "pkg" / "broken.py").write_text("def (:")
    (folder / "pkg" / "odd.py").write_bytes(b"\xff\x00")
    result = call("init", "pkg", "--out", "-")
    assert "- target: pkg.inner.agents.Solver.run  # " in result.output and not Path("patch_specs.yaml").exists()


PROJECTS = {
    "a package with its tests": ({
        "my_agent/__init__.py": "", "my_agent/agent.py": PROGRAM, "tests/test_agent.py": PROGRAM,
        "my_agent/broken.py": "class 'Agent", "my_agent/latin.py": "x = '\xff'",
    }, "my_agent.agent."),
    "a script": ({"train.py": "async def rollout(task, step): ...\ndef score(answer): ...\n"}, "train."),
    "packages below src": ({
        "pyproject.toml": "[project]\nname = 'my-agent'\n", "src/my_agent/__init__.py": "",
        "src/my_agent/agent.py": PROGRAM, "we ird/agent.py": PROGRAM,
    }, "my_agent.agent."),
}  # fmt: skip
"""Files of a project, and what the names of all of its targets begin with: as ``import`` has them."""


@pytest.mark.parametrize(("written", "begin"), PROJECTS.values(), ids=PROJECTS)
def test_check_accepts_what_is_written_for_a_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch, written: dict[str, str], begin: str
) -> None:
    project = folder / "project"
    for name, text in written.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(text.encode("latin-1"))
    monkeypatch.chdir(project)
    assert call("init").exit_code == 0
    entries = yaml.safe_load(Path("patch_specs.yaml").read_text())
    assert entries and all(entry["target"].startswith(begin) for entry in entries)
    checked = call("check", "patch_specs.yaml")
    assert checked.exit_code == 0 and f"{len(entries)} targets found" in checked.output


def test_a_program_without_any_of_it_gives_a_file_that_says_how() -> None:
    Path("empty.py").write_text("x = 1\n")
    assert call("init", "empty.py", "--out", "empty.yaml").exit_code == 0
    assert "# - target: my_project.agent.Agent.solve" in Path("empty.yaml").read_text()
    assert call("check", "empty.yaml").exit_code == 0


def test_no_such_program() -> None:
    result = call("init", "absent.py")
    assert (result.exit_code, result.output) == (2, "autotrace: absent.py: no such file or folder\n")
