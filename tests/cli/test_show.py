"""``autotrace show``: one trajectory as a tree."""

from __future__ import annotations

import json
import re
from pathlib import Path

from autotrace.spool.records import Define
from tests.cli.conftest import Call
from tests.run_folder import computed
from tests.ship.spools import ANSWER, PROMPT, Process, attributes, new_run, trajectory


def first(call: Call) -> str:
    return str(json.loads(call("ls", "--json").output.splitlines()[0])["trace_id"])


def test_the_tree_has_turns_tokens_times_and_the_reward(call: Call, run: Path) -> None:
    found = call("show", first(call)[:10]).output
    lines = found.splitlines()

    assert "step 1" in lines[0] and "uid u1" in lines[0]
    assert "reward 0.25" in found
    depth = {name: next(line.index(name) for line in lines if name in line)
             for name in ("AgentLoopWorker._run", "ToolAgentLoop.run", "turn 1", "turn 2", "_call_tool")}  # fmt: skip
    assert depth["AgentLoopWorker._run"] < depth["ToolAgentLoop.run"] < depth["turn 1"] == depth["turn 2"]
    (turn,) = [line for line in lines if "turn 2" in line]
    assert f"{len(PROMPT) + len(ANSWER) + 2} in + 4 out tokens" in turn
    assert " ms" in turn


def test_a_turn_has_the_mismatch_of_its_tokens(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trace = trajectory(process, uid="u9")
    process.token_facts(computed(), {"uid": "u9", "session_id": "0"})
    process.exit()
    found = call("show", trace.hex()).output
    assert re.search(r"turn 1 .*mean \|Δ logprob\| 0,", found)
    assert re.search(r"turn 2 .*mean \|Δ logprob\| 0.38, max 1.5 at token 3", found)


def test_json_holds_everything(call: Call, run: Path) -> None:
    found = json.loads(call("show", first(call), "--json").output)
    assert [span["role"] for span in found["spans"]] == ["trajectory", "agent", "llm", "parser", "tool", "llm"]
    assert found["spans"][2]["prompt_ids"] == PROMPT
    assert (found["facts"]["reward"], found["turns"], found["status"]) == (0.25, 2, "OK")


def test_long_texts_are_cut_unless_full(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    root = process.open(b"t" * 16, "trajectory", attributes=attributes())
    tool = process.open(b"t" * 16, "tool", root, inputs={"page": 1})
    process.close(b"t" * 16, tool, output="\n".join(f"line {number}" for number in range(50)))
    process.close(b"t" * 16, root)
    process.exit()

    assert "line 49" not in call("show", "7474").output
    assert "characters more (--full)" in call("show", "7474").output
    assert "line 49" in call("show", "7474", "--full").output


def test_errors_and_open_calls_are_seen(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    root = process.open(b"t" * 16, "trajectory", attributes=attributes())
    failed = process.open(b"t" * 16, "tool", root)
    process.close(b"t" * 16, failed, status="ERROR", error=("ToolError", "no such page", "Traceback ..."))
    process.open(b"t" * 16, "tool", root)
    found = call("show", "7474").output

    assert "ToolError: no such page" in found
    assert "ERROR" in found and "OPEN" in found
    assert "Traceback" not in found
    process.exit()


def test_a_beginning_that_means_none(call: Call, run: Path) -> None:
    found = call("show", "nothing")
    assert found.exit_code == 2
    assert "no trace of this run begins with 'nothing'" in found.output


def test_an_llm_that_was_given_text_and_returned_text_shows_both(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    root = process.open(b"t" * 16, "agent", attributes=attributes())
    llm = process.open(b"t" * 16, "llm", root, inputs={"prompt": "Where is Bonn?"})
    process.close(b"t" * 16, llm, output="On the Rhine.")
    process.close(b"t" * 16, root)
    process.exit()
    found = call("show", "7474").output
    assert "> Where is Bonn?" in found and "< On the Rhine." in found


def test_the_first_that_matches_is_shown(call: Call, run: Path) -> None:
    wanted = ["--where", "reward > 0.4", "--step", "1"]
    (row,) = [json.loads(line) for line in call("ls", "--json", *wanted).output.splitlines()]
    shown = call("show", *wanted)
    assert row["trace_id"] in shown.output and shown.stderr == ""
    several = call("show", run.name, "--step", "2")
    assert "the first of 3 trajectories that match" in several.stderr
    for absent in (["--where", "reward > 7"], ["--step", "99"]):
        nothing = call("show", *absent)
        assert (nothing.exit_code, nothing.output) == (2, call("ls", *absent).output)
    assert "no trajectory of step 99; this run has steps" in nothing.output
    assert "ab: no such folder, and no such run" in call("show", "ab", run.name, "--step", "2").output


def test_without_a_trajectory_the_newest_is_shown_and_a_run_is_listed(call: Call, run: Path) -> None:
    newest = max(map(json.loads, call("ls", "--json").output.splitlines()), key=lambda row: row["start_ns"])
    assert newest["trace_id"] in call("show").output
    listed = call("ls", run).output
    assert call("show", run).output == call("show", run.name).output == listed
    assert call("show", run, newest["trace_id"]).output == call("show", newest["trace_id"], run).output


def test_no_word_of_a_segment_is_obeyed_by_the_terminal(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    process.write(Define(0, "key", "na\x1b[2Jme", "ro\x9ble"))
    root = process.open(b"t" * 16, "trajectory", attributes=attributes(uid="u\x04d"))
    process.fact("fa\x07ct", "va\x1blue", b"t" * 16)
    process.close(b"t" * 16, root, status="ERR\x1bOR", output="x\x9by")
    process.exit()
    for command in (["show", "7474"], ["ls"], ["ls", "--tree"], ["ls", "--all"], ["status"]):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", call(*command).output), command
