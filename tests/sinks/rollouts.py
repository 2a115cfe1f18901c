"""Trajectories as the collector hands them to a sink: a GRPO group of two, each with two turns and a tool call."""

from __future__ import annotations

import hashlib
from typing import Any

from autotrace.run.info import RunInfo
from autotrace.trajectory.model import Span, Trajectory

START = 1_795_000_000_123_456_789
SECOND = 1_000_000_000


def info(**known: Any) -> RunInfo:
    """A run as the launcher writes it down."""
    given: dict[str, Any] = {"run_id": "20261121-1", "created": "2026-11-21T06:00:00+00:00", "command": ["python"]}
    return RunInfo(**(given | {"host": "node-1", "main_pid": 1, "backends": ["weave"]} | known))


def hex_id(*words: object, digits: int = 16) -> str:
    """A stable id for a test's span or trace."""
    return hashlib.sha256("/".join(map(str, words)).encode()).hexdigest()[:digits]


def trajectory(
    step: int = 3, sample: int = 17, rollout: int = 0, reward: float | None = None, prompt: str = "What is 6 times 7?"
) -> Trajectory:
    """Prompt, tool call, tool result, answer."""
    trace = hex_id("trace", step, sample, rollout, digits=32)

    def span(name: str, role: str, parent: str | None, begin: float, end: float, **rest: Any) -> Span:
        id = hex_id(trace, name, begin)
        at = START + int(begin * SECOND)
        made = Span(id, parent, name, role, f"verl.{name}", at, START + int(end * SECOND), "OK", host="node-1", pid=77)
        for field, value in rest.items():
            setattr(made, field, value)
        return made

    first, second = list(range(1000, 1040)), list(range(2000, 2012))
    said, answer = list(range(3000, 3060 + rollout)), list(range(4000, 4020))
    call = '<tool_call>{"name": "multiply", "arguments": {"a": 6, "b": 7}}</tool_call>'
    root = span("AgentLoopWorker._run_agent_loop", "trajectory", None, 0, 9, inputs={"sampling_params": {"top_p": 1.0}})
    agent = span(
        "ToolAgentLoop.run", "agent", root.span_id, 0.5, 8.5, output={"type": "AgentLoopOutput", "num_turns": 4}
    )
    agent.response_ids = [*said, *second, *answer]
    agent.response_mask = [1] * len(said) + [0] * len(second) + [1] * len(answer)
    agent.prompt_text = f"<|im_start|>user\n{prompt}<|im_end|>\n"
    agent.response_text = f"{call}<|im_start|>tool\n42<|im_end|>\nIt is 42, rollout {rollout}.<|im_end|>"
    one = span("LLMServerClient.generate", "llm", agent.span_id, 1, 3, prompt_ids=first, new_prompt_ids=first)
    one.response_ids, one.logprobs = said, [-0.25] * len(said)
    one.old_logprobs, one.entropy = [-0.5] * len(said), [0.75] * len(said)
    one.new_prompt_text, one.response_text = agent.prompt_text, call
    one.messages = [
        {"role": "user", "content": prompt},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call-1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}}
            ],
        },
    ]
    one.attributes = {"request_id": "r-1", "weight_version": 2, "stop_reason": "stop", "cached_tokens": 16}
    one.inputs = {"sampling_params": {"temperature": 1.0, "max_tokens": 512}}
    tool = span("ToolAgentLoop._call_tool", "tool", agent.span_id, 3.5, 4.5, attributes={"tool_name": "multiply"})
    tool.inputs, tool.output = {"tool_call": {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}}, ["42", 0.0, {}]
    two = span("LLMServerClient.generate", "llm", agent.span_id, 5, 8, prompt_ids=first + said + second)
    two.new_prompt_ids, two.response_ids = second, answer
    two.prompt_base, two.prompt_keep = one.span_id, len(first) + len(said)
    two.new_prompt_text, two.response_text = (
        "<|im_start|>tool\n42<|im_end|>\n",
        f"It is 42, rollout {rollout}.<|im_end|>",
    )
    two.attributes = {"request_id": "r-1", "weight_version": 2, "stop_reason": "stop"}
    made = Trajectory(trace, "20261121-1", [root, agent, one, tool, two])
    made.attributes = {
        "step": step,
        "sample_index": sample,
        "rollout_n": rollout,
        "validate": False,
        "uid": f"uid-{sample}",
        "data_source": "gsm8k",
        "agent_name": "tool_agent",
        "experiment_name": "exp-a",
        "project_name": "rl",
        "attempt": 1,
    }
    if reward is not None:
        made.facts = {"reward": reward, "reward_extra_info": {"acc": reward > 0}, "num_turns": 4}
    return made


def group(step: int = 3, sample: int = 17, rewards: tuple[float | None, ...] = (1.0, 0.0)) -> list[Trajectory]:
    """The rollouts of one prompt."""
    return [trajectory(step, sample, rollout, reward) for rollout, reward in enumerate(rewards)]
