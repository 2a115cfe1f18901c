"""Read Harbor's Agent Trajectory Interchange Format (ATIF) 1.0 to 1.8, a trajectory a file, or a line, and job folders.

``harbor/models/trajectories`` of Harbor 0.25: ``steps`` of ``source`` system, user or agent; an agent's step has
``tool_calls``, and their results in ``observation``. Sub-agents within the file become separate trajectories. A trial
(``harbor/models/trial`` of 0.26) has ``result.json``, and ``agent/trajectory.json`` if the agent wrote a trajectory.
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
    if "agent_info" in row:  # the result of a trial
        row = {**mapped(row, BESIDE), BESIDE: {**row, BESIDE: None}}
    version, steps, trial = row.get("schema_version"), objects(row.get("steps")), mapped(row, BESIDE)
    if not (str(version).startswith("ATIF") if steps else "agent_info" in trial):
        return
    stamps = [step.get("timestamp") for step in steps] or [trial.get("started_at"), trial.get("finished_at")]
    times = [at for at in map(moment, stamps) if at is not None]
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
    agent = agent or mapped(trial, "agent_info")
    attributes |= {"agent_name": agent.get("name"), "session_id": row.get("session_id")}
    attributes |= {"id": trial.get("id"), "trial_name": trial.get("trial_name")}
    attributes["sample_index"] = attributes["sample_index"] or trial.get("task_name")
    judged, failure = mapped(trial, "verifier_result", "rewards"), mapped(trial, "exception_info")
    if failure:
        calls.failed(*(failure.get(f"exception_{name}") for name in ("type", "message", "traceback")))
    reward = more.get("reward", judged.get("reward", next(iter(judged.values()), None)))
    facts = {"reward": reward, "reward_extra_info": judged if len(judged) > 1 else None, **mapped(extra, "facts")}
    yield calls.trajectory(attributes, facts)
    for number, sub in enumerate(objects(row.get("subagent_trajectories"))):
        own = {"id": f"{trial['id']} {number}"} if "id" in trial else {}
        yield from read({**sub, "subagent_trajectories": None, BESIDE: own}, path)


IDENTITY = ("project_name", "experiment_name", "step", "sample_index", "rollout_n", "validate", "uid", "data_source")
"""Names that autotrace's own export puts into ``extra``."""


def _count(calls: SpanCollector, turn: Span, metrics: dict[str, Any]) -> None:
    """Set the token ids of a step, else the numbers of tokens."""
    turn.prompt_tokens, turn.response_tokens = (integer(metrics.get(n)) for n in ("prompt_tokens", "completion_tokens"))
    prompt, response = (token_ids(metrics.get(name)) for name in ("prompt_token_ids", "completion_token_ids"))
    calls.ids(turn, prompt, response, metrics.get("logprobs"))


FORMAT = Format(
    "atif", "ATIF trajectories", (".json", ".jsonl"), names("schema_version agent steps", "trial_name agent_info"),
    read, beside=("result.json", "config.json", "lock.json", "reward.json", "ctrf.json", "manifest.json"),
)  # fmt: skip
