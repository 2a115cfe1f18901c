"""Read Harbor's Agent Trajectory Interchange Format (ATIF) 1.0 to 1.8: a trajectory a file, or a line.

``harbor/models/trajectories`` of Harbor 0.25: ``steps`` of ``source`` system, user or agent; an agent's step has
``tool_calls``, and their results in ``observation``. Sub-agents within the file become separate trajectories.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotrace.foreign.collector import SpanCollector, mapped, moment, objects, plain, token_ids
from autotrace.foreign.containers import BESIDE, Format, names
from autotrace.foreign.opened import Row
from autotrace.trajectory.jsonable import integer
from autotrace.trajectory.markup import Message
from autotrace.trajectory.model import Span, Trajectory


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    version, steps = row.get("schema_version"), objects(row.get("steps"))
    if not isinstance(version, str) or not version.startswith("ATIF") or not steps:
        return
    times = [at for step in steps if (at := moment(step.get("timestamp"))) is not None]
    agent = mapped(row, "agent")
    calls = SpanCollector("atif", min(times, default=None), max(times, default=None))
    said: list[Message] = []
    for step in steps:
        role = {"agent": "assistant"}.get(str(step.get("source")), step.get("source"))
        given = {**step, "role": role, "content": step.get("message")}
        if (message := plain(given)) is None:
            continue
        said.append(message)
        if role == "assistant" and step.get("llm_call_count") != 0:
            model = step.get("model_name") or agent.get("model_name")
            at = moment(step.get("timestamp"))
            turn = calls.turn(said, model if isinstance(model, str) else None, start_ns=at)
            if turn is not None:
                _count(calls, turn, mapped(step, "metrics"))
        for result in objects(mapped(step, "observation").get("results")):
            answer = plain({**result, "role": "tool", "tool_call_id": result.get("source_call_id")})
            if answer is not None:
                said.append(answer)
                calls.result(answer)
    extra, more = mapped(row, "extra"), mapped(row, "final_metrics", "extra")
    attributes = {name: extra.get(name) for name in IDENTITY}
    attributes |= {"agent_name": agent.get("name"), "session_id": row.get("session_id")}
    judged = mapped(row, BESIDE, "verifier_result", "rewards")  # a trial of Harbor
    attributes["sample_index"] = attributes["sample_index"] or mapped(row, BESIDE).get("task_name")
    reward = more.get("reward", judged.get("reward", next(iter(judged.values()), None)))
    facts = {"reward": reward, "reward_extra_info": judged if len(judged) > 1 else None, **mapped(extra, "facts")}
    yield calls.trajectory(attributes, facts)
    for sub in objects(row.get("subagent_trajectories")):
        yield from read({**sub, "subagent_trajectories": None}, path)


IDENTITY = ("project_name", "experiment_name", "step", "sample_index", "rollout_n", "validate", "uid", "data_source")
"""Names that autotrace's own export puts into ``extra``."""


def _count(calls: SpanCollector, turn: Span, metrics: dict[str, Any]) -> None:
    """Set the token ids of a step, else the numbers of tokens."""
    turn.prompt_tokens, turn.response_tokens = (integer(metrics.get(n)) for n in ("prompt_tokens", "completion_tokens"))
    prompt, response = (token_ids(metrics.get(name)) for name in ("prompt_token_ids", "completion_token_ids"))
    calls.ids(turn, prompt, response, metrics.get("logprobs"))


FORMAT = Format("atif", "ATIF trajectories", (".json", ".jsonl"), names("schema_version agent steps"), read)
