"""Read rows of messages in OpenAI's chat-completions form: ``messages``, or ``prompt`` and ``completion``.

The data sets of TRL and ``datasets``, Miles' ``trajectory_data`` (``miles/ray/rollout/debug_data.py``), and the files
of ``autotrace export --format sft`` have such rows. Every other field of a row is an attribute, except for the names
below. The module also reads TRL's ``log_completions=True``: ``completions/completions_{step}.parquet``, a rollout a
row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from autotrace.foreign.collector import SpanCollector, listed
from autotrace.foreign.containers import Format, names, validates
from autotrace.foreign.opened import Row
from autotrace.trajectory.jsonable import number
from autotrace.trajectory.model import Trajectory

REWARDS = ("reward", "score")
_FACTS = ("advantage", "reward_extra_info", "num_turns", "label", "label_why")
_SAME = {"group_index": "uid", "example_id": "sample_index", "id": "sample_index", "index": "sample_index"}
"""Another project's name -> name of the attribute."""


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    said = row.get("messages")
    if not isinstance(said, list):
        said = prompt_and_completion(row)
    if not any(isinstance(message, dict) and isinstance(message.get("role"), str) for message in said):
        return
    calls = SpanCollector("messages")
    last = calls.conversation(said, row["model"] if isinstance(row.get("model"), str) else None)
    if last is not None and isinstance(row.get("tools"), list):
        last.inputs["tools"] = row["tools"]
    rest = {name: value for name, value in row.items() if name not in {"messages", "prompt", "completion", "tools"}}
    facts: dict[str, Any] = {name: rest.pop(name) for name in _FACTS if name in rest}
    facts["reward"] = next((rest.pop(name) for name in REWARDS if rest.get(name) is not None), None)
    attributes = {_SAME.get(name, name): value for name, value in rest.items()}
    yield calls.trajectory({"validate": validates(path), **attributes}, facts)


def read_completions(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``.

    TRL's columns are ``step``, ``prompt``, ``completion``, then a column for each reward function, the arguments of
    ``log_extra``, and ``advantage`` (TRL 1.16, ``trl/trainer/grpo_trainer.py``; earlier releases lack some). The file
    does not contain the weights of the functions: the reward of several functions is their sum, TRL's default.
    """
    calls = SpanCollector("trl")
    calls.conversation(prompt_and_completion(row))
    parts = {name: value for name, value in row.items() if name not in ("step", "prompt", "completion", "advantage")}
    known = [value for value in map(number, parts.values()) if value is not None and not math.isnan(value)]
    facts = {
        "reward": sum(known) if known else None, "advantage": row.get("advantage"),
        "reward_extra_info": parts if len(parts) > 1 else None,
    }  # fmt: skip
    yield calls.trajectory({"step": row.get("step")}, facts)


def prompt_and_completion(row: Row) -> list[Any]:
    """Return the messages in both fields; a text becomes a message."""
    said: list[Any] = []
    for name, role in (("prompt", "user"), ("completion", "assistant")):
        value = row.get(name)
        said += [{"role": role, "content": value}] if isinstance(value, str) else listed(value)
    return said


FORMAT = Format(
    "messages", "rows of OpenAI's messages", (".jsonl", ".parquet"), names("messages", "prompt completion"), read
)
COMPLETIONS = Format("trl", "TRL's completions", (".parquet",), names("step prompt completion"), read_completions)
