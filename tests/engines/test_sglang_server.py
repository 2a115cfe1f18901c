"""``autotrace-run python -m sglang.launch_server``: chat, streams, its own protocol, its OpenTelemetry below ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_run import LIMIT, Run, is_call
from engine_server import Receiver, server

pytestmark = pytest.mark.timeout(LIMIT + 60)
CHAT = {
    "model": "tiny", "messages": [{"role": "user", "content": "w5 w6 w7"}], "max_tokens": 8, "ignore_eos": True,
    "skip_special_tokens": False,  # the model's weights are random: it may answer with one
}  # fmt: skip
OPTIONS = {
    "device": "cpu", "load-format": "dummy", "attention-backend": "torch_native", "mem-fraction-static": "0.1",
    "max-total-tokens": "2048", "max-running-requests": "8", "dtype": "float32", "grammar-backend": "none",
    "log-level": "warning", "served-model-name": "tiny", "host": "127.0.0.1", "port": "PORT",
}  # fmt: skip
FLAGS = ("disable-cuda-graph", "disable-overlap-schedule", "skip-server-warmup", "enable-trace")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Iterator[tuple[Run, dict[str, Any], list[Any]]]:
    folder = tmp_path_factory.mktemp("sglang") / "serve"
    told: dict[str, Any] = {}
    with Receiver() as receiver:
        command = ["python", "-m", "sglang.launch_server", "--model-path", str(llama)]
        command += [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
        command += [f"--{name}" for name in FLAGS] + ["--otlp-traces-endpoint", receiver.url]
        with server(folder, *command, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf") as sglang:
            told["chat"] = sglang.answer("/v1/chat/completions", CHAT)
            told["stream"] = sglang.stream("/v1/chat/completions", CHAT)
            native = {"text": "w9 w10", "rid": "native", "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
            told["native"] = sglang.answer("/generate", native)
            end = time.monotonic() + 60
            while len({span.trace_id for span in receiver.spans}) < 3 and time.monotonic() < end:
                time.sleep(0.1)
        own = list(receiver.spans)
    yield Run.of(folder), told, own


def chats(run: Run) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The handler's span and the engine's request below it, in order."""
    found = []
    for handler in sorted(run.named("OpenAIServingBase.handle_request"), key=lambda span: span["start_ns"]):
        (request,) = [span for span in run.trace_of(handler)["spans"] if is_call(span)]
        assert request["parent_id"] == handler["span_id"]
        found.append((handler, request))
    return found


def test_a_chat_is_a_trace_with_messages_tokens_and_times(served: Any) -> None:
    run, told, _ = served
    handler, request = chats(run)[0]
    assert handler["inputs"]["messages"][0]["content"] == "w5 w6 w7" and handler["attributes"]["model"] == "tiny"
    assert request["role"] == "llm" and len(request["response_ids"]) == 8
    assert request["prompt_tokens"] == told["chat"]["usage"]["prompt_tokens"]
    # the server reads on from the prompt, so it has the blank between the two
    assert request["response_text"] == told["chat"]["choices"][0]["message"]["content"].lstrip()
    assert request["attributes"].keys() >= {"ttft_s", "queue_s", "prefill_s", "decode_s"}


def test_a_stream_ends_when_it_was_read_and_is_above_its_request(served: Any) -> None:
    run, told, _ = served
    handler, request = chats(run)[1]
    assert handler["attributes"]["stream"] is True and handler["status"] == request["status"] == "OK"
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in told["stream"] if event["choices"])
    assert text.lstrip() == request["response_text"] and request["attributes"]["outputs"] > 1
    assert handler["start_ns"] <= request["start_ns"] and request["end_ns"] <= handler["end_ns"]


def test_the_engines_own_protocol_is_one_request(served: Any) -> None:
    run, told, _ = served
    span = run.request("native")
    assert span["parent_id"] is None and span["response_ids"] == told["native"]["output_ids"]


def test_sglangs_own_spans_hang_under_ours(served: Any) -> None:
    run, _, own = served
    requests = {span["span_id"]: run.trace_of(span)["trace_id"] for span in run.spans() if is_call(span)}
    inside = {span.span_id.hex() for span in own}
    above = {span.parent_span_id.hex(): span.trace_id.hex() for span in own if span.parent_span_id.hex() not in inside}
    above.pop("", None)  # a probe of its health, which is no request of anybody's
    assert above == requests and len(requests) == 3
