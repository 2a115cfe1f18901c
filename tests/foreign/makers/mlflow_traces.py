"""MLflow 3: a trace as ``Trace.to_json()``, as ``mlflow traces search`` prints, and as ``search_traces`` returns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import SpanType

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


@mlflow.trace(span_type=SpanType.TOOL)
def add(a: int, b: int) -> str:
    return str(a + b)


@mlflow.trace(span_type=SpanType.CHAT_MODEL)
def chat(messages: list[dict[str, Any]]) -> dict[str, Any]:
    span = mlflow.get_current_active_span()
    span.set_attribute("mlflow.chat.tokenUsage", {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11})
    answer = {"content": None, "tool_calls": [CALL]} if len(messages) == 1 else {"content": "It is 3."}
    return {"model": "m", "choices": [{"message": {"role": "assistant", **answer}, "finish_reason": "stop"}]}


@mlflow.trace(span_type=SpanType.AGENT)
def solve(question: str) -> str:
    mlflow.update_current_trace(metadata={"mlflow.trace.session": "s1", "step": "3"})
    said: list[dict[str, Any]] = [{"role": "user", "content": question}]
    said.append(chat(said)["choices"][0]["message"])
    said.append({"role": "tool", "tool_call_id": "c1", "content": add(1, 2)})
    return str(chat(said)["choices"][0]["message"]["content"])


def main(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/../mlflow_traces.db"
    solve("What is 1 plus 2?")
    mlflow.flush_trace_async_logging()
    id = mlflow.get_last_active_trace_id()
    mlflow.log_feedback(trace_id=id, name="correct", value=1.0)
    Path(folder, "to_json.json").write_text(mlflow.get_trace(id).to_json())
    Path(folder, "records.json").write_text(mlflow.search_traces().to_json(orient="records"))
    words = [sys.executable, "-m", "mlflow", "traces", "search", "--experiment-id", "0", "--output", "json"]
    Path(folder, "cli.json").write_bytes(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main(sys.argv[1])
