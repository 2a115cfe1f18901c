"""Trajectories whose calls go through veRL's own client to its own SGLang server class, a Ray actor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_run import HERE, LIMIT, Run, run

pytestmark = pytest.mark.timeout(LIMIT + 60)


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Run:
    folder = tmp_path_factory.mktemp("sglang") / "verl"
    launch = ("--spec", str(HERE / "agents.yaml"))
    return run(folder, "sglang_verl.py", str(llama), launch=launch, RAY_USAGE_STATS_ENABLED="0")


def below(trace: dict[str, Any], span: dict[str, Any]) -> list[dict[str, Any]]:
    found = [other for other in trace["spans"] if other["parent_id"] == span["span_id"]]
    return sorted(found, key=lambda other: other["start_ns"])


def turns(run: Run, uid: str) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Of one trajectory: the agent's call, the server's side of it, and the engine's request."""
    (root,) = [span for span in run.named("conversation") if span["attributes"]["uid"] == uid]
    trace = run.trace_of(root)
    found = []
    for call in (span for span in below(trace, root) if span["role"] == "llm"):
        (server,) = below(trace, call)
        (request,) = below(trace, server)
        found.append((call, server, request))
    assert len(found) == 2
    return found


@pytest.mark.parametrize("uid", ["first", "second", "logprobs"])
def test_every_request_is_below_the_call_that_made_it(rollouts: Run, uid: str) -> None:
    assert len(rollouts.trace_of(turns(rollouts, uid)[0][0])["spans"]) == 7
    for (call, server, request), seen in zip(turns(rollouts, uid), rollouts.found[uid], strict=True):
        assert (call["name"], call["role"]) == ("LLMServerClient.generate", "llm")
        assert call["attributes"]["request_id"] == f"sticky-{uid}"
        assert server["name"].endswith("SGLangHttpServer.generate") and server["attributes"]["replica"] == 3
        assert request["name"] == "TokenizerManager.generate_request" and request["role"] == "engine"
        assert call["response_ids"] == seen["response_ids"]
        assert request["response_tokens"] == server["response_tokens"] == len(seen["response_ids"]) == 8
        assert request["prompt_tokens"] == server["prompt_tokens"] == call["prompt_tokens"] == len(seen["prompt_ids"])
        assert not request.get("response_ids"), "the ids stand once, with the call"
        assert request["status"] == "OK" and request["attributes"]["finish_reason"] == "length"
        assert request["attributes"].keys() >= {"ttft_s", "dispatch_s", "queue_s", "prefill_s", "decode_s"}
        assert request["attributes"]["request_id"] == server["attributes"]["request_id"]
        assert call["start_ns"] <= server["start_ns"] <= request["start_ns"]
        assert request["end_ns"] <= server["end_ns"] <= call["end_ns"]


def test_what_the_server_takes_out_of_its_arguments_is_still_on_the_span(rollouts: Run) -> None:
    asked = {"max_new_tokens": 8, "temperature": 0.0, "ignore_eos": True}
    for uid, given in (("first", asked), ("logprobs", {**asked, "logprobs": True})):
        for call, server, _ in turns(rollouts, uid):
            assert call["inputs"]["sampling_params"] == server["inputs"]["sampling_params"] == given


def test_requests_that_lost_their_context_find_their_call_by_the_id_verl_made(rollouts: Run) -> None:
    for (call, server, request), seen in zip(turns(rollouts, "queued"), rollouts.found["queued"], strict=True):
        assert call["attributes"]["request_id"] != server["attributes"]["request_id"]
        assert request["response_tokens"] == len(call["response_ids"]) == len(seen["response_ids"])
        assert call["start_ns"] <= server["start_ns"] <= request["end_ns"] <= call["end_ns"]


def test_a_turn_that_a_weight_sync_cut_short_says_so_and_the_next_shows_its_wait(rollouts: Run) -> None:
    (cut, _, aborted), (_, _, waiting) = turns(rollouts, "cut")
    first, second = rollouts.found["cut"]
    assert first["stop_reason"] == cut["attributes"]["stop_reason"] == "abort"
    assert (aborted["status"], aborted["attributes"]["outcome"]) == ("CANCELLED", "aborted")
    assert cut["response_ids"] == first["response_ids"] and 0 < aborted["response_tokens"] < 480
    assert aborted["response_tokens"] == len(first["response_ids"])
    assert waiting["status"] == "OK" and waiting["response_tokens"] == len(second["response_ids"])
    assert waiting["attributes"]["dispatch_s"] > max(0.09, waiting["attributes"]["queue_s"])


def test_what_was_done_to_the_engine_is_shown(rollouts: Run) -> None:
    assert [span for span in rollouts.spans() if span["name"].endswith("flush_cache")]
    (pause,) = rollouts.named("TokenizerManager.pause_generation")
    assert pause["attributes"]["mode"] == "abort" and rollouts.named("TokenizerManager.continue_generation")
