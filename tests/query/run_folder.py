"""A run as the shipper sees it, for questions: two steps, groups, tools that fail, engines that report."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import Any

from tests.ship.spools import FINAL, PROMPT, TOOL, Process, attributes, new_run

ANSWER = [10, 11, 12]


def rollout(process: Process, *, reward: float | None, finish: str = "stop", fails: bool = False, **who: Any) -> bytes:
    """Agent, LLM, tool, LLM, with what an engine and a trainer report."""
    trace = os.urandom(16)
    root = process.open(
        trace, "trajectory", attributes=attributes(**who), inputs={"reward_model": {"ground_truth": "4"}}
    )
    agent = process.open(trace, "agent", root)
    llm = process.open(trace, "llm", agent, PROMPT, attributes={"request_id": "r1", "weight_version": who["step"] - 1})
    engine = process.open(trace, "engine", llm)
    figures = {"ttft_s": 0.5, "queue_s": 0.25, "prefill_s": 0.25, "decode_s": 1.0, "finish_reason": "stop"}
    process.close(trace, engine, attributes=figures)
    process.close(trace, llm, ANSWER, logprobs=array("f", [-0.5] * 3).tobytes(), attributes={"cached_tokens": 2})
    tool = process.open(trace, "tool", agent, attributes={"tool_name": "search"})
    error = ("TimeoutError", "no answer from the index", "Traceback ...") if fails else None
    process.close(trace, tool, status="ERROR" if fails else "OK", error=error, output="4")
    second = process.open(trace, "llm", agent, PROMPT + ANSWER + TOOL, attributes={"weight_version": who["step"]})
    process.close(trace, second, FINAL, attributes={"finish_reason": finish, "cached_tokens": 7})
    process.close(trace, agent, ANSWER + TOOL + FINAL, mask=bytes([1, 1, 1, 0, 0, 1, 1, 1, 1]))
    if reward is not None:
        process.fact("reward", reward, trace)
        process.fact("reward_extra_info", {"acc": reward > 0.5, "format": float(reward > 0.5)}, trace)
        process.fact("advantage", reward - 0.5, trace)
    if not fails:
        process.fact("trained_in_step", who["step"] + 1, trace)
    process.close(trace, root)
    return trace


def recorded(parent: Path, name: str = "20261121-064412-3f9c1a", **given: Any) -> Path:
    """The folder of a finished run: per step one group with variance and one without."""
    folder = new_run(parent, name, **given)
    process = Process(folder, run_id=name)
    for step in (1, 2):
        rollout(process, step=step, rollout=0, uid=f"u{step}", reward=1.0)
        rollout(process, step=step, rollout=1, uid=f"u{step}", reward=0.0, finish="length", fails=True)
        for number in (0, 1):
            rollout(process, step=step, rollout=number, uid=f"v{step}", reward=0.25)
    trace = process.open(b"t" * 16, "trainer", attributes={"step": 2})
    process.close(b"t" * 16, trace)
    process.exit()
    return folder
