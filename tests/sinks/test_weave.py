"""The Weave sink against a server that fails on order: nothing lost, nothing twice, the right error for each case."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_server import FakeServer, Fault
from rollouts import group, info, trajectory

from autotrace.insight.profile import Mark, Profile, encode
from autotrace.sinks.payload import unpacked
from autotrace.sinks.protocol import Refused, Rejected, SinkError, Unavailable
from autotrace.sinks.weave import http as weave_http
from autotrace.sinks.weave.calls import call_uuid, uuid_of
from autotrace.sinks.weave.sink import WeaveSink

COMPLETE = "/calls/complete"


def sink(**known: Any) -> WeaveSink:
    return WeaveSink(info(**known))


def roots(server: FakeServer) -> list[dict[str, Any]]:
    return [call for call in server.calls.values() if call["parent_id"] is None]


def test_a_group_arrives_as_traces_with_flat_attributes_on_every_call(fake: FakeServer) -> None:
    two = group()
    sink().deliver(two)
    assert len(fake.calls) == 10
    for call in fake.calls.values():
        assert call["project_id"] == "team/rl"
        attributes = call["attributes"]
        assert (attributes["step"], attributes["sample_index"], attributes["validate"]) == (3, 17, False)
        assert attributes["experiment_name"] == "exp-a"
        assert call["thread_id"] == "exp-a/3/uid-17"
        assert call["op_name"].startswith("weave:///team/rl/op/")
    assert {call["attributes"]["rollout_n"] for call in roots(fake)} == {0, 1}
    for root, one in zip(sorted(roots(fake), key=lambda call: call["attributes"]["rollout_n"]), two, strict=True):
        assert root["id"] == root["trace_id"] == uuid_of(one.trace_id)
        assert root["display_name"] == f"step 3 · sample 17 · rollout {one.attributes['rollout_n']}"
        assert root["output"]["reward"] == root["summary"]["reward"] == one.facts["reward"]
        assert root["output"]["response_text"].endswith(f"rollout {one.attributes['rollout_n']}.<|im_end|>")
        assert root["started_at"] == "2026-11-18T11:06:40.123456Z"
        assert root["summary"]["usage"]["policy"]["requests"] == 2
    assert fake.projects == {"team/rl"}


def test_a_turn_is_a_chat_with_usage_and_recoverable_tokens(fake: FakeServer) -> None:
    one = trajectory()
    sink().deliver([one])
    turn = next(call for call in fake.calls.values() if call["id"] == call_uuid(one, one.spans[2].span_id))
    assert turn["inputs"]["messages"] == [{"role": "user", "content": "What is 6 times 7?"}]
    assert turn["output"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "multiply"
    assert turn["output"]["choices"][0]["finish_reason"] == "stop"
    assert turn["summary"]["usage"] == {
        "policy": {"prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100, "requests": 1}
    }
    assert unpacked(turn["output"]["response_ids"]) == one.spans[2].response_ids
    assert unpacked(turn["inputs"]["new_prompt_ids"]) == one.spans[2].new_prompt_ids
    assert turn["parent_id"] == call_uuid(one, one.spans[1].span_id)


def test_every_token_goes_out_once_and_no_long_list_of_numbers(fake: FakeServer) -> None:
    sink().deliver([trajectory()])
    sent = str(list(fake.calls.values()))
    assert sent.count("3000 3001 3002") == 1
    assert sent.count("2000 2001") == 1
    assert "60x1 12x0 20x1" in sent

    def longest(value: Any) -> int:
        if isinstance(value, dict):
            return max(map(longest, value.values()), default=0)
        if isinstance(value, list):
            return max([len(value), *map(longest, value)])
        return 0

    assert max(longest(call["inputs"]) for call in fake.calls.values()) < 32


def test_sending_again_replaces_also_from_another_process(fake: FakeServer) -> None:
    sink().deliver(group())
    sink().deliver(group())
    assert len(fake.calls) == 10
    assert len(fake.feedback) == 2


def test_the_most_costly_finding_is_a_score_and_all_are_attributes(fake: FakeServer) -> None:
    one = trajectory(reward=0.5)
    marks = [Mark("AT-TURN-LIMIT", 2), Mark("AT-RETOKENIZED", 2, 117), Mark("AT-RETOKENIZED", 3, 140)]
    one.profile = encode(Profile("1", marks=marks))
    sink().deliver([one])
    given = {row["feedback_type"]: row["payload"]["output"] for row in fake.feedback}
    assert given == {"wandb.runnable.reward": 0.5, "wandb.runnable.finding": "AT-RETOKENIZED"}
    (root,) = roots(fake)
    assert root["attributes"]["findings"] == ["AT-TURN-LIMIT", "AT-RETOKENIZED"]


def test_a_late_fact_is_feedback_and_no_call_is_sent_again(fake: FakeServer) -> None:
    weave = sink()
    weave.deliver(group(rewards=(None, None)))
    assert not fake.feedback
    late = group()
    late[0].facts["trained_in_step"] = 4
    known = [replace(one, spans=[one.root]) for one in late]
    assert not weave.needs_calls
    weave.facts(known)
    assert len(fake.paths(COMPLETE)) == 1
    given = {
        row["feedback_type"]: row["payload"]["output"]
        for row in fake.feedback
        if uuid_of(late[0].trace_id) in row["weave_ref"]
    }
    assert given["wandb.runnable.reward"] == 1.0
    assert given["wandb.runnable.trained_in_step"] == 4
    weave.facts(known)
    sink().facts(known)  # another process: looked up by id before it is sent
    assert len({row["id"] for row in fake.feedback}) == len(fake.feedback)


def test_a_fact_that_changed_takes_the_place_of_the_old_one(fake: FakeServer) -> None:
    weave = sink()
    weave.deliver([trajectory(reward=1.0)])
    weave.facts([trajectory(reward=0.25)])
    assert [row["payload"]["output"] for row in fake.feedback if row["feedback_type"].endswith(".reward")] == [0.25]


@pytest.mark.row("link to the run")
def test_the_trainers_run_is_linked_once_it_is_known(fake: FakeServer) -> None:
    weave = sink(project="lab/other")
    weave.bind("wandb", {"entity": "team", "project": "rl", "run_id": "abc123"})
    weave.deliver([trajectory(step=5)])
    for call in fake.calls.values():
        assert call["project_id"] == "lab/other"
        assert (call["wb_run_id"], call["wb_run_step"]) == ("team/rl/abc123", 5)


@pytest.mark.row("link to the run")
def test_an_offline_run_has_no_entity_and_is_linked_all_the_same(fake: FakeServer) -> None:
    weave = sink()
    weave.bind("wandb", {"entity": None, "project": "rl", "run_id": "abc123"})
    weave.deliver([trajectory()])
    assert {call["wb_run_id"] for call in fake.calls.values()} == {"team/rl/abc123"}


def test_a_step_of_minus_one_is_no_step_of_the_run(fake: FakeServer) -> None:
    weave = sink()
    weave.bind("wandb", {"entity": "team", "project": "rl", "run_id": "abc123"})
    weave.deliver([trajectory(step=-1)])
    assert all("wb_run_step" not in call for call in fake.calls.values())


def test_an_older_server_gets_upsert_batch(fake: FakeServer) -> None:
    fake.faults.append(Fault(COMPLETE, 404, times=-1))
    weave = sink()
    weave.deliver(group())
    weave.deliver(group(step=4))
    assert len(fake.paths(COMPLETE)) == 1
    assert len(fake.calls) == 20
    assert {call["output"]["reward"] for call in roots(fake)} == {0.0, 1.0}


@pytest.mark.parametrize("status", [500, 502, 503, 408])
def test_trouble_on_their_side_is_unavailable_and_nothing_is_lost(fake: FakeServer, status: int) -> None:
    fake.faults.append(Fault(COMPLETE, status))
    weave = sink()
    with pytest.raises(Unavailable):
        weave.deliver(group())
    assert not fake.calls
    weave.deliver(group())
    assert len(fake.calls) == 10


@pytest.mark.row("server faults")
def test_too_many_requests_says_how_long_to_wait(fake: FakeServer) -> None:
    fake.faults.append(Fault(COMPLETE, 429, headers={"Retry-After": "7"}))
    with pytest.raises(Unavailable) as caught:
        sink().deliver(group())
    assert caught.value.retry_after == 7.0


@pytest.mark.row("server faults")
def test_a_failure_after_the_commit_duplicates_nothing(fake: FakeServer) -> None:
    fake.faults += [Fault(COMPLETE, 500, after=True), Fault("/feedback/batch/create", 500, after=True)]
    weave = sink()
    for _ in range(2):
        with pytest.raises(Unavailable):
            weave.deliver(group())
    weave.deliver(group())
    assert len(fake.calls) == 10
    assert len(fake.feedback) == 2


def test_a_connection_dropped_once_is_tried_again_at_once(fake: FakeServer) -> None:
    fake.faults.append(Fault(COMPLETE, drop=True, after=True))
    sink().deliver(group())
    assert len(fake.calls) == 10


def test_a_connection_that_keeps_dropping_is_unavailable(fake: FakeServer) -> None:
    fake.faults.append(Fault(COMPLETE, drop=True, times=-1))
    with pytest.raises(Unavailable):
        sink().deliver(group())


@pytest.mark.row("server faults")
def test_a_slow_server_is_unavailable(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weave_http, "TIMEOUT", httpx.Timeout(0.2))
    fake.faults.append(Fault(COMPLETE, delay=1.0))
    with pytest.raises(Unavailable, match="ReadTimeout"):
        sink().deliver(group())


@pytest.mark.row("server faults")
def test_no_server_is_unavailable(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        sink().deliver(group())


@pytest.mark.parametrize("status", [401, 403])
def test_a_bad_key_refuses_everything_and_is_never_repeated(
    fake: FakeServer, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fake.faults.append(Fault(COMPLETE, status, times=-1, body={"reason": "canary" * 7}))
    weave = sink()
    with pytest.raises(Refused) as caught:
        weave.deliver(group())
    assert "API key" in str(caught.value)
    for said in (str(caught.value), repr(weave._connection.login), caplog.text):
        assert "canary" not in said
    assert "What is 6 times 7" not in caplog.text


def test_no_key_is_refused_with_the_remedy(nobody: Path) -> None:
    with pytest.raises(Refused, match="WANDB_API_KEY"):
        sink().deliver(group())


@pytest.mark.parametrize("address", ["trace.example.org", "ftp://trace.example.org", "http://[::1", "http://x:y"])
def test_an_address_that_is_none_is_refused(fake: FakeServer, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("WF_TRACE_SERVER_URL", address)
    with pytest.raises(Refused, match="WF_TRACE_SERVER_URL"):
        sink().deliver(group())


def test_the_key_comes_from_netrc(fake: FakeServer, nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    (nobody / ".netrc").write_text(f"machine {fake.url.removeprefix('http://')} login user password from-netrc\n")
    sink().deliver([trajectory()])
    assert {authorization for _, _, authorization in fake.requests} == {"Basic YXBpOmZyb20tbmV0cmM="}


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_bad_call_costs_its_trajectory_alone_and_has_a_reason(fake: FakeServer, status: int) -> None:
    bad = trajectory(sample=99, prompt="POISON")
    fake.faults.append(Fault(COMPLETE, status, times=-1, containing=b"POISON", body={"reason": "bad row"}))
    good = group()
    with pytest.raises(Rejected) as caught:
        sink().deliver([good[0], bad, good[1]])
    assert list(caught.value.reasons) == [bad.trace_id]
    assert f"{status} bad row" in caught.value.reasons[bad.trace_id]
    assert len(roots(fake)) == 2
    assert "POISON" not in str(fake.calls)


def test_a_validation_error_does_not_repeat_the_prompt(fake: FakeServer) -> None:
    detail = [{"loc": ["body", "batch", 0, "inputs"], "type": "dict_type", "input": "POISON prompt", "msg": "bad"}]
    fake.faults.append(Fault(COMPLETE, 422, times=-1, containing=b"POISON", body={"detail": detail}))
    with pytest.raises(Rejected) as caught:
        sink().deliver([trajectory(), trajectory(sample=99, prompt="POISON prompt")])
    assert "body.batch.0.inputs: dict_type" in str(caught.value.reasons)
    assert "POISON" not in str(caught.value.reasons)


def test_a_server_that_declines_everything_is_a_refusal_and_keeps_the_spool(fake: FakeServer) -> None:
    fake.faults.append(Fault(COMPLETE, 400, times=-1, body={"reason": "unknown protocol"}))
    with pytest.raises(Refused, match="unknown protocol"):
        sink().deliver([trajectory(sample=sample) for sample in range(40)])
    assert len(fake.paths(COMPLETE)) < 20


def test_a_call_that_is_too_large_is_cut_with_a_note(fake: FakeServer) -> None:
    one = trajectory(prompt="word " * 1_200_000)
    sink().deliver([one])
    turn = next(call for call in fake.calls.values() if call["id"] == call_uuid(one, one.spans[2].span_id))
    assert "inputs.messages.0.content: 6000000 characters" in turn["attributes"]["autotrace_cut"]
    assert turn["inputs"]["messages"][0]["content"].startswith("word word")
    assert "characters cut" in turn["inputs"]["messages"][0]["content"]
    assert max(size for path, size, _ in fake.requests if COMPLETE in path) < 9 * 1024 * 1024


@pytest.mark.row("server faults")
def test_a_server_with_a_smaller_limit_gets_smaller_calls(fake: FakeServer) -> None:
    fake.faults.append(Fault(COMPLETE, 413, times=-1, over_bytes=300_000))
    sink().deliver([trajectory(prompt="word " * 200_000)])
    assert len(fake.calls) == 5


def test_large_deliveries_are_split_into_requests(fake: FakeServer) -> None:
    sink().deliver([trajectory(sample=sample, prompt="word " * 100_000) for sample in range(24)])
    sizes = [size for path, size, _ in fake.requests if COMPLETE in path]
    assert len(fake.calls) == 120
    assert len(sizes) > 1
    assert max(sizes) < 9 * 1024 * 1024


def test_awkward_values_become_json_a_server_can_read(fake: FakeServer) -> None:
    one = trajectory(prompt="a" * 10_000)
    one.spans[3].inputs = {
        "nan": math.nan,
        "inf": [math.inf],
        "big": 1 << 80,
        "half": "\ud800",
        "raw": b"123",
        "k.e.y": 1,
    }
    one.spans[3].attributes = {"a.b": 1, "image": "data:image/png;base64," + "A" * 4_000}
    sink().deliver([one])
    tool = next(call for call in fake.calls.values() if call["id"] == call_uuid(one, one.spans[3].span_id))
    assert (tool["inputs"]["nan"], tool["inputs"]["inf"], tool["inputs"]["big"]) == (None, [None], str(1 << 80))
    assert tool["inputs"]["half"] == "?"
    assert tool["attributes"]["a_b"] == 1
    assert tool["attributes"]["image"] == "<image/png, 3 kB>"
    turn = next(call for call in fake.calls.values() if call["id"] == call_uuid(one, one.spans[2].span_id))
    assert turn["inputs"]["messages"][0]["content"] == "a" * 10_000 + " "  # all base64 characters: else a file to W&B


@pytest.mark.parametrize("status", ["CANCELLED", "TIMEOUT", "INTERRUPTED"])
def test_a_call_that_did_not_end_well_has_an_exception_and_an_end(fake: FakeServer, status: str) -> None:
    one = trajectory()
    one.spans[4].status, one.spans[4].end_ns = status, None
    one.spans[3].status, one.spans[3].error = "ERROR", ("ValueError", "no such tool", "Traceback ...")
    sink().deliver([one])
    calls = {call["id"]: call for call in fake.calls.values()}
    assert calls[call_uuid(one, one.spans[4].span_id)]["exception"].startswith(status)
    assert calls[call_uuid(one, one.spans[4].span_id)]["ended_at"] >= calls[uuid_of(one.trace_id)]["ended_at"]
    assert calls[call_uuid(one, one.spans[3].span_id)]["exception"] == "ValueError: no such tool\n\nTraceback ..."
    assert calls[uuid_of(one.trace_id)]["summary"]["status_counts"] == {"success": 3, "error": 2}


def test_a_trajectory_without_its_root_is_delivered_and_repaired_later(fake: FakeServer) -> None:
    whole, torn = trajectory(), trajectory()
    torn.spans = torn.spans[1:]
    sink().deliver([torn])
    assert len(roots(fake)) == 1
    sink().deliver([whole])
    assert len(fake.calls) == 5
    assert [call["id"] for call in roots(fake)] == [uuid_of(whole.trace_id)]


def test_the_page_of_a_trajectory(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    weave, one = sink(), trajectory()
    assert weave.page(one) is None
    weave.deliver([one])
    assert weave.page(one) == f"{fake.url}/team/rl/r/call/{uuid_of(one.trace_id)}"
    weave.close()


def test_the_saas_addresses_are_the_default(nobody: Path) -> None:
    login = sink()._connection.login
    assert (login.base_url, login.trace_url) == ("https://api.wandb.ai", "https://trace.wandb.ai")
    assert login.page("team", "rl", "x") == "https://wandb.ai/team/rl/r/call/x"


def test_a_private_server_has_its_traces_below_its_address(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org/")
    assert sink()._connection.login.trace_url == "https://wandb.example.org/traces"


def test_a_proxy_that_answers_in_html_is_refused(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fake_server.json.dumps", lambda _: "<html>")
    with pytest.raises(SinkError, match="without JSON"):
        sink().deliver([trajectory()])
