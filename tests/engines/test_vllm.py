"""Real vLLM on CPU, without a server: every way a request to the engine can come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_run import HERE, LIMIT, Run, prompt_of, run

TIMES = {"ttft_s", "dispatch_s", "queue_s", "prefill_s", "decode_s", "outputs"}
GAPS = {"itl_mean_ms", "itl_p99_ms", "itl_max_ms"}

pytestmark = pytest.mark.timeout(LIMIT + 60)


@pytest.fixture(scope="session")
def asynchronous(tmp_path_factory: pytest.TempPathFactory, qwen: Path) -> Run:
    folder = tmp_path_factory.mktemp("vllm") / "async"
    return run(folder, "vllm_async.py", str(qwen), launch=("--spec", str(HERE / "agents.yaml")))


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory, qwen: Path) -> Run:
    return run(tmp_path_factory.mktemp("vllm") / "offline", "vllm_offline.py", str(qwen))


def check(span: dict[str, Any], seen: dict[str, Any]) -> None:
    """``span`` is what the program saw of its request."""
    assert prompt_of(span) == seen["prompt_ids"] and span["response_ids"] == seen["response_ids"]
    assert span["attributes"]["finish_reason"] == seen["finish_reason"]
    times = span["attributes"]
    assert times.keys() >= TIMES | GAPS, times
    assert 0 <= times["queue_s"] <= times["ttft_s"]
    assert times["itl_mean_ms"] <= times["itl_p99_ms"] <= times["itl_max_ms"]
    assert times["dispatch_s"] + times["queue_s"] + times["prefill_s"] <= times["ttft_s"] + 0.001
    duration = (span["end_ns"] - span["start_ns"]) / 1e9
    assert times["ttft_s"] + times["decode_s"] <= duration + 0.05 and times["outputs"] == len(seen["response_ids"])


@pytest.mark.parametrize("kind", ["CUMULATIVE", "DELTA", "FINAL_ONLY", "text"])
def test_a_request_has_its_tokens_and_times_whatever_its_caller_gets_to_see(asynchronous: Run, kind: str) -> None:
    span, seen = asynchronous.request(kind), asynchronous.found[kind]
    check(span, seen)
    assert span["status"] == "OK" and span["role"] == "llm" and span["items"] == seen["chunks"]
    assert seen["chunks"] == (1 if kind == "FINAL_ONLY" else 12)
    assert [message["role"] for message in span["messages"]] == ["user", "assistant"]
    assert len(asynchronous.trace_of(span)["spans"]) == 1


def test_requests_of_an_agent_are_below_it_and_share_their_prefix(asynchronous: Run) -> None:
    (root,) = asynchronous.named("conversation")
    turns = [asynchronous.request(f"agent-{number}") for number in (1, 2)]
    assert [turn["parent_id"] for turn in turns] == [root["span_id"]] * 2
    first, second = asynchronous.found["agent"]
    check(turns[0], first)
    assert turns[1]["prompt_base"] == turns[0]["span_id"]
    assert turns[1]["prompt_keep"] == len(first["prompt_ids"]) + len(first["response_ids"])
    assert turns[1]["new_prompt_ids"] == [5, 6, 7] and turns[1]["response_ids"] == second["response_ids"]
    assert turns[1]["attributes"]["cached_tokens"] == 16


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("cancelled", "cancelled"), ("dropped", "dropped"), ("aborted", "aborted"), ("paused", "aborted")],
)
def test_a_request_that_was_given_up_says_how_and_keeps_what_it_had(asynchronous: Run, name: str, outcome: str) -> None:
    span = asynchronous.request(name)
    assert (span["status"], span["attributes"]["outcome"]) == ("CANCELLED", outcome)
    whole = asynchronous.found["crowd-0"]["response_ids"]
    assert 1 <= len(span["response_ids"]) < 200 and span["response_ids"] == whole[: len(span["response_ids"])]
    assert span["attributes"]["ttft_s"] > 0
    if outcome == "aborted":
        assert span["response_ids"] == asynchronous.found[name]["response_ids"]


def test_a_request_that_waits_for_a_weight_sync_shows_the_wait(asynchronous: Run) -> None:
    span = asynchronous.request("paused-after")
    check(span, asynchronous.found["paused"]["after"])
    times = span["attributes"]
    assert times["queue_s"] > 0.09 and span["status"] == "OK", "vLLM takes it and does not schedule it"
    (pause,) = asynchronous.named("AsyncLLM.pause_generation")
    assert pause["status"] == "OK"
    assert asynchronous.named("AsyncLLM.resume_generation") and asynchronous.named("AsyncLLM.reset_prefix_cache")


def test_only_aborts_that_somebody_asked_for_are_shown(asynchronous: Run) -> None:
    assert [span["inputs"]["request_id"] for span in asynchronous.named("AsyncLLM.abort")] == ["aborted"]


def test_a_refused_request_is_an_error(asynchronous: Run) -> None:
    span = asynchronous.request("refused")
    assert span["status"] == "ERROR" and span["error"][0].endswith(asynchronous.found["refused"])
    assert "maximum context length" in span["error"][1]


def test_preemptions_are_seen_although_log_stats_are_off(asynchronous: Run) -> None:
    crowd = [asynchronous.request(f"crowd-{number}") for number in range(4)]
    for number, span in enumerate(crowd):
        check(span, asynchronous.found[f"crowd-{number}"])
    preempted = [span["attributes"] for span in crowd if "preemptions" in span["attributes"]]
    assert preempted and all(0 < found["preempted_s"] < found["decode_s"] for found in preempted)
    (counted,) = [
        target["calls"]
        for target in asynchronous.status()["targets"]
        if target["key"].endswith("Scheduler._preempt_request")
    ]
    assert counted == sum(found["preemptions"] for found in preempted)


def test_the_engine_core_is_counted_although_it_was_killed(asynchronous: Run) -> None:
    targets = {target["key"]: target for target in asynchronous.status()["targets"]}
    assert targets["vllm.v1.engine.core.EngineCore.step"]["calls"] > 100
    assert targets["vllm request timings"]["states"].keys() == {"bound"}


def test_only_processes_that_had_something_to_say_leave_a_file(offline: Run) -> None:
    """The program and the engine core; not vLLM's worker, its registry and the other helpers."""
    assert offline.status()["processes"] == 2


def test_several_samples_are_one_request(asynchronous: Run) -> None:
    span = asynchronous.request("samples")
    assert span["attributes"]["samples"] == 2 and prompt_of(span) == asynchronous.found["samples"]["prompt_ids"]


def test_each_request_of_a_batch_is_a_trace(offline: Run) -> None:
    spans = [offline.request(str(number)) for number in range(5)]
    assert len(offline.traces) == 5 and all(len(trace["spans"]) == 1 for trace in offline.traces)
    for span, seen in zip(spans, offline.found, strict=True):
        check(span, {"finish_reason": "length", **seen})
        assert span["role"] == "llm" and span["status"] == "OK" and span["parent_id"] is None
    # two run at a time
    assert spans[2]["attributes"]["queue_s"] > 2 * spans[0]["attributes"]["queue_s"]
    chat = spans[3]["messages"]
    assert [message["role"] for message in chat] == ["system", "user", "assistant"]
    assert chat[1]["content"] == "What is 2 plus 2?"


def test_the_engines_context_length_is_known(asynchronous: Run, offline: Run) -> None:
    assert [run.context_length() for run in (asynchronous, offline)] == [256, 256]
