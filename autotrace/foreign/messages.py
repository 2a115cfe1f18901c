"""Read rows that contain a list of messages, in any spelling and under any name of ``spellings``.

The data sets of TRL and ``datasets``, Miles' ``trajectory_data`` (``miles/ray/rollout/debug_data.py``), ShareGPT, the
files of SWE-agent, mini-swe-agent, OpenHands, tau-bench, tau2, BFCL and Terminal-Bench, and the files of ``autotrace
export --format sft`` have such rows. Every other field of a row is an attribute, except for the names below. The module
also reads TRL's ``log_completions=True``: ``completions/completions_{step}.parquet``, a rollout a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from autotrace.foreign.collector import SpanCollector, listed, mapped, moment, objects
from autotrace.foreign.containers import BESIDE, TRIAL, Format, names, validates
from autotrace.foreign.opened import Row
from autotrace.foreign.spellings import SAID, messages, parsed, spoken
from autotrace.trajectory.jsonable import number
from autotrace.trajectory.model import Trajectory

_WITHIN = ("samples", "simulations", "results", "rollouts", "trajectories")
"""Names under which a file has a list of rows."""
_PROMPTS = (("prompt", "user"), ("instruction", "user"), ("completion", "assistant"), ("result", "assistant"))
_REWARDS = (
    "reward", "score", "reward_info.reward", "rewards.reward", "verifier_result.rewards.reward", "report.resolved",
    "test_result.report.resolved", "resolved", "is_resolved", "success",
)  # fmt: skip
"""Names of the reward, in the order of preference; a dot leads into an object."""
_FACTS = ("advantage", "reward_extra_info", "num_turns", "label", "label_why")
_SAME = {
    "group_index": "uid", "group_id": "uid", "example_id": "sample_index", "task_id": "sample_index",
    "instance_id": "sample_index", "index": "sample_index", "id": "sample_index", "trial": "rollout_n",
}  # fmt: skip
"""Another project's name -> name of the attribute. The first that a row has counts."""
_CONVERSATION = frozenset({*SAID, BESIDE, "prompt", "completion", "tools"})


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    name, is_traj, _ = path.rpartition("/")[2].partition(".traj")
    blocks = bool(is_traj) or "exit_status" in mapped(row, "info") or BESIDE in row  # SWE-agent, Terminal-Bench
    said = next((found for name in (*SAID, BESIDE) if (found := messages(spoken(row.get(name)), in_blocks=blocks))), [])
    if not (said := said or messages(prompt_and_completion(row))):
        for name in _WITHIN:
            for one in objects(row.get(name)):
                yield from read({**dict.fromkeys(_WITHIN), **one}, path)
        return
    calls = SpanCollector("messages", moment(row.get("agent_started_at")), moment(row.get("agent_ended_at")))
    if isinstance(mode := row.get("failure_mode"), str) and mode not in ("none", "unset"):
        calls.failed(mode)
    last = calls.conversation(said, row["model"] if isinstance(row.get("model"), str) else None)
    if last is not None and (tools := listed(parsed(row.get("tools")))):
        last.inputs["tools"] = tools
    rest = {name: value for name, value in row.items() if name not in _CONVERSATION and value is not None}
    attributes: dict[str, Any] = {"validate": validates(path), "id": rest.get("id") if BESIDE in row else None}
    facts: dict[str, Any] = {name: rest.pop(name) for name in _FACTS if name in rest}
    facts["reward"] = next((value for name in _REWARDS if (value := _at(row, name)) is not None), None)
    if is_traj and rest.keys().isdisjoint(_SAME):
        rest["instance_id"] = name  # SWE-agent has a file for each instance
    for name in dict.fromkeys([*_SAME, *rest]):
        if name in rest and name not in ("reward", "score"):
            attributes.setdefault(_SAME.get(name, name), rest[name])
    yield calls.trajectory(attributes, facts)


def _at(row: Row, name: str) -> Any:
    """Return the value at a name of ``_REWARDS``; None for an object."""
    *above, last = name.split(".")
    value = mapped(row, *above).get(last)
    return None if isinstance(value, (dict, list)) else float(value) if isinstance(value, bool) else value


def read_completions(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``.

    TRL's columns are ``step``, ``prompt``, ``completion``, then a column for each reward function, the arguments of
    ``log_extra``, and ``advantage`` (TRL 1.16, ``trl/trainer/grpo_trainer.py``; earlier releases lack some). The file
    does not contain the weights of the functions: the reward of several functions is their sum, TRL's default.
    """
    calls = SpanCollector("trl")
    calls.conversation(messages(prompt_and_completion(row)))
    parts = {name: value for name, value in row.items() if name not in ("step", "prompt", "completion", "advantage")}
    known = [value for value in map(number, parts.values()) if value is not None and not math.isnan(value)]
    facts = {
        "reward": sum(known) if known else None, "advantage": row.get("advantage"),
        "reward_extra_info": parts if len(parts) > 1 else None,
    }  # fmt: skip
    yield calls.trajectory({"step": row.get("step")}, facts)


def prompt_and_completion(row: Row) -> list[Any]:
    """Return the messages in both fields, also if the messages are JSON text; any other text becomes a message."""
    said: list[Any] = []
    for name, role in _PROMPTS:
        value = row.get(name)
        found = spoken(value)
        is_said = isinstance(value, str) or name == "result"  # BFCL's result is a text, or a list of calls
        said += [{"role": role, "content": value}] if value and is_said and not messages(found) else found
    return said


FORMAT = Format(
    "messages", "lists of messages", (".jsonl", ".parquet", ".json", ".traj"),
    (*names(*SAID, "prompt completion", "completion", "id result latency", *_WITHIN), TRIAL), read, certain=False,
    beside=("run_metadata.json",),
)  # fmt: skip
COMPLETIONS = Format("trl", "TRL's completions", (".parquet",), names("step prompt completion"), read_completions)
