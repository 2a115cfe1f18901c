"""Rows of messages as OpenAI's chat completions have them: ``messages``, or ``prompt`` and ``completion``.

The data sets of TRL and ``datasets``, Miles' ``trajectory_data`` (``miles/ray/rollout/debug_data.py``), and the files
that ``autotrace export --format sft`` writes have them. Everything else in a row is an attribute, except for the names
below.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotrace.foreign.calls import Calls
from autotrace.foreign.containers import Format, Row, names, validates
from autotrace.trajectory.model import Trajectory

REWARDS = ("reward", "score")
_FACTS = ("advantage", "reward_extra_info", "num_turns", "label", "label_why")
_SAME = {"group_index": "uid", "example_id": "sample_index", "id": "sample_index", "index": "sample_index"}
"""Names that others give an attribute."""


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    said = row.get("messages")
    if not isinstance(said, list):
        said = [*texts(row.get("prompt"), "user"), *texts(row.get("completion"), "assistant")]
    if not any(isinstance(message, dict) and isinstance(message.get("role"), str) for message in said):
        return
    calls = Calls("messages")
    last = calls.conversation(said, row["model"] if isinstance(row.get("model"), str) else None)
    if last is not None and isinstance(row.get("tools"), list):
        last.inputs["tools"] = row["tools"]
    rest = {name: value for name, value in row.items() if name not in {"messages", "prompt", "completion", "tools"}}
    facts: dict[str, Any] = {name: rest.pop(name) for name in _FACTS if name in rest}
    facts["reward"] = next((rest.pop(name) for name in REWARDS if rest.get(name) is not None), None)
    attributes = {_SAME.get(name, name): value for name, value in rest.items()}
    yield calls.trajectory({"validate": validates(path), **attributes}, facts)


def texts(value: Any, role: str) -> list[Any]:
    """Messages, or a text as a message of ``role``."""
    return value if isinstance(value, list) else [{"role": role, "content": value}] if isinstance(value, str) else []


FORMAT = Format(
    "messages", "rows of OpenAI's messages", (".jsonl", ".parquet"), names("messages", "prompt completion"), read
)
