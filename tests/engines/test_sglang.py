"""A real SGLang engine on CPU: every way a request can come and go, and veRL's way of calling it."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_run import HERE, LIMIT, Run, prompt_of, run

TIMES = {"ttft_s", "dispatch_s", "queue_s", "prefill_s", "decode_s", "itl_mean_ms"}
PROMPT = [5, 6, 7, 8]

pytestmark = pytest.mark.timeout(LIMIT + 60)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Run:
    folder = tmp_path_factory.mktemp("sglang") / "engine"
    return run(folder, "sglang_engine.py", str(llama), launch=("--spec", str(HERE / "agents.yaml")))


def test_verls_way_of_calling_leaves_a_finished_span_and_a_free_lock(engine: Run) -> None:
    span, seen = engine.request("verl"), engine.found["verl"]
    assert seen["free"], "a weight update would wait for ever"
    assert (span["status"], span["attributes"]["finish_reason"]) == ("OK", "length")
    assert prompt_of(span) == PROMPT and span["response_ids"] == seen["response_ids"]
    assert span["attributes"].keys() >= TIMES and span["items"] == 1
    assert span["attributes"]["sampling_params"]["max_new_tokens"] == 8
    assert all(outcome["free"] for outcome in engine.found["crowd"])


@pytest.mark.parametrize("rid", ["verl", "stream", "ids", "text", "chunks"])
def test_times_add_up_with_metrics_off(engine: Run, rid: str) -> None:
    span = engine.request(rid)
    times = span["attributes"]
    assert times.keys() >= TIMES | {"cached_tokens", "completion_tokens", "weight_version", "preemptions"}
    assert times["dispatch_s"] + times["queue_s"] + times["prefill_s"] <= times["ttft_s"] + 0.002
    assert times["ttft_s"] + times["decode_s"] <= (span["end_ns"] - span["start_ns"]) / 1e9 + 0.005
    streamed = rid in ("stream", "chunks")
    assert ("itl_p99_ms" in times) == streamed
    if streamed:
        assert span["items"] == times["outputs"] == engine.found[rid]["chunks"] == 8


def test_requests_of_an_agent_are_below_it(engine: Run) -> None:
    (root,) = engine.named("conversation")
    assert [engine.request(f"agent-{number}")["parent_id"] for number in (1, 2)] == [root["span_id"]] * 2
    assert [turn["id"] for turn in engine.found["agent"]] == ["agent-1", "agent-2"]


@pytest.mark.parametrize(
    ("rid", "outcome"),
    [("aborted", "aborted"), ("paused", "aborted"), ("cancelled", "cancelled"), ("dropped", "dropped")],
)
def test_a_request_that_was_given_up_says_how_and_keeps_what_it_had(engine: Run, rid: str, outcome: str) -> None:
    span = engine.request(rid)
    assert (span["status"], span["attributes"]["outcome"]) == ("CANCELLED", outcome)
    assert 0 < len(span["response_ids"]) < 400
    if outcome == "aborted":
        assert span["response_ids"] == engine.found[rid]["response_ids"]


def test_a_request_that_waits_for_a_weight_sync_shows_the_wait(engine: Run) -> None:
    times = engine.request("paused-after")["attributes"]
    assert times["dispatch_s"] > max(0.09, times["queue_s"])
    (pause,) = engine.named("TokenizerManager.pause_generation")
    assert pause["attributes"]["mode"] == "abort"
    assert engine.named("TokenizerManager.continue_generation")
    assert [span for span in engine.spans() if span["name"].endswith("flush_cache")]


def test_new_weights_are_in_at_once_and_requests_say_which_they_used(engine: Run) -> None:
    seen = engine.found["updated"]
    assert seen["success"], seen["message"]
    (update,) = engine.target("TokenizerManager.update_weights_from_tensor")
    assert update["status"] == "OK" and not update["inputs"]
    assert engine.target("TokenizerManager.begin_weight_update") and engine.target("TokenizerManager.end_weight_update")
    assert update["attributes"]["bytes"] == seen["bytes"] and update["attributes"]["weight_version"] == "8"
    versions = [engine.request(rid)["attributes"]["weight_version"] for rid in ("updated-before", "updated")]
    assert versions == ["default", "8"]


def test_what_waits_in_the_queue_says_so(engine: Run) -> None:
    waits = sorted(engine.request(f"crowd-{number}")["attributes"]["queue_s"] for number in range(16))
    assert waits[-1] > 5 * waits[0], "eight of the sixteen had to wait for the others"


def test_a_batch_is_as_many_requests_and_each_is_a_trace(engine: Run) -> None:
    members = engine.named("Engine request")
    assert sorted(span["response_ids"] for span in members) == sorted(engine.found["batch"])
    assert {span["inputs"]["text"] for span in members} == {"w9 w10", "w11 w12", "w13"}
    assert all(span["role"] == "llm" and len(engine.trace_of(span)["spans"]) == 1 for span in members)
    assert all(span["attributes"].keys() >= TIMES - {"dispatch_s"} for span in members)


def test_text_is_recorded_with_the_tokens_the_engine_made_of_it(engine: Run) -> None:
    span = engine.request("text")
    assert prompt_of(span) == [5, 6, 7] and span["inputs"] == {"text": "w5 w6 w7"}
    assert span["response_ids"] == engine.found["text"]


def test_the_scheduler_is_counted_although_it_was_killed(engine: Run) -> None:
    targets = {target["key"]: target for target in engine.status()["targets"]}
    assert targets["sglang.srt.managers.scheduler.Scheduler.run_batch"]["calls"] > 50


def test_the_engines_context_length_is_known(engine: Run) -> None:
    assert engine.context_length() == 1024
