"""A trajectory that branches, as commands, the page and exports show it; a line is shown as it always was."""

from __future__ import annotations

import json
from pathlib import Path

from autotrace.ship.readers import of_run
from autotrace.view.detail import chains
from autotrace.view.timelines import perfetto
from tests.cli.conftest import Call
from tests.ship.spools import Process, attributes, new_run, trajectory

ASKED = [{"role": "system", "content": "You count."}, {"role": "user", "content": "Count."}]
REPLIES = ("I look.", "It is 3.", "It is 4.")


def branching(runs: Path) -> str:
    """A line and a trajectory whose last answer is taken back: its trace id."""
    process, trace = Process(new_run(runs)), b"b" * 16
    trajectory(process, uid="u0")
    root = process.open(trace, "trajectory", attributes=attributes(uid="u1"))
    looked = [*ASKED, {"role": "assistant", "content": REPLIES[0]}]
    histories = (ASKED, [*looked, {"role": "tool", "content": "3"}], [*looked, {"role": "user", "content": "Again."}])
    for messages, reply in zip(histories, REPLIES, strict=True):
        turn = process.open(trace, "llm", root, inputs={"messages": messages})
        process.close(trace, turn, output={"choices": [{"message": {"role": "assistant", "content": reply}}]})
    process.close(trace, root)
    process.fact("reward", 0.5, trace)
    process.exit()
    return trace.hex()


def test_branches_are_shown(call: Call, runs: Path) -> None:
    trace = branching(runs)
    listed = call("ls").output
    assert "chains" in listed.splitlines()[1]
    (row,) = [json.loads(line) for line in call("ls", "--json", "--where", "chains > 1").output.splitlines()]
    assert (row["trace_id"], row["chains"]) == (trace, 2)
    shown = call("show", trace).output
    heads = [line.rpartition("llm ")[2] for line in shown.splitlines() if "turn " in line and " llm " in line]
    assert [head.partition("chain")[2] for head in heads] == [" 0", " 0", " 1: rewrite after turn 1"]
    assert "chains 2" in shown
    asked = call("sql", "SELECT chain, parent, after, kind, turns, reward FROM chains WHERE uid = 'u1'", "--json")
    assert [json.loads(line) for line in asked.output.splitlines()] == [
        {"chain": 0, "parent": None, "after": None, "kind": None, "turns": 2, "reward": 0.5},
        {"chain": 1, "parent": 0, "after": 1, "kind": "rewrite", "turns": 1, "reward": 0.5},
    ]


def helped(runs: Path) -> str:
    """A trajectory whose agent asks a sub-agent: its trace id."""
    process, trace = Process(new_run(runs)), b"c" * 16
    root = process.open(trace, "trajectory", attributes=attributes(uid="u2"))
    call = {"id": "c1", "type": "function", "function": {"name": "helper", "arguments": '{"what": "3"}'}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    told = [*ASKED, asks, {"role": "tool", "tool_call_id": "c1", "content": "It is 3."}]
    sub = [{"role": "system", "content": "You help."}, {"role": "user", "content": "What is 3?"}]
    for messages, reply in ((ASKED, asks), (sub, REPLIES[1]), (told, REPLIES[1])):
        message = reply if isinstance(reply, dict) else {"role": "assistant", "content": reply}
        turn = process.open(trace, "llm", root, inputs={"messages": messages})
        process.close(trace, turn, output={"choices": [{"message": message}]})
    process.close(trace, root)
    process.exit()
    return trace.hex()


def test_a_sub_agent_is_a_trajectory_inside_of_atif(call: Call, runs: Path) -> None:
    trace = helped(runs)
    assert call("export", "--format", "atif", "--out", "there").exit_code == 0
    (file,) = Path("there").rglob("*.json")
    written = json.loads(file.read_text())
    (sub,) = written["subagent_trajectories"]
    assert [step["source"] for step in written["steps"]] == ["system", "user", "agent", "agent"]
    assert [step["message"] for step in sub["steps"]] == ["You help.", "What is 3?", REPLIES[1]]
    (result,) = written["steps"][2]["observation"]["results"]
    assert result["content"] == REPLIES[1] and result["subagent_trajectory_ref"] == [{"trajectory_id": f"{trace}-1"}]
    assert sub["trajectory_id"] == f"{trace}-1" and sub["agent"]["name"] == "sub-agent"


def test_the_timeline_names_the_chains(runs: Path) -> None:
    trace = branching(runs)
    events = json.loads(perfetto([of_run(runs).load(trace)]))["traceEvents"]
    named = [event["args"]["chain"] for event in events if "chain" in event.get("args", {})]
    assert named == ["chain 0", "chain 0", "chain 1: rewrite after turn 1"]


def test_a_line_is_shown_as_it_was(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trace = trajectory(process)
    process.exit()
    assert (
        "chain" not in call("ls").output + call("show", trace.hex()).output + call("show", trace.hex(), "--json").output
    )


def test_the_page_has_a_place_for_each_fork(runs: Path) -> None:
    trace = branching(runs)
    reader = of_run(runs / "run")
    ((line,),) = reader.rows("trajectories", ["trace_id"], f"trace_id <> '{trace}'")
    assert chains(reader.load(line)) == []
    first, second = chains(reader.load(trace))
    assert (first["words"], first["own"], first["kind"]) == ("chain 0", [1, 2], None)
    assert (second["words"], second["own"], second["first_turn"]) == ("chain 1: rewrite after turn 1", [3], 3)
    assert (second["kind"], second["after"]) == ("rewrite", 1)
    reader.close()


def test_each_chain_is_a_row_to_learn_from(call: Call, runs: Path, tmp_path: Path) -> None:
    trace = branching(runs)
    call("export", "--format", "sft", "--where", "chains > 1", "--out", str(tmp_path / "rows.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["trace_id"], row["chain"], row["kind"]) for row in rows] == [(trace, 0, None), (trace, 1, "rewrite")]
    assert [row["messages"][-1]["content"] for row in rows] == [*REPLIES[1:]]
    call("export", "--format", "atif", "--where", "chains > 1", "--out", str(tmp_path / "atif.json"))
    steps = json.loads((tmp_path / "atif.json").read_text())["steps"]
    assert [step["extra"]["chain"] for step in steps if step["source"] == "agent"] == [0, 0, 1]
