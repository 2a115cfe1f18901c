"""``autotrace mcp``, driven by ``mcp``'s own client over stdio: it answers the questions of ``docs/questions.md``."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.mcpserver.exceptions import ToolError

from autotrace.cli import mcp as server
from tests.docs.test_questions import COMMANDS, PAGE
from tests.docs.test_questions import folder as folder
from tests.run_folder import recorded

Call = tuple[str, dict[str, Any]]
QUERIES = {
    name: next(command for command in COMMANDS if name in command).partition('sql "')[2].rstrip('"')
    for name in ("HAVING", "error_message", "generate_subscripts", "prompt_keep", "AS behind")
}


def lines(text: str) -> list[dict[str, Any]]:
    """The objects of an answer; a line of something else is a note for people."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


ANSWERS: dict[str, tuple[Call, Callable[[str], bool]]] = {
    "Why did the reward drop?": (
        ("steps", {}),
        lambda text: [one["reward_mean"] for one in lines(text)] == [0.375, 0.4],
    ),
    "What is wrong with this run?": (
        ("diagnose", {}),
        lambda text: {"AT-TRUNCATED", "AT-TOOL-TIMEOUT"} <= {one["code"] for one in lines(text)},
    ),
    "Which prompts have no signal?": (
        ("sql", {"query": QUERIES["HAVING"]}),
        lambda text: [one["reward"] for one in lines(text)] == [0.25, 0.25],
    ),
    "What share was truncated, and which rollouts?": (
        ("trajectories", {"where": "truncated"}),
        lambda text: [one["rollout_n"] for one in lines(text)] == [1, 1],
    ),
    "Which tool failed, and how?": (
        ("sql", {"query": QUERIES["error_message"]}),
        lambda text: [(one["tool_name"], one["calls"]) for one in lines(text)] == [("search", 2)],
    ),
    "Which rollouts were the stragglers, and why?": (
        ("trajectories", {"sort": "duration", "limit": 3}),
        lambda text: len(lines(text)) == 3 and all("decode_s" in one["times"] for one in lines(text)),
    ),
    "Where do two rollouts fork?": (
        ("group", {"where": "uid = 'u1'"}),
        lambda text: json.loads(text)["divergence"][1]["tool_calls"]["number"] == 1,
    ),
    "On which tokens do trainer and engine disagree?": (
        ("sql", {"query": QUERIES["generate_subscripts"]}),
        lambda text: [one["mismatch"] for one in lines(text)][:2] == [1.5, 1.5],
    ),
    "Where does a phrase occur?": (
        ("search", {"pattern": "no answer"}),
        lambda text: len(lines(text)) == 2 and {one["after"] for one in lines(text)} == {" from the index"},
    ),
    "Is a turn's prompt the continuation of the turn before?": (
        ("sql", {"query": QUERIES["prompt_keep"]}),
        lambda text: {one["continues"] for one in lines(text)} == {False, True},
    ),
    "How stale were the weights?": (
        ("sql", {"query": QUERIES["AS behind"]}),
        lambda text: sum(one["trajectories"] for one in lines(text)) == 6,
    ),
    "How do I load the whole run?": (("help", {"topic": "data"}), lambda text: "autotrace.open" in text),
    "How do I share a rollout?": (
        ("help", {"topic": "questions"}),
        lambda text: "autotrace export --format jsonl" in text,
    ),
    "What is happening now?": (
        ("trajectories", {"where": "status = 'OPEN'", "tree": True}),
        lambda text: "sleepy" in text,
    ),
}


