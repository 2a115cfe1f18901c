"""Small files in the shape of each public format: which calls they hold, and the reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

import autotrace
from autotrace.cli.main import main
from autotrace.foreign import containers
from autotrace.foreign.source import Foreign, foreign
from autotrace.tables.errors import QueryError
from tests.foreign.test_formats import listed, read, said

CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "1+2?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "3"},
    {"role": "assistant", "content": "It is 3."},
]
BLOCKS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+2?"},
    {"role": "assistant", "content": "I ask.\n```bash\nexpr 1 + 2\n```"},
    {"role": "user", "content": "3"},
    {"role": "assistant", "content": "It is 3."},
]
INFO = {"exit_status": "Submitted", "submission": "3"}
EVENTS = [
    {"id": 0, "source": "user", "action": "message", "args": {"content": "1+2?"}},
    {"id": 1, "source": "agent", "action": "run", "args": {"command": "expr 1 + 2", "thought": "I ask."}},
    {"id": 2, "source": "agent", "observation": "run", "content": "3", "cause": 1},
    {"id": 3, "source": "agent", "action": "finish", "args": {"final_thought": "It is 3."}},
]
SDK = [
    {"kind": "MessageEvent", "source": "user", "llm_message": CHAT[0]},
    {"kind": "ActionEvent", "tool_name": "add", "tool_call_id": "c", "action": {"a": 1}},
    {"kind": "ObservationEvent", "tool_name": "add", "tool_call_id": "c", "observation": {"content": "3"}},
    {"kind": "MessageEvent", "source": "agent", "llm_message": CHAT[3]},
]
PARTS = [
    {"role": "user", "content": [{"type": "text", "value": "1+2?"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "3"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "It is 3."}]},
]
ITEMS = [
    CHAT[0],
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1}'},
    {"type": "function_call_output", "call_id": "c", "output": "3"},
    CHAT[3],
]
VALUES = [
    {"role": "user", "content": [{"type": "text", "value": "1+2?"}]},
    {"role": "assistant", "content": [{"type": "reasoning", "value": "Hm."}, {
        "type": "tool_call", "value": '{"name": "add", "arguments": {"a": 1}}'}]},
    {"role": "tool", "content": [{"type": "text", "value": "3"}]},
    CHAT[3],
]  # fmt: skip
FLAT = [
    {"action": "message", "content": "1+2?"},
    {"action": "run", "command": "expr 1 + 2", "thought": "I ask.", "keep_prompt": True},
    {"observation": "run", "content": "3", "command": "expr 1 + 2"},
    {"action": "message", "source": "agent", "content": "It is 3."},
]
OF_USER = [
    CHAT[0],
    {
        "role": "user",
        "content": None,
        "tool_calls": [{"id": "u", "name": "look", "arguments": {}, "requestor": "user"}],
    },
    {"role": "tool", "id": "u", "content": "a phone", "requestor": "user"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "add", "arguments": {"a": 1}}]},
    {"role": "tool", "id": "c", "content": "3", "requestor": "assistant"},
    CHAT[3],
]
SHAREGPT = [
    {"from": "human", "value": "1+2?"},
    {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1}}'},
    {"from": "observation", "value": "3"},
    {"from": "gpt", "value": "It is 3."},
]
TURN = {"begin_of_turn_query": [CHAT[0]], "step_0": [CHAT[1], {"role": "handler_log", "content": "x"}, CHAT[2]],
        "step_1": [CHAT[3]]}  # fmt: skip
LOG = {"role": "handler_log", "content": "Decoded.", "model_response_decoded": ["add(a=1)"]}
WRITTEN = {"begin_of_turn_query": [CHAT[0]], "step_0": [
    {"role": "assistant", "content": "[add(a=1)]"}, LOG, {"role": "tool", "content": "3"},
], "step_1": [CHAT[3]]}  # fmt: skip
CALLED = {"begin_of_turn_query": [CHAT[0]], "step_0": [
    {"role": "assistant", "content": [{"add": '{"a": 1}'}]}, LOG, {"role": "tool", "content": "3"},
], "step_1": [CHAT[3]]}  # fmt: skip


def flattened(number: int, said: list[dict[str, Any]], answer: dict[str, Any]) -> dict[str, Any]:
    """A span of OpenLLMetry: an attribute for each value of the messages."""
    values = {"llm.request.type": "chat", "gen_ai.response.model": "m"}
    for name, messages in (("prompt", said), ("completion", [answer])):
        for at, message in enumerate(messages):
            values |= {f"gen_ai.{name}.{at}.{key}": message[key] for key in ("role", "content") if message.get(key)}
            for place, call in enumerate(message.get("tool_calls", ())):
                values |= {f"gen_ai.{name}.{at}.tool_calls.{place}.{key}": value
                           for key, value in {**call["function"], "id": call["id"]}.items()}  # fmt: skip
    return traced(number, "openai.chat", values)


def traced(number: int, name: str, values: dict[str, str]) -> dict[str, Any]:
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
    start = str(number)
    return {"traceId": "t", "spanId": start, "name": name, "startTimeUnixNano": start, "attributes": attributes}


LOOKED = traced(2, "add.tool", {f"traceloop.{key}": value for key, value in {
    "span.kind": "tool", "entity.name": "add", "entity.input": '{"a": 1}', "entity.output": '"3"'}.items()
})  # fmt: skip
TRACED = {"resourceSpans": [{"scopeSpans": [{"spans": [
    flattened(1, CHAT[:1], CHAT[1]), LOOKED, flattened(3, CHAT[:3], CHAT[3])]}]}]}  # fmt: skip
SHAPES: dict[str, tuple[str, Any, str, float | None]] = {
    "swe_agent": ("a.traj", {"trajectory": [], "history": BLOCKS, "info": INFO, "environment": "e"}, "bash", None),
    "mini_swe_agent": ("a.traj.json", {"messages": BLOCKS, "info": INFO}, "bash", None),
    "bare_traj": ("task__1.traj.json", BLOCKS, "bash", None),
    "tau_bench": ("r.json", [{"task_id": 4, "reward": 1.0, "info": {}, "traj": CHAT, "trial": 0}], "add", 1.0),
    "tau2": ("r.json", {"info": {}, "tasks": [], "simulations": [
        {"id": "s", "task_id": 4, "trial": 0, "messages": CHAT, "reward_info": {"reward": 0.5}}]}, "add", 0.5),
    "bfcl": ("r_result.json", {"id": "multi_0", "result": [["[add(a=1)]"]], "inference_log": [[], TURN]}, "add", None),
    "bfcl_written": ("r_result.json", {"id": "m", "result": [], "inference_log": [WRITTEN]}, "add", None),
    "bfcl_called": ("r_result.json", {"id": "m", "result": [], "inference_log": [CALLED]}, "add", None),
    "tau2_user": ("r.json", {"simulations": [{"task_id": 4, "messages": OF_USER}]}, "add", None),
    "values": ("a.jsonl", {"messages": VALUES}, "add", None),
    "sharegpt": ("s.json", [{"id": 4, "conversations": SHAREGPT}], "add", None),
    "samples": ("s.json", {"samples": [{"messages": CHAT, "score": 1}]}, "add", 1.0),
    "openhands": ("output.jsonl", {"instance_id": 4, "history": EVENTS, "report": {"resolved": True}}, "run", 1.0),
    "openhands_pairs": ("output.jsonl", {"instance_id": 4, "history": [EVENTS[:1], EVENTS[1:3], EVENTS[3:]]}, "run",
                        None),
    "openhands_flat": ("output.jsonl", {"issue": {}, "history": FLAT, "success": True}, "run", 1.0),
    "openhands_events": ("trajectory.json", EVENTS, "run", None),
    "openhands_sdk": ("output.jsonl", {"instance_id": 4, "history": SDK}, "add", None),
    "anthropic": ("a.jsonl", {"messages": PARTS}, "add", None),
    "responses": ("a.jsonl", {"messages": ITEMS}, "add", None),
    "openllmetry": ("a.json", TRACED, "add", None),
    "json_text": ("a.jsonl", {"messages": json.dumps(CHAT), "reward": 1}, "add", 1.0),
    "bare_list": ("a.json", CHAT, "add", None),
    "hosted": ("results.jsonl", {"example_id": 4, "prompt": json.dumps(CHAT[:1]), "completion": json.dumps(CHAT[1:]),
                                 "reward": 1.0, "task": "t"}, "add", 1.0),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_the_calls_of_each_shape(shape: str, tmp_path: Path) -> None:
    name, value, tool, reward = SHAPES[shape]
    (tmp_path / name).write_text(json.dumps(value) + "\n")
    (one,) = read(tmp_path)
    assert said(one) == ["turn 1", tool, "turn 2"], one
    assert one.spans[2].output == "3" and one.spans[2].inputs
    assert one.llm_spans[1].response_text == "It is 3." and one.facts.get("reward") == reward
    assert listed(tmp_path / name, "prompt") == [("1+2?",)]


def test_the_rows_of_lines_in_a_json_file(tmp_path: Path) -> None:
    rows = [{"id": f"simple_{number}", "result": "[add(a=1)]", "latency": 1} for number in range(3)]
    (tmp_path / "BFCL_result.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert listed(tmp_path, "sample_index", "llm_calls") == [(f"simple_{number}", 1) for number in range(3)]


def trial_of_terminal_bench(run: Path, task: str, name: str, **more: Any) -> dict[str, Any]:
    """The files of a trial (Terminal-Bench 0.2): the result, and what the agent Terminus logs in each episode."""
    result = {
        "id": f"{name}-uuid", "trial_name": name, "task_id": task, "instruction": "1+2?", "is_resolved": True,
        "failure_mode": "unset", "parser_results": {"test_sum": "passed"}, "total_input_tokens": 9,
        "agent_started_at": "2025-09-05T23:34:12.098404+00:00", "agent_ended_at": "2025-09-05T23:34:13.098404+00:00",
        **more,
    }  # fmt: skip
    (run / task / name).mkdir(parents=True)
    (run / task / name / "results.json").write_text(json.dumps(result, indent=4))
    return result


def episode(trial: Path, number: int, prompt: str, answer: str, name: str = "response.txt") -> None:
    folder = trial / "agent-logs" / f"episode-{number}"
    folder.mkdir(parents=True)
    (folder / "prompt.txt").write_text(prompt)
    (folder / name).write_text(answer)
    (folder / "debug.json").write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]}))


KEYS = json.dumps({"analysis": "I ask.", "commands": [{"keystrokes": "expr 1 + 2\n", "duration": 0.1}]})


@pytest.mark.parametrize("opened", ["", "results.json", "task/t1/results.json"])
def test_a_run_of_terminal_bench_has_its_episodes(opened: str, tmp_path: Path) -> None:
    run = tmp_path / "2025-09-05__16-26-44"
    results = [trial_of_terminal_bench(run, "task", "t1")]
    episode(run / "task" / "t1", 0, "1+2?", f"Thus:\n{KEYS}")
    episode(run / "task" / "t1", 1, "$ expr 1 + 2\n3", '{"analysis": "It is 3.", "commands": []}', "response.json")
    if opened != "task/t1/results.json":
        results += [trial_of_terminal_bench(run, "a", "t2", is_resolved=None, failure_mode="agent_timeout")]
        results += [trial_of_terminal_bench(run, "../task", "../t1") | {"id": "elsewhere"}]
    (run / "results.json").write_text(json.dumps({"id": "r", "results": results, "n_resolved": 1, "accuracy": 0.5}))
    (run / "run_metadata.json").write_text('{"run_id": "r"}')
    (source,) = autotrace.open(run / opened).reader().sources
    assert not source.problem
    whole, *others = sorted(read(run / opened), key=lambda one: -len(one.spans))
    assert said(whole) == ["turn 1", "bash", "turn 2"] and whole.attributes["sample_index"] == "task"
    assert whole.spans[2].inputs == {"command": "expr 1 + 2"} and whole.spans[2].output == "$ expr 1 + 2\n3"
    assert whole.facts["reward"] == 1.0 and whole.root.duration_ns == 1_000_000_000
    assert [(one.root.status, one.facts.get("reward"), one.turns) for one in others if one.root.error] == (
        [] if opened == "task/t1/results.json" else [("ERROR", None, 0)]
    )
    assert len(others) == {"": 2, "results.json": 2, "task/t1/results.json": 0}[opened]


def trial_of_harbor(job: Path, name: str, **more: Any) -> Path:
    """The files of a trial (Harbor 0.26)."""
    result = {
        "id": f"{name}-uuid", "trial_name": name, "task_name": "hello", "source": "s",
        "agent_info": {"name": "terminus", "version": "2"}, "verifier_result": {"rewards": {"reward": 1.0}},
        "exception_info": None, "started_at": "2026-08-01T10:00:00Z", "finished_at": "2026-08-01T10:00:04Z", **more,
    }  # fmt: skip
    (job / name / "agent").mkdir(parents=True)
    (job / name / "result.json").write_text(json.dumps(result))
    (job / name / "config.json").write_text('{"task": {}}')
    return job / name / "agent" / "trajectory.json"


@pytest.mark.parametrize("opened", ["", "hello__1", "hello__1/result.json"])
def test_a_job_folder_of_harbor_has_its_trials(opened: str, tmp_path: Path) -> None:
    steps = [{"step_id": 1, "source": "user", "message": "q"}, {"step_id": 2, "source": "agent", "message": "a"}]
    sub = {"schema_version": "ATIF-v1.7", "agent": {"name": "helper"}, "steps": steps}
    atif = {**sub, "agent": {"name": "terminus"}, "subagent_trajectories": [sub]}
    trial_of_harbor(tmp_path, "hello__1").write_text(json.dumps(atif))
    failure = {"exception_type": "AgentTimeoutError", "exception_message": "900 s", "exception_traceback": "File"}
    trial_of_harbor(tmp_path, "hello__2", verifier_result=None, exception_info=failure)
    (tmp_path / "result.json").write_text(json.dumps({"id": "job", "n_total_trials": 2, "stats": {}}))
    rows = listed(tmp_path / opened, "sample_index", "reward", "agent_name", "llm_calls", "status", "error")
    whole, failed = ("hello", 1.0, "terminus", 1, "OK", None), ("hello", None, "terminus", 0, "ERROR",
                                                                "AgentTimeoutError: 900 s")  # fmt: skip
    expected = [whole, (None, None, "helper", 1, "OK", None), *([] if opened else [failed])]
    assert sorted(rows, key=str) == sorted(expected, key=str)
    (source,) = autotrace.open(tmp_path / opened).reader().sources
    assert not source.problem


def test_names_within_a_file_are_no_format(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"http": {"header": "x"}, "history": 3, "_journal": 1}')
    with pytest.raises(QueryError, match=r"a file with '_journal', 'history', 'http'.*Accepted are"):
        autotrace.open(tmp_path / "config.json")
    with pytest.raises(
        QueryError, match=r"folder of 1 file: config\.json, with '_journal', 'history', 'http'.*Accepted are"
    ):
        autotrace.open(tmp_path)
    (tmp_path / "lines.jsonl").write_text('{"something": "else"}\n')
    with pytest.raises(QueryError, match="a file with 'something'"):
        autotrace.open(tmp_path / "lines.jsonl")
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": CHAT}))
    (run,) = autotrace.open(tmp_path).reader().sources
    assert "2 files in no known format: config.json, lines.jsonl" in run.problem


def test_an_exported_conversation_has_messages_not_text(tmp_path: Path) -> None:
    from autotrace.export import sft

    name, value, _, _ = SHAPES["hosted"]
    (tmp_path / name).write_text(json.dumps(value))
    sft.write(read(tmp_path), str(tmp_path / "out.jsonl"))
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_a_table_of_too_many_rollouts_is_refused_before_the_first_is_built(tmp_path: Path) -> None:
    path = tmp_path / "completions_1.parquet"
    rows = "SELECT 1 AS step, 'q' AS prompt, md5(range::VARCHAR) AS completion FROM range(1_000_001)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (COMPRESSION zstd)")
    with pytest.raises(QueryError, match="it has 1,000,001 rows, more than 1,000,000; write smaller files"):
        list(autotrace.open(path).trajectories())


def test_the_command_that_ends_a_rollout_is_no_unread_answer(tmp_path: Path) -> None:
    ends = {"role": "assistant", "content": "Done.\n```\nsubmit\n```", "action": "submit\n"}
    for number in range(5):
        told = {"history": [*BLOCKS[: 4 if number else 2], ends], "trajectory": [], "info": INFO}
        (tmp_path / f"org__repo-{number}.traj").write_text(json.dumps(told))
    rollouts = read(tmp_path)
    assert [one.spans[-1].name for one in rollouts] == ["submit"] * 5
    assert sorted(str(one.attributes["sample_index"]) for one in rollouts) == [f"org__repo-{n}" for n in range(5)]
    assert not CliRunner().invoke(main, ["diagnose", str(tmp_path)]).stdout.count("AT-")


def test_tools_as_text_and_pictures_are_kept(tmp_path: Path) -> None:
    picture = {"type": "image_url", "value": "data/1.jpg"}
    said = [{"role": "user", "content": [picture, {"type": "text", "value": "Who?"}]}, CHAT[3]]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": said, "tools": '[{"name": "add"}]'}))
    (one,) = read(tmp_path)
    assert one.llm_spans[0].inputs["tools"] == [{"name": "add"}]
    assert (one.llm_spans[0].messages or [{}])[0]["content"] == [picture, {"type": "text", "text": "Who?"}]
    assert listed(tmp_path, "prompt") == [("Who?",)]


@pytest.mark.parametrize("names", [("one.json",), ("one.json", "two.json")], ids=len)
def test_rows_out_of_order_parse_a_json_file_twice_at_most(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at, name in enumerate(names):
        messages = [{"role": "user", "content": name}, {"role": "assistant", "content": "yes"}]
        made = [{"messages": messages, "step": len(names) * (40 - number) + at} for number in range(40)]
        (tmp_path / name).write_text(json.dumps(made))
    (run,) = foreign(tmp_path)
    assert isinstance(run, Foreign)
    steps = {run.load(id).attributes["step"]: id for id in run.ids(None)}
    parsed: list[object] = []
    decoded = containers.decoded

    def counted(data: bytes) -> object:
        parsed.append(data)
        return decoded(data)

    monkeypatch.setattr(containers, "decoded", counted)
    another = run.again()
    assert another is not None
    assert [another.load(steps[step]).attributes["step"] for step in sorted(steps)] == sorted(steps)
    assert 0 < len(parsed) <= 4 * len(names)
