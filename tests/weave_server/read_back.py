"""The genuine W&B client as a reader: prints what it finds in a project as one JSON object.

    CLIENT_VENV/bin/python read_back.py ENTITY/PROJECT < queries.json

Standard input: name -> arguments of ``client.get_calls``. Standard output: name -> calls.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import weave

FIELDS = ("id", "trace_id", "parent_id", "op_name", "func_name", "display_name", "exception", "started_at", "ended_at")
LINKS = ("thread_id", "turn_id", "wb_run_id", "wb_run_step")
CONTENT = ("attributes", "inputs", "output", "summary")


def main() -> None:
    queries: dict[str, dict[str, Any]] = json.load(sys.stdin)
    client = weave.init(sys.argv[1])
    found = {name: [_told(call) for call in client.get_calls(**query)] for name, query in queries.items()}
    json.dump(found, sys.stdout, default=str)


def _told(call: Any) -> dict[str, Any]:
    told = {name: getattr(call, name) for name in (*FIELDS, *LINKS)}
    told |= {name: _value(getattr(call, name)) for name in CONTENT}
    told["feedback"] = {} if call.parent_id else {row.feedback_type: row.payload["output"] for row in call.feedback}
    return told


def _value(value: Any) -> Any:
    """The client's own containers as plain ones."""
    if hasattr(value, "items"):
        return {name: _value(item) for name, item in value.items()}
    return [_value(item) for item in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    main()
