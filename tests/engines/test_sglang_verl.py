"""Trajectories whose calls go to veRL's own SGLang server class, a Ray actor in another process."""

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


def test_every_request_is_below_the_call_that_made_it(rollouts: Run) -> None:
    roots = rollouts.named("conversation")
    assert sorted(root["attributes"]["uid"] for root in roots) == sorted(rollouts.found)
    for root in roots:
        trace, seen = rollouts.trace_of(root), rollouts.found[root["attributes"]["uid"]]
        calls = below(trace, root)
        assert [call["role"] for call in calls] == ["llm", "llm"]
        for call, output in zip(calls, seen, strict=True):
            (server,) = below(trace, call)
            (request,) = below(trace, server)
            assert server["name"].endswith("SGLangHttpServer.generate") and server["attributes"]["replica"] == 3
            assert request["name"] == "TokenizerManager.generate_request" and request["role"] == "engine"
            assert call["response_ids"] == output["response_ids"]
            assert request["response_tokens"] == server["response_tokens"] == len(output["response_ids"])
            assert request["prompt_tokens"] == server["prompt_tokens"] == call["prompt_tokens"]
            assert "response_ids" not in request or request["response_ids"] is None, "the ids stand once, with the call"
            assert request["status"] == "OK" and request["attributes"]["finish_reason"] == "length"
            assert request["attributes"].keys() >= {"ttft_s", "dispatch_s", "queue_s", "prefill_s", "decode_s"}
            assert request["attributes"]["request_id"] == server["attributes"]["request_id"]
            assert call["start_ns"] <= server["start_ns"] <= request["start_ns"]
            assert request["end_ns"] <= server["end_ns"] <= call["end_ns"]


def test_what_was_done_to_the_engine_is_shown(rollouts: Run) -> None:
    assert [span for span in rollouts.spans() if span["name"].endswith("flush_cache")]
