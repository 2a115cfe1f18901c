"""``autotrace-run vllm serve``: chat, streams, a client that goes away, and vLLM's own OpenTelemetry below ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_run import HERE, LIMIT, Run, is_call, run
from engine_server import Receiver, server

QUESTION = [{"role": "user", "content": "What is 1 plus 2?"}]
CHAT = {"model": "tiny", "messages": QUESTION, "max_tokens": 12, "ignore_eos": True}

SERVE = (
    *("--port", "PORT", "--host", "127.0.0.1", "--served-model-name", "tiny"),
    *("--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4"),
)

pytestmark = pytest.mark.timeout(LIMIT + 60)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, qwen: Path) -> Iterator[tuple[Run, dict[str, Any], list[Any]]]:
    folder = tmp_path_factory.mktemp("vllm") / "serve"
    command = ("vllm", "serve", str(qwen), *SERVE)
    told: dict[str, Any] = {}
    with Receiver() as receiver:
        tracing = ("--otlp-traces-endpoint", receiver.url)
        protocol = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": "200"}
        with server(folder, *command, *tracing, **protocol) as vllm:
            told["chat"] = vllm.answer("/v1/chat/completions", {**CHAT, "temperature": 0, "logprobs": True})
            told["stream"] = vllm.stream("/v1/chat/completions", {**CHAT, "temperature": 0})
            told["completion"] = vllm.answer("/v1/completions", {"model": "tiny", "prompt": "What is", "max_tokens": 5})
            vllm.hang_up("/v1/chat/completions", {**CHAT, "max_tokens": 200})
            end = time.monotonic() + 60
            while len(receiver.spans) < 3 and time.monotonic() < end:
                time.sleep(0.1)
        own = [span for span in receiver.spans if span.name == "llm_request"]
    yield Run.of(folder), told, own


def calls(run: Run, handler: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Spans of the handler and, below each, of the engine's request; in order."""
    handlers = sorted(run.named(handler), key=lambda span: span["start_ns"])
    found = []
    for span in handlers:
        (inner,) = [other for other in run.trace_of(span)["spans"] if is_call(other)]
        assert inner["parent_id"] == span["span_id"]
        found.append((span, inner))
    return found


def said(request: dict[str, Any]) -> str:
    """The answer as a server gives it, without the tokens that are no text."""
    text: str = request["response_text"].replace("<|im_end|>", "")
    return text


def test_a_chat_is_a_trace_with_messages_tokens_and_times(served: Any) -> None:
    run, told, _ = served
    (handler, request), *_ = calls(run, "OpenAIServingChat.create_chat_completion")
    assert handler["inputs"]["messages"] == CHAT["messages"] and handler["attributes"]["model"] == "tiny"
    answer = told["chat"]["choices"][0]
    assert handler["output"]["choices"][0]["message"]["content"] == answer["message"]["content"]
    assert request["role"] == "llm" and request["status"] == "OK"
    assert request["prompt_tokens"] == told["chat"]["usage"]["prompt_tokens"]
    assert len(request["response_ids"]) == told["chat"]["usage"]["completion_tokens"]
    assert said(request) == answer["message"]["content"]
    assert request["attributes"].keys() >= {"ttft_s", "queue_s", "prefill_s", "decode_s"}


def test_a_stream_ends_when_it_was_read_and_is_above_its_request(served: Any) -> None:
    run, told, _ = served
    handler, request = calls(run, "OpenAIServingChat.create_chat_completion")[1]
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in told["stream"] if event["choices"])
    assert said(request) == text != ""
    assert handler["status"] == "OK" and handler["end_ns"] >= request["end_ns"]
    assert request["items"] > 1 and handler["attributes"]["stream"] is True


def test_a_completion_keeps_its_prompt(served: Any) -> None:
    run, told, _ = served
    ((handler, request),) = calls(run, "OpenAIServingCompletion.create_completion")
    assert handler["inputs"]["prompt"] == "What is"
    assert len(request["response_ids"]) == told["completion"]["usage"]["completion_tokens"] == 5


def test_a_client_that_goes_away_leaves_a_cancelled_request(served: Any) -> None:
    run, *_ = served
    _, request = calls(run, "OpenAIServingChat.create_chat_completion")[2]
    assert request["status"] == "CANCELLED" and request["attributes"]["outcome"] in ("cancelled", "dropped")
    assert 0 < len(request["response_ids"]) < 200


def test_vllms_own_spans_hang_under_ours(served: Any) -> None:
    run, _, own = served
    requests = {span["span_id"]: run.trace_of(span)["trace_id"] for span in run.spans() if is_call(span)}
    parents = {span.parent_span_id.hex(): span.trace_id.hex() for span in own}
    assert len(parents) >= 3 and parents.items() <= requests.items()


def test_an_agent_that_speaks_http_finds_the_engines_requests_below_its_turns(tmp_path: Path, qwen: Path) -> None:
    launch = ("--spec", str(HERE / "agents.yaml"))
    seen = run(tmp_path, "http_agent.py", "vllm", "serve", str(qwen), *SERVE, launch=launch)
    (trace,) = seen.traces
    turns = [span for span in trace["spans"] if span["role"] == "llm"]
    assert len(turns) == 2
    for turn, text in zip(turns, seen.found, strict=True):
        (handler,) = [span for span in trace["spans"] if span["parent_id"] == turn["span_id"]]
        (request,) = [span for span in trace["spans"] if span["parent_id"] == handler["span_id"]]
        assert handler["attributes"]["request_id"] in request["attributes"]["request_id"]
        assert turn["start_ns"] <= request["start_ns"] and said(request) == text
        assert turn["response_tokens"] == request["response_tokens"] == len(request["response_ids"])
        assert turn["prompt_tokens"] == request["prompt_tokens"] > 0
