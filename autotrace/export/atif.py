"""Write ``atif``, the Agent Trajectory Interchange Format of Harbor, version 1.7: a JSON file for each trajectory.

``{step}/{trace_id}.json``, or lines of a named file. A step of source ``agent`` is an LLM call, with tokens,
log-probabilities and the results of the called tools; a message that a later prompt brought is a step of source
``user`` or ``system``. Each call has its whole prompt in ``metrics.prompt_token_ids``, as the format requires.
Sub-agents are embedded trajectories; the step that waited for a sub-agent refers to the embedded trajectory.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from autotrace.export.conversation import Message, conversation_of, offered_tools
from autotrace.export.format import Row, Written, write_lines
from autotrace.trajectory.chains import SUB_AGENT, Chain, Tree, tree_of
from autotrace.trajectory.jsonable import integer, jsonable, known
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.receipt import is_row
from autotrace.trajectory.span_text import one_line

VERSION = "ATIF-v1.7"
_IDENTITY = (
    "project_name", "experiment_name", "step", "sample_index", "rollout_n", "validate", "uid", "data_source", "attempt",
)  # fmt: skip

Step = dict[str, Any]


def write(trajectories: Iterable[Trajectory], out: str) -> Written:
    """See ``format.Write``."""
    return write_lines(trajectories, out, row_of, one_file=True)


def row_of(trajectory: Trajectory) -> Row | str:
    """Return the file name and the value, or the reason why the trajectory cannot be exported. The value has no field
    that is None."""
    agents, tools = _steps(trajectory)
    steps = agents.pop(None, [])
    if not steps:
        return "no LLM call was recorded"
    outermost = next((span for span in trajectory.spans if span.role == "agent" and not is_row(span)), trajectory.root)
    named = trajectory.attributes.get("agent_name") if outermost is trajectory.root else None
    agent = {
        "name": named if isinstance(named, str) else outermost.name, "version": "unknown",
        "model_name": _model(trajectory), "tool_definitions": tools,
    }  # fmt: skip
    value = {
        **_of_agent(trajectory, trajectory.trace_id, agent, steps),
        "subagent_trajectories": [
            _of_agent(trajectory, _sub_agent_id(trajectory, chain), {"name": SUB_AGENT, "version": "unknown"}, own)
            for chain, own in agents.items()
            if chain is not None
        ]
        or None,
        "notes": "\n".join(trajectory.notes) or None,
        "final_metrics": _totals(trajectory, len(steps)),
        "extra": {
            **{name: trajectory.attributes[name] for name in _IDENTITY if trajectory.attributes.get(name) is not None},
            "status": trajectory.status,
            "facts": trajectory.facts,
            **({} if trajectory.root.error is None else {"error": trajectory.root.error_text}),
        },
    }
    number = integer(trajectory.attributes.get("step"))
    return f"{'no-step' if number is None else number}/{trajectory.trace_id}.json", jsonable(known(value))


def _of_agent(trajectory: Trajectory, id: str, agent: dict[str, Any], steps: list[Step]) -> dict[str, Any]:
    return {
        "schema_version": VERSION,
        "session_id": trajectory.run_id,
        "trajectory_id": id,
        "agent": known(agent),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
    }


def _sub_agent_id(trajectory: Trajectory, chain: int) -> str:
    return f"{trajectory.trace_id}-{chain}"


def _steps(trajectory: Trajectory) -> tuple[dict[int | None, list[Step]], list[dict[str, Any]] | None]:
    """Return the steps of the agent (None) and of each sub-agent (the chain with which the sub-agent begins), without
    step numbers, and the offered tools. The step that waits for a sub-agent refers to the sub-agent."""
    agents: dict[int | None, list[Step]] = {None: []}
    made: dict[int, Step] = {}
    tools = None
    offered = offered_tools(trajectory)
    tree = tree_of(trajectory)
    for turn, span in enumerate(trajectory.llm_spans, 1):
        steps = agents.setdefault(_sub_agent(tree, turn), [])
        said = conversation_of(span, offered[turn - 1])
        if said is not None:
            tools = tools or said.tools
            _add_prompt(steps, _news(said.messages[:-1]), span)
        answer = {"content": ""} if said is None else said.messages[-1]
        made[turn] = _agent_step(span, answer, turn, tree)
        steps.append(made[turn])
    for number in (number for number in agents if number is not None):
        if (caller := made.get(tree.chains[number].after)) is not None:
            results = caller.setdefault("observation", {"results": []})["results"]
            result = next((one for one in results if "subagent_trajectory_ref" not in one), None)
            if result is None:
                results.append(result := {})
            result["subagent_trajectory_ref"] = [{"trajectory_id": _sub_agent_id(trajectory, number)}]
    return agents, tools


def _sub_agent(tree: Tree, turn: int) -> int | None:
    """Return the chain with which the turn's sub-agent begins; None: the turn belongs to the agent itself."""
    chain: Chain | None = tree.chains[tree.of[turn]]
    for _ in tree.chains:
        if chain is None or chain.kind == SUB_AGENT:
            break
        chain = None if chain.parent is None else tree.chains[chain.parent]
    return None if chain is None else chain.number


