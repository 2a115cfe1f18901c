"""The Weave sink against W&B's own server, read back through W&B's own client."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from rollouts import group, info, trajectory

from autotrace.insight.profile import Mark, Profile, encode
from autotrace.sinks.payload import unpacked
from autotrace.sinks.weave.calls import call_uuid, uuid_of
from autotrace.sinks.weave.http import ClientError, WeaveConnection
from autotrace.sinks.weave.sink import WeaveSink

pytestmark = pytest.mark.backends
ReadBack = Callable[..., dict[str, list[dict[str, Any]]]]
ROOTS = {"trace_roots_only": True}


def field(name: str, value: Any, operator: str = "$eq", to: str | None = None) -> dict[str, Any]:
    read: dict[str, Any] = {"$getField": name}
    return {operator: [{"$convert": {"input": read, "to": to}} if to else read, {"$literal": value}]}


def where(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"filter": ROOTS, "query": {"$expr": {"$and": list(conditions)}}}


@pytest.mark.row("filters")
def test_a_group_is_found_by_every_attribute_and_by_reward(wandb: str, read_back: ReadBack) -> None:
    sink = WeaveSink(info())
    other = trajectory(step=4, sample=18, reward=0.5)
    other.attributes |= {"validate": True, "experiment_name": "exp-b"}
    sink.deliver([*group(), other])
    found = read_back(
        "dev/rl",
        everything={},
        roots={"filter": ROOTS},
        step=where(field("attributes.step", 3)),
        sample=where(field("attributes.sample_index", 17), field("attributes.rollout_n", 1)),
        validate=where(field("attributes.validate", True)),
        experiment=where(field("attributes.experiment_name", "exp-b")),
        high=where(field("output.reward", 0.4, "$gte", "double")),
        score=where(field("feedback.[wandb.runnable.reward].payload.output", 0.4, "$gte", "double")),
        thread={"filter": {"thread_ids": ["exp-a/3/uid-17"], "trace_roots_only": True}},
    )
    assert {name: len(calls) for name, calls in found.items()} == {
        "everything": 15,
        "roots": 3,
        "step": 2,
        "sample": 1,
        "validate": 1,
        "experiment": 1,
        "high": 2,
        "score": 2,
        "thread": 2,
    }
    best = next(call for call in found["high"] if call["attributes"]["step"] == 3)
    assert best["feedback"] == {"wandb.runnable.reward": 1.0}
    assert best["id"] == best["trace_id"] == best["turn_id"]
    assert best["func_name"] == "AgentLoopWorker._run_agent_loop"
    assert best["summary"]["usage"]["policy"]["total_tokens"] == 232
    assert best["summary"]["weave"]["status"] == "success"


@pytest.mark.row("filters")
def test_findings_are_found_as_a_score_and_as_attributes(wandb: str, read_back: ReadBack) -> None:
    sink = WeaveSink(info(project="dev/findings"))
    one, other = group()
    one.profile = encode(Profile("1", marks=[Mark("AT-TURN-LIMIT", 2), Mark("AT-RETOKENIZED", 2, 117)]))
    sink.deliver([one, other])
    other.profile = encode(Profile("1", found=[Mark("AT-GROUP-INCOMPLETE")]))  # known when the group was complete
    sink.deliver([other])

    def worst(code: str) -> dict[str, Any]:
        return where(field("feedback.[wandb.runnable.finding].payload.output", code))

    any_of = {"$contains": {"input": {"$getField": "attributes.findings"}, "substr": {"$literal": "AT-TURN-LIMIT"}}}
    found = read_back("dev/findings", retokenized=worst("AT-RETOKENIZED"), incomplete=worst("AT-GROUP-INCOMPLETE"),
                      none=worst("AT-HUNG"), turns=where(any_of))  # fmt: skip
    ids = {name: [call["id"] for call in calls] for name, calls in found.items()}
    assert ids == {
        "retokenized": [uuid_of(one.trace_id)], "incomplete": [uuid_of(other.trace_id)], "none": [],
        "turns": [uuid_of(one.trace_id)],
    }  # fmt: skip
    assert found["turns"][0]["attributes"]["findings"] == ["AT-TURN-LIMIT", "AT-RETOKENIZED"]
    assert found["incomplete"][0]["feedback"]["wandb.runnable.finding"] == "AT-GROUP-INCOMPLETE"


def test_turns_tokens_and_failures_come_back_as_they_were(wandb: str, read_back: ReadBack) -> None:
    one = trajectory(sample=21, prompt='"half" \ud800 and NUL \x00')
    one.spans[3].status, one.spans[3].error = "ERROR", ("TimeoutError", "tool took 60 s", "Traceback ...")
    one.spans[3].output = {"score": float("nan")}
    sink = WeaveSink(info(project="dev/turns"))
    sink.deliver([one])
    calls = {call["id"]: call for call in read_back("dev/turns", all={})["all"]}
    turn = calls[call_uuid(one, one.spans[2].span_id)]
    assert unpacked(turn["output"]["response_ids"]) == one.spans[2].response_ids
    assert unpacked(turn["inputs"]["new_prompt_ids"]) == one.spans[2].prompt_ids
    assert turn["inputs"]["messages"][0]["content"] == '"half" ? and NUL \x00'
    assert turn["output"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "multiply"
    tool = calls[call_uuid(one, one.spans[3].span_id)]
    assert tool["exception"].startswith("TimeoutError: tool took 60 s")
    assert tool["summary"]["weave"]["status"] == "error"
    assert tool["output"] == {"score": None}
    root = calls[uuid_of(one.trace_id)]
    assert root["summary"]["weave"]["status"] == "descendant_error"
    assert root["started_at"] == "2026-11-18 11:06:40.123456+00:00"


@pytest.mark.row("server faults")
def test_repeats_late_facts_and_corrections_leave_one_of_each(wandb: str, read_back: ReadBack) -> None:
    first = WeaveSink(info(project="dev/late"))
    first.bind("wandb", {"entity": "dev", "project": "late", "run_id": "run1"})
    first.deliver(group(rewards=(None, None)))
    late = group(rewards=(0.25, 0.75))
    late[0].facts["trained_in_step"] = 4
    first.deliver(late)
    restarted = WeaveSink(info(project="dev/late"))
    restarted.bind("wandb", {"entity": "dev", "project": "late", "run_id": "run1"})
    restarted.deliver(late)
    restarted.deliver(group(rewards=(0.5, 0.75)))
    found = read_back("dev/late", all={}, run={"filter": {"wb_run_ids": ["dev/late/run1"]}}, roots={"filter": ROOTS})
    assert (len(found["all"]), len(found["run"])) == (10, 10)
    assert {call["wb_run_step"] for call in found["run"]} == {3}
    rows = feedback(wandb, "dev/late")
    assert sorted(row["payload"]["output"] for row in rows if row["feedback_type"].endswith(".reward")) == [0.5, 0.75]
    assert len({row["id"] for row in rows}) == len(rows)
    per_call = [(row["weave_ref"], row["feedback_type"]) for row in rows]
    assert len(set(per_call)) == len(per_call)


def test_ops_have_pages_of_their_own(wandb: str, read_back: ReadBack) -> None:
    WeaveSink(info(project="dev/ops")).deliver(group())
    WeaveSink(info(project="dev/ops")).deliver(group(step=4))
    calls = read_back("dev/ops", all={"filter": {"op_names": ["weave:///dev/ops/op/ToolAgentLoop.run:*"]}})["all"]
    assert len(calls) == 4
    assert len({call["op_name"] for call in calls}) == 1


def feedback(url: str, project: str) -> list[dict[str, Any]]:
    body = json.dumps({"project_id": project}).encode()
    headers = {"content-type": "application/json", "authorization": "Basic x"}
    with urllib.request.urlopen(urllib.request.Request(url + "/feedback/query", body, headers)) as answer:
        rows: list[dict[str, Any]] = json.load(answer)["result"]
    return rows


def test_the_older_way_of_writing_stores_the_same(
    wandb: str, read_back: ReadBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = WeaveConnection.post

    def older(self: WeaveConnection, path: str, body: bytes) -> Any:
        if path.endswith("/calls/complete"):
            raise ClientError(404, "Not Found")
        return send(self, path, body)

    monkeypatch.setattr(WeaveConnection, "post", older)
    sink = WeaveSink(info(project="dev/older"))
    sink.bind("wandb", {"entity": "dev", "project": "older", "run_id": "run1"})
    sink.deliver(group(sample=77))  # SQLite wants an id once among all projects
    found = read_back("dev/older", all={}, roots={"filter": ROOTS})
    assert (len(found["all"]), len(found["roots"])) == (10, 2)
    assert {call["output"]["reward"] for call in found["roots"]} == {0.0, 1.0}
    assert {(call["wb_run_id"], call["thread_id"]) for call in found["all"]} == {("dev/older/run1", "exp-a/3/uid-77")}
