"""``docs/questions.md``: each of its commands answers its question."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from tests.run_folder import rollout
from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, attributes, new_run

PAGE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text()
COMMANDS = re.findall(r"^    (autotrace .*)$", PAGE, re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ``autotrace-runs`` is: groups with and without variance, a cut answer, a tool that fails, a turn that was
    retokenised, a rollout that is under way."""
    parent = tmp_path_factory.mktemp("questions")
    (parent / "autotrace-runs").mkdir()
    run = new_run(parent / "autotrace-runs", "20261121-064412-3f9c1a")
    process = Process(run)
    for step in (1, 2):
        rollout(process, step=step, rollout=0, uid=f"u{step}", reward=1.0)
        rollout(process, step=step, rollout=1, uid=f"u{step}", reward=0.0, finish="length", fails=True)
        for number in (0, 1):
            rollout(process, step=step, rollout=number, uid=f"v{step}", reward=0.25, sample_index=9)
    retokenised(process)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(step=2, uid="w"))
    process.open(trace, "tool", root, attributes={"tool_name": "sleepy"})
    return parent


def retokenised(process: Process) -> None:
    """The second prompt has another answer of the first turn than was given."""
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(step=2, uid="u2", rollout=2))
    agent = process.open(trace, "agent", root)
    long = [*ANSWER, *range(40, 60)]
    first = process.open(trace, "llm", agent, PROMPT)
    process.close(trace, first, long)
    second = process.open(trace, "llm", agent, PROMPT + long[:5] + [99] + long[7:] + TOOL)
    process.close(trace, second, FINAL)
    process.close(trace, agent)
    process.fact("reward", 0.5, trace)
    process.close(trace, root)


EXPECTED: dict[str, Callable[[str], bool]] = {
    "autotrace why": lambda out: "too few to compare" in out or "does not explain" in out,
    "generate_subscripts": lambda out: out.count("1.5") == 2,
    "autotrace diagnose": lambda out: "AT-TRUNCATED" in out and "AT-TOOL-TIMEOUT" in out,
    "HAVING": lambda out: out.count("0.25") == 2,
    "ls --where truncated": lambda out: out.count("ERROR") + out.count("TimeoutError") >= 2 and "u1" not in out,
    "error_message": lambda out: "search" in out and "no answer from the index" in out,
    "ls --sort duration": lambda out: "longest" in out and "decode" in out,
    "compare": lambda out: "tool call 1, another result" in out,
    "grep": lambda out: "result of search" in out and "from the index" in out and "2 places in 2 trajectories" in out,
    "prompt_keep": lambda out: "false" in out.lower() and "true" in out.lower(),
    "AS behind": lambda out: "trajectories" in out,
    "export --format parquet": lambda out: "tables" in out,
    "export --format jsonl": lambda out: "one.jsonl" in out,
    "ls --status open": lambda out: "sleepy" in out,
}


def test_there_are_thirteen_questions_and_one_without_a_suspicion() -> None:
    assert len(re.findall(r"^\*\*", PAGE, re.M)) == len(COMMANDS) == 14


@pytest.mark.parametrize("command", COMMANDS, ids=[re.sub(r"\W+", "-", command[10:40]) for command in COMMANDS])
def test_a_command_answers(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("AUTOTRACE_RUN_DIR", raising=False)
    done = CliRunner().invoke(main, shlex.split(command)[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    expected = next(check for words, check in EXPECTED.items() if words in command)
    assert expected(done.output), done.output
