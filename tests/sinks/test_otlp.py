"""The OTLP sink into a receiver that decodes with OpenTelemetry's own messages, and into MLflow's ``/v1/traces``."""

from __future__ import annotations

import gzip
import json
import logging
import math
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from receiver import Receiver, attributes_of
from rollouts import START, group, info, trajectory

from autotrace.insight.profile import Mark, Profile, encode
from autotrace.sinks.otlp import sink
from autotrace.sinks.otlp.sink import OtlpSink
from autotrace.sinks.otlp.spans import CONVENTIONS
from autotrace.sinks.payload import unpacked
from autotrace.sinks.protocol import Refused, Rejected, Unavailable
from tests.mlflow_server import MlflowServer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    server = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=canary,x-tenant=rl")
    yield server
    server.shutdown()
    server.server_close()


def named(receiver: Receiver, name: str) -> list[Span]:
    return [span for span in receiver.spans.values() if span.name == name]


def test_a_trajectory_speaks_the_genai_conventions(receiver: Receiver) -> None:
    one = trajectory(reward=1.0)
    OtlpSink(info(project="rl", experiment="exp-a")).deliver([one])
    assert {span.trace_id.hex() for span in receiver.spans.values()} == {one.trace_id}
    root = receiver.spans[one.trace_id, one.root.span_id]
    assert (root.name, root.parent_span_id, root.start_time_unix_nano) == ("invoke_agent tool_agent", b"", START)
    told = attributes_of(root)
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert told["gen_ai.agent.name"] == "tool_agent"
    assert told["gen_ai.conversation.id"] == "exp-a/3/uid-17/0"
    assert (told["autotrace.step"], told["autotrace.sample_index"], told["autotrace.validate"]) == (3, 17, False)
    assert told["autotrace.reward"] == 1.0
    results = [attributes_of(event) for event in root.events if event.name == "gen_ai.evaluation.result"]
    assert {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": 1.0} in results
    assert any(result["gen_ai.evaluation.name"] == "reward_extra_info.acc" for result in results)
    assert receiver.resources[0]["service.name"] == "rl"
    assert receiver.resources[0]["autotrace.experiment_name"] == "exp-a"


def test_the_release_of_the_conventions_is_named_and_kept(receiver: Receiver) -> None:
    """In v0.1.0 ``top_k`` became an integer; what fits no number of the protocol is left out."""
    for given, told in ((40.0, 40), (-1, -1), (math.inf, None), (math.nan, None), (2**63, None)):
        one = trajectory()
        one.spans[2].inputs["sampling_params"]["top_k"] = given
        OtlpSink(info()).deliver([one])
        sent = attributes_of(receiver.spans[one.trace_id, one.spans[2].span_id]).get("gen_ai.request.top_k")
        assert (sent, type(sent)) == (told, type(told))
    assert receiver.scopes[-1] == {"autotrace.genai_conventions": CONVENTIONS}
    assert CONVENTIONS in (ROOT / "docs/backends.md").read_text().partition("## OTLP")[2].partition("##")[0]


def test_a_turn_has_messages_in_parts_usage_and_tokens(receiver: Receiver) -> None:
    one = trajectory()
    OtlpSink(info()).deliver([one])
    turn = receiver.spans[one.trace_id, one.spans[2].span_id]
    told = attributes_of(turn)
    assert (turn.name, turn.kind) == ("chat policy", Span.SPAN_KIND_CLIENT)
    assert told["gen_ai.provider.name"] == "verl"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (40, 60)
    assert told["gen_ai.usage.cache_read.input_tokens"] == 16
    assert (told["gen_ai.request.temperature"], told["gen_ai.request.max_tokens"]) == (1.0, 512)
    assert told["gen_ai.response.finish_reasons"] == ["stop"]
    assert json.loads(told["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "What is 6 times 7?"}]}
    ]
    (reply,) = json.loads(told["gen_ai.output.messages"])
    assert reply["finish_reason"] == "stop"
    assert reply["parts"] == [{"type": "tool_call", "id": "call-1", "name": "multiply", "arguments": {"a": 6, "b": 7}}]
    assert unpacked(told["autotrace.response_ids"]) == one.spans[2].response_ids
    (tool,) = named(receiver, "execute_tool multiply")
    assert json.loads(attributes_of(tool)["gen_ai.tool.call.arguments"]) == {"a": 6, "b": 7}
    assert json.loads(attributes_of(tool)["gen_ai.tool.call.result"]) == ["42", 0.0, {}]


@pytest.mark.parametrize("status", ["CANCELLED", "TIMEOUT", "INTERRUPTED"])
def test_what_did_not_end_well_is_an_error_with_its_reason(receiver: Receiver, status: str) -> None:
    one = trajectory()
    one.spans[4].status, one.spans[4].end_ns = status, None
    one.spans[3].status, one.spans[3].error = "ERROR", ("ValueError", "no such tool", "Traceback ...")
    OtlpSink(info()).deliver([one])
    turn = receiver.spans[one.trace_id, one.spans[4].span_id]
    assert turn.status.code == Status.STATUS_CODE_ERROR
    assert turn.status.message.startswith(status)
    assert attributes_of(turn)["gen_ai.response.finish_reasons"] == ["error"]
    tool = receiver.spans[one.trace_id, one.spans[3].span_id]
    assert attributes_of(tool)["error.type"] == "ValueError"
    assert attributes_of(tool.events[0])["exception.message"] == "no such tool"


def test_the_engine_below_is_the_provider(receiver: Receiver) -> None:
    one = trajectory()
    one.spans[3].parent_id, one.spans[3].role = one.spans[2].span_id, "engine"
    one.spans[3].key = "verl.workers.rollout.vllm_rollout.vllm_async_server.vLLMHttpServer.generate"
    OtlpSink(info()).deliver([one])
    assert attributes_of(receiver.spans[one.trace_id, one.spans[2].span_id])["gen_ai.provider.name"] == "vllm"


def test_a_late_fact_sends_the_root_alone(receiver: Receiver) -> None:
    sink = OtlpSink(info())
    sink.deliver(group(rewards=(None, None)))
    first = receiver.requests[-1][1]
    sink.facts(group())
    assert len(receiver.requests) == 2
    assert receiver.requests[-1][1] < first / 2
    assert len(receiver.spans) == 10
    assert {attributes_of(root)["autotrace.reward"] for root in receiver.spans.values() if not root.parent_span_id} == {
        0,
        1,
    }


def test_findings_are_a_list_to_search_and_events_that_say_where(receiver: Receiver) -> None:
    sink = OtlpSink(info())
    one = trajectory(reward=1.0)
    found = [Mark("AT-TURN-LIMIT"), Mark("AT-RETOKENIZED", 2, 31, "token 31"), Mark("MY-OWN", 9)]
    one.profile = encode(Profile("1", marks=found))
    sink.deliver([one])
    root = receiver.spans[one.trace_id, one.root.span_id]
    assert attributes_of(root)["autotrace.findings"] == ["AT-TURN-LIMIT", "AT-RETOKENIZED", "MY-OWN"]
    events = [event for event in root.events if event.name == "autotrace.finding"]
    assert [attributes_of(event)["autotrace.finding.code"] for event in events] == [
        "AT-RETOKENIZED", "AT-TURN-LIMIT", "MY-OWN",
    ]  # fmt: skip
    turn = one.llm_spans[1]
    assert events[0].time_unix_nano == turn.end_ns
    assert attributes_of(events[0]) == {
        "autotrace.finding.code": "AT-RETOKENIZED", "autotrace.finding.turn": 2, "autotrace.finding.token": 31,
        "autotrace.finding.span_id": turn.span_id, "autotrace.finding.note": "token 31",
    }  # fmt: skip
    assert attributes_of(events[1]) == {"autotrace.finding.code": "AT-TURN-LIMIT"}


def test_headers_and_compression_are_standard_variables(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    OtlpSink(info()).deliver(group())
    path, _, headers = receiver.requests[0]
    assert path == "/v1/traces"
    assert (headers["api-key"], headers["x-tenant"], headers["content-encoding"]) == ("canary", "rl", "gzip")
    assert receiver.resources[0]["service.name"] == "mine"


def test_agent_lens_gets_its_address_its_key_and_its_project(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe of docs/backends.md. Agent Lens drops spans whose resource names no project."""
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{receiver.url}/agents/otel/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "wandb-api-key=canary")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "wandb.entity=me,wandb.project=rl")
    OtlpSink(info()).deliver(group())
    assert {(path, headers["wandb-api-key"]) for path, _, headers in receiver.requests} == {
        ("/agents/otel/v1/traces", "canary")
    }
    assert all((each["wandb.entity"], each["wandb.project"]) == ("me", "rl") for each in receiver.resources)
    assert {"gen_ai.operation.name", "gen_ai.conversation.id"} <= set().union(
        *map(attributes_of, receiver.spans.values())
    )


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_trouble_on_their_side_is_unavailable_at_once(receiver: Receiver, status: int) -> None:
    receiver.answers.append((status, {"Retry-After": "9"}, b""))
    sink = OtlpSink(info())
    with pytest.raises(Unavailable) as caught:
        sink.deliver(group())
    assert caught.value.retry_after == 9.0
    assert len(receiver.requests) == 1, "it waited and tried again"
    sink.deliver(group())
    assert len(receiver.spans) == 10


def test_a_failure_after_the_commit_is_sent_again_with_the_same_ids(receiver: Receiver) -> None:
    receiver.after = True
    receiver.answers.append((500, {}, b""))
    sink = OtlpSink(info())
    with pytest.raises(Unavailable):
        sink.deliver(group())
    sink.deliver(group())
    assert len(receiver.spans) == 10


def test_no_receiver_and_a_dropping_one_are_unavailable(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver.answers += [(0, {}, b"")] * 10
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with pytest.raises(Unavailable):
        OtlpSink(info()).deliver([trajectory()])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        OtlpSink(info()).deliver([trajectory()])


def test_a_slow_receiver_is_unavailable(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver.delay = 1.0
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with pytest.raises(Unavailable):
        OtlpSink(info()).deliver([trajectory()])


@pytest.mark.parametrize(
    ("status", "remedy"), [(401, "HEADERS"), (403, "HEADERS"), (404, "ENDPOINT"), (302, "ENDPOINT")]
)
def test_what_a_person_must_mend_is_refused_without_secrets(
    receiver: Receiver, status: int, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers.append((status, {}, b"canary"))
    with pytest.raises(Refused, match=remedy) as caught:
        OtlpSink(info()).deliver(group())
    assert "canary" not in str(caught.value) + caplog.text
    assert "What is 6 times 7" not in caplog.text


def test_a_malformed_setting_is_refused(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    with pytest.raises(Refused, match="OTEL_EXPORTER_OTLP"):
        OtlpSink(info()).deliver([trajectory()])


def test_one_bad_span_costs_its_trajectory_alone(receiver: Receiver) -> None:
    receiver.poison = b"POISON"
    bad = trajectory(sample=99, prompt="POISON")
    with pytest.raises(Rejected) as caught:
        OtlpSink(info()).deliver([*group(), bad])
    assert list(caught.value.reasons) == [bad.trace_id]
    assert len({trace for trace, _ in receiver.spans if trace != bad.trace_id}) == 2


def test_a_receiver_that_declines_everything_is_refused(receiver: Receiver) -> None:
    receiver.poison = b"autotrace"
    with pytest.raises(Refused):
        OtlpSink(info()).deliver([trajectory(sample=sample) for sample in range(20)])
    assert len(receiver.requests) < 20


def test_what_a_receiver_says_it_dropped_is_passed_on(receiver: Receiver) -> None:
    told = ExportTraceServiceResponse()
    told.partial_success.rejected_spans, told.partial_success.error_message = 2, "quota"
    receiver.answers.append((200, {}, told.SerializeToString()))
    one = trajectory()
    with pytest.raises(Rejected) as caught:
        OtlpSink(info()).deliver([one])
    assert "dropped 2 of the 5 spans" in caught.value.reasons[one.trace_id]


def test_a_long_answer_and_an_answer_that_never_ends_are_unavailable(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers += [(200, {}, b" " * (sink.MOST_ANSWER + 1)), (200, {}, b"later")]
    with pytest.raises(Unavailable):
        OtlpSink(info()).deliver([trajectory()])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    monkeypatch.setattr(sink, "TIMEOUT", -1.0)
    with pytest.raises(Unavailable):
        OtlpSink(info()).deliver([trajectory()])


def test_an_answer_that_expands_is_not_expanded(receiver: Receiver) -> None:
    expands = gzip.compress(bytes(1 << 25))
    assert len(expands) < sink.MOST_ANSWER
    receiver.answers += [(200, {"content-encoding": "gzip"}, expands)] * 2
    tracemalloc.start()
    try:
        OtlpSink(info()).deliver([trajectory()])
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


def test_large_deliveries_are_split_and_long_texts_cut(receiver: Receiver) -> None:
    many = [trajectory(sample=sample, prompt="word " * 50_000) for sample in range(10)]
    many[0].spans[3].output = "long " * 1_000_000
    OtlpSink(info()).deliver(many)
    assert len(receiver.spans) == 50
    assert len(receiver.requests) > 1
    assert max(size for _, size, _ in receiver.requests) < 4_500_000
    tool = receiver.spans[many[0].trace_id, many[0].spans[3].span_id]
    assert attributes_of(tool)["autotrace.cut"] == ["gen_ai.tool.call.result: 5000002 characters"]


def test_awkward_values_are_carried(receiver: Receiver) -> None:
    one = trajectory()
    one.spans[3].inputs = {"nan": math.nan, "big": 1 << 80, "half": "\ud800", "raw": b"123"}
    one.spans[3].attributes = {"nested": {"a": [1, 2]}, "nothing": None, "inf": math.inf}
    OtlpSink(info()).deliver([one])
    told = attributes_of(receiver.spans[one.trace_id, one.spans[3].span_id])
    arguments = json.loads(told["gen_ai.tool.call.arguments"])
    assert arguments == {"nan": None, "big": str(1 << 80), "half": "?", "raw": "3 bytes"}
    assert json.loads(told["autotrace.nested"]) == {"a": [1, 2]}
    assert not {"autotrace.nothing", "autotrace.inf"} & told.keys()


def test_mlflow_reads_the_conventions_and_keeps_one_of_each(
    mlflow_server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    client = MlflowClient(mlflow_server.url)
    experiment = client.create_experiment("otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", mlflow_server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-mlflow-experiment-id={experiment}")
    step = 77  # ids of their own: MLflow keeps a known trace in the experiment that had the trace first
    OtlpSink(info()).deliver(group(step, rewards=(None, None)))
    OtlpSink(info()).deliver(group(step))
    traces: list[Any] = client.search_traces(locations=[experiment])
    assert len(traces) == 2
    for trace in traces:
        assert str(trace.info.state.value) == "OK"
        kinds = sorted((span.name, span.span_type) for span in trace.data.spans)
        assert kinds == [
            ("chat policy", "CHAT_MODEL"),
            ("chat policy", "CHAT_MODEL"),
            ("execute_tool multiply", "TOOL"),
            ("invoke_agent tool_agent", "AGENT"),
            ("invoke_agent tool_agent", "AGENT"),
        ]
        root = next(span for span in trace.data.spans if span.parent_id is None)
        assert trace.info.token_usage["input_tokens"] == 152 + root.attributes["autotrace.rollout_n"]
        assert root.attributes["autotrace.reward"] in (0.0, 1.0)
        assert any(event.name == "gen_ai.evaluation.result" for event in root.events)
        turn = next(span for span in trace.data.spans if span.span_type == "CHAT_MODEL")
        assert "What is 6 times 7?" in json.dumps(turn.inputs)