def asked(folder: Path, *calls: Call) -> list[tuple[bool, str]]:
    """For each call whether it was refused, and the answer."""
    environ = {**os.environ, "COLUMNS": "40"}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "autotrace", "mcp", str(folder)], env=environ
    )

    async def talk() -> list[tuple[bool, str]]:
        async with Client(stdio_client(parameters)) as client:
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
        return [(bool(one.is_error), one.content[0].text) for one in results]  # type: ignore[union-attr]

    return asyncio.run(talk())


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def test_the_questions_of_the_page_are_answered_and_nothing_is_written(folder: Path) -> None:
    assert [*ANSWERS] == re.findall(r"^\*\*(.*?)\*\*", PAGE, re.M)
    runs = folder / "autotrace-runs"
    before = listing(runs)

    found = asked(runs, *(call for call, _ in ANSWERS.values()))

    for (refused, text), (question, (_, check)) in zip(found, ANSWERS.items(), strict=True):
        assert not refused and check(text), f"{question}\n{text}"
    assert listing(runs) == before


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs."""
    parent = tmp_path_factory.mktemp("runs")
    for name in ("20261121-064412-aaaaaa", "20261122-064412-bbbbbb"):
        recorded(parent, name)
    return parent


def test_it_reads_the_runs_that_it_was_started_for_and_no_others(runs: Path, tmp_path: Path) -> None:
    outside = recorded(tmp_path, "20261123-064412-cccccc")

    listed, of_first, of_all, *refused = asked(
        runs,
        ("runs", {}),
        ("sql", {"query": "SELECT DISTINCT run_id FROM trajectories", "run": "20261121-064412-aaaaaa"}),
        ("sql", {"query": "SELECT DISTINCT run_id FROM trajectories"}),
        ("steps", {"run": str(outside)}),
        ("steps", {"run": os.path.relpath(outside, runs)}),
        ("sql", {"query": f"SELECT * FROM read_text('{outside}/run.json')"}),
        ("sql", {"query": "COPY trajectories TO 'stolen.csv'"}),
        ("trajectory", {"trace": "--json"}),
        ("trajectories", {"where": "step ="}),
    )

    assert [one["run"] for one in lines(listed[1])] == ["20261122-064412-bbbbbb", "20261121-064412-aaaaaa"]
    assert [one["run_id"] for one in lines(of_first[1])] == ["20261121-064412-aaaaaa"]
    assert len(lines(of_all[1])) == 2
    assert [is_error for is_error, _ in refused] == [True] * 6
    assert "`runs` lists them" in refused[0][1] and "`runs` lists them" in refused[1][1]
    assert "only the tables of the run are read here" in refused[2][1]
    assert "the tables of a run are only read" in refused[3][1]
    assert "expected a value" in refused[5][1]


def test_a_step_is_chosen_also_the_first_one(runs: Path) -> None:
    none, one = asked(
        runs, ("trajectories", {"step": 0}), ("trajectories", {"step": 1, "sort": "reward", "reverse": True})
    )

    assert none[0] and "no trajectory of step 0" in none[1]
    assert [line["reward"] for line in lines(one[1])] == [0.0, 0.25, 0.25, 1.0]


def test_a_trajectory_has_a_link_for_a_person(runs: Path) -> None:
    ((_, text),) = asked(runs, ("sql", {"query": "SELECT trace_id FROM trajectories", "run": "20261121-064412-aaaaaa"}))
    trace = lines(text)[0]["trace_id"]

    link, unknown, shown = asked(
        runs / "20261121-064412-aaaaaa",
        ("link", {"trace": trace[:12]}),
        ("link", {"trace": "ffff"}),
        ("trajectory", {"trace": trace[:12]}),
    )

    path = str(runs / "20261121-064412-aaaaaa")
    assert json.loads(link[1]) == {"page": None, "command": ["autotrace", "view", path, "--trace", trace]}
    assert unknown[0] and "no trace of this run begins with 'ffff'" in unknown[1]
    assert "ToolAgentLoop.run" in shown[1]


def test_long_answers_come_in_pages_that_are_the_whole(runs: Path) -> None:
    query = {"query": "SELECT range AS n, repeat('x', 90) AS filler FROM range(400)"}
    pages = asked(runs, *(("sql", {**query, "page": page}) for page in range(1, 5)))

    texts = [text.rpartition("\n[cut: ") for _, text in pages[:3]]
    assert all(len(text) <= server.PAGE for text, _, _ in texts)
    assert [one["n"] for text, _, _ in texts for one in lines(text)] == [*range(400)]
    assert texts[0][2].startswith("page 1 of 3, about 11,")
    assert pages[3][0] and "the answer has 3" in pages[3][1]


def test_one_line_that_is_longer_than_a_page_is_split() -> None:
    text = "a" * (2 * server.PAGE + 10) + "\n" + "b\n"

    pages = [server.paged(text, True, page).rpartition("\n[cut: ")[0] for page in (1, 2, 3)]

    assert "".join(pages) == text


def test_a_command_that_takes_too_long_or_prints_too_much_ends(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    monkeypatch.setattr(server, "MOST", 100_000)
    questions = server.Questions(runs)
    much = asyncio.run(questions.sql("SELECT range AS n FROM range(1000000)"))
    assert "and there is more that was not read" in much

    monkeypatch.setattr(server, "SECONDS", 1.0)
    with pytest.raises(Exception, match="took more than 1 s"):
        asyncio.run(questions.sql("SELECT sum(a.range * b.range) AS n FROM range(1000000) a, range(1000000) b"))


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("trajectory", {"trace": "a\0b"}),
        ("trajectory", {"trace": "\ud800"}),
        ("trajectories", {"where": "a" * 200_000}),
        ("sql", {"query": "SELECT CAST(repeat('x', 3000000) AS INT)"}),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_few_words(runs: Path, tool: str, words: dict[str, str]) -> None:
    with pytest.raises(ToolError) as refused:
        asyncio.run(getattr(server.Questions(runs), tool)(**words))
    assert len(str(refused.value)) < 1_100


def test_the_skill_names_commands_that_exist() -> None:
    from click.testing import CliRunner

    from autotrace.cli.main import COMMANDS as KNOWN
    from autotrace.cli.main import main

    page = CliRunner().invoke(main, ["skill"], catch_exceptions=False).output

    assert page.startswith("---\nname: autotrace\ndescription: ") and len(page.splitlines()) < 60
    assert {*re.findall(r"`autotrace (\w+)", page)} <= {*KNOWN}
