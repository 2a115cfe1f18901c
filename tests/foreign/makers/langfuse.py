"""langfuse 3.15: a trace with its observations, and the page of the observations, as the client's own types write them.

The types are those of the answers of ``GET /api/public/traces/{id}`` and ``GET /api/public/observations``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from langfuse.api import ObservationsView, TraceWithFullDetails

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
ASKED = {"role": "user", "content": "What is 1 plus 2?"}
REQUEST = {"role": "assistant", "content": None, "tool_calls": [CALL]}
SPANS: tuple[tuple[str, str, str | None, Any, Any], ...] = (
    ("AGENT", "solve", None, {"question": "What is 1 plus 2?"}, "It is 3."),
    ("GENERATION", "chat", "solve", [ASKED], REQUEST),
    ("TOOL", "add", "solve", {"a": 1, "b": 2}, "3"),
    ("GENERATION", "answer", "solve", [ASKED, REQUEST, {"role": "tool", "tool_call_id": "c1", "content": "3"}],
     {"role": "assistant", "content": "It is 3."}),
)  # fmt: skip


def observations(trace: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{trace}-{name}", "traceId": trace, "type": kind, "name": name, "input": asked, "output": answer,
            "parentObservationId": above and f"{trace}-{above}", "startTime": f"2026-01-01T00:00:0{number}Z",
            "endTime": f"2026-01-01T00:00:0{number}.5Z", "model": "m" if kind == "GENERATION" else None,
            "modelParameters": {}, "metadata": {}, "usage": {"input": 9, "output": 2, "total": 11, "unit": "TOKENS"},
            "usageDetails": {"input": 9, "output": 2}, "costDetails": {}, "level": "DEFAULT", "environment": "default",
        }
        for number, (kind, name, above, asked, answer) in enumerate(SPANS)
    ]  # fmt: skip


def main(folder: str) -> None:
    score = {
        "id": "s", "traceId": "t1", "name": "correct", "source": "API", "timestamp": "2026-01-01T00:00:05Z",
        "createdAt": "2026-01-01T00:00:05Z", "updatedAt": "2026-01-01T00:00:05Z", "environment": "default",
        "dataType": "NUMERIC", "value": 1.0,
    }  # fmt: skip
    trace = TraceWithFullDetails.parse_obj({
        "id": "t1", "timestamp": "2026-01-01T00:00:00Z", "name": "solve", "sessionId": "s1", "tags": [],
        "public": False, "environment": "default", "htmlPath": "/", "metadata": {"step": 3}, "scores": [score],
        "observations": [ObservationsView.parse_obj(one) for one in observations("t1")],
    })  # fmt: skip

    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "trace.json").write_text(trace.json())
    Path(folder, "observations.jsonl").write_text(
        "".join(f"{ObservationsView.parse_obj(one).json()}\n" for one in observations("t2")[::-1])
    )


if __name__ == "__main__":
    main(sys.argv[1])
