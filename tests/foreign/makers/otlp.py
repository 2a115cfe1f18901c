"""OpenTelemetry's SDK 1.45: a trace with GenAI attributes in OTLP's JSON, as lines of one batch each; the parts of a
trace are in several lines, and the root is in the last, as the file exporter of the collector leaves them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from google.protobuf.json_format import MessageToJson
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer

CALL = {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}
ASKED = {"role": "user", "parts": [{"type": "text", "content": "What is 1 plus 2?"}]}
CHAT = {"role": "user", "content": "What is 2 plus 2?"}
REQUEST = {"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}, CALL], "finish_reason": "tool_call"}
SEEN = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "3"}]}
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "It is 3."}], "finish_reason": "stop"}


def chat(tracer: Tracer, asked: list[object], answer: object) -> None:
    with tracer.start_as_current_span("chat m") as span:
        span.set_attributes({
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 9,
            "gen_ai.usage.output_tokens": 2, "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": json.dumps([answer]), "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
        })  # fmt: skip


def solve(tracer: Tracer) -> None:
    with tracer.start_as_current_span("invoke_agent solver") as root:
        root.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s1", "step": 3})
        chat(tracer, [ASKED], REQUEST)
        with tracer.start_as_current_span("execute_tool add") as span:
            span.set_attributes({
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add", "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.arguments": '{"a": 1, "b": 2}', "gen_ai.tool.call.result": "3",
            })  # fmt: skip
        chat(tracer, [ASKED, REQUEST, SEEN], ANSWER)
        score = {"gen_ai.evaluation.name": "correct", "gen_ai.evaluation.score.value": 1.0}
        root.add_event("gen_ai.evaluation.result", score)


def fail(tracer: Tracer) -> None:
    """OpenInference's names, and a call that failed."""
    with tracer.start_as_current_span("ChatCompletion") as span:
        span.set_attributes({"openinference.span.kind": "LLM", "input.value": json.dumps({"messages": [CHAT]})})
        span.set_status(StatusCode.ERROR, "no answer")
    with tracer.start_as_current_span("GET /"):
        pass


def main(folder: str) -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    solve(provider.get_tracer("t"))
    fail(provider.get_tracer("t"))
    Path(folder).mkdir(parents=True, exist_ok=True)
    spans = kept.get_finished_spans()
    lines = [MessageToJson(encode_spans(spans[at : at + 2]), indent=None) for at in range(0, len(spans), 2)]
    Path(folder, "traces.jsonl").write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(sys.argv[1])