def _news(prompt: list[Message]) -> list[Message]:
    """Return the new messages of a prompt: messages after the model's last message, or all messages before an
    answer."""
    said = [number for number, message in enumerate(prompt) if message["role"] == "assistant"]
    return prompt[said[-1] + 1 :] if said else prompt


def _add_prompt(steps: list[Step], messages: list[Message], span: Span) -> None:
    """Add messages of a prompt: tool results belong to the calling step, other messages become steps."""
    caller = next((step for step in reversed(steps) if step["source"] == "agent"), None)
    waiting = [call["tool_call_id"] for call in (caller or {}).get("tool_calls", [])]
    for message in messages:
        if message["role"] == "tool" and caller is not None:
            results = caller.setdefault("observation", {"results": []})["results"]
            asked = waiting[len(results)] if len(results) < len(waiting) else None
            results.append(known({"source_call_id": asked, "content": _text(message.get("content"))}))
            continue
        source = "system" if message["role"] in ("system", "developer") else "user"
        step: Step = {"timestamp": _time(span.start_ns), "source": source, "message": _text(message.get("content"))}
        if message["role"] not in ("system", "user"):
            step["extra"] = {"role": message["role"]}
        if caller is not None and source == "system":  # the context begins anew
            step["is_copied_context"] = True
        steps.append(step)


def _agent_step(span: Span, answer: Message, turn: int, tree: Tree) -> Step:
    reasoning, message = _thought(_text(answer.get("content")))
    calls = [
        {
            "tool_call_id": f"call_{turn}_{number}",
            "function_name": call["function"]["name"],
            "arguments": _arguments(call["function"]["arguments"]),
        }
        for number, call in enumerate(answer.get("tool_calls") or [])
    ]
    metrics = known({
        "prompt_tokens": span.prompt_tokens,
        "completion_tokens": span.response_tokens,
        "prompt_token_ids": span.prompt_ids,
        "completion_token_ids": span.response_ids,
        "logprobs": span.logprobs,
    })  # fmt: skip
    extra = {
        "span_id": span.span_id, "status": span.status, "duration_ns": span.duration_ns, "error": span.error_text,
        "chain": tree.of[turn] if len(tree.chains) > 1 else None,
    }  # fmt: skip
    return known({
        "timestamp": _time(span.start_ns),
        "source": "agent",
        "message": message,
        "reasoning_content": answer.get("reasoning_content") or reasoning,
        "tool_calls": calls or None,
        "metrics": metrics or None,
        "llm_call_count": 1,
        "extra": known(extra),
    })  # fmt: skip


def _thought(content: str) -> tuple[str | None, str]:
    """Split a model's text into reasoning and the rest; the template may have written the mark that begins the
    reasoning."""
    before, mark, after = content.partition("</think>")
    if not mark:
        return None, content
    return before.strip().removeprefix("<think>").strip(), after.lstrip("\n")


def _arguments(arguments: Any) -> dict[str, Any]:
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def _text(content: Any) -> str:
    """Return a message's content as text; parts without text become JSON."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "\n".join(
            part if isinstance(part, str) else one_line(whole) for part, whole in zip(parts, content, strict=True)
        )
    return "" if content is None else one_line(content)


def _model(trajectory: Trajectory) -> str | None:
    for span in trajectory.llm_spans:
        named = span.inputs.get("model") or span.attributes.get("model")
        if isinstance(named, str):
            return named
    return None


def _totals(trajectory: Trajectory, steps: int) -> dict[str, Any]:
    prompts = [span.prompt_tokens for span in trajectory.llm_spans if span.prompt_tokens is not None]
    responses = [span.response_tokens for span in trajectory.llm_spans if span.response_tokens is not None]
    reward = trajectory.facts.get("reward")
    return known({
        "total_prompt_tokens": sum(prompts) if prompts else None,
        "total_completion_tokens": sum(responses) if responses else None,
        "total_steps": steps,
        "extra": None if reward is None else {"reward": reward},
    })  # fmt: skip


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, timezone.utc).isoformat()
