"""A run as the shipper sees it, for questions: two steps, groups, tools that fail, engines that report."""

from __future__ import annotations

import math
import os
import struct
from array import array
from pathlib import Path
from typing import Any

from autotrace.spool.records import StepFacts
from autotrace.spool.token_facts import NUMBERS, SUMMARY, pack_summary
from tests.ship.spools import FINAL, PROMPT, TOOL, Process, attributes, new_run

ANSWER = [10, 11, 12]


def computed() -> dict[str, bytes]:
    """What the trainer computed for a response's tokens: the last differs by 1.5."""
    numbers = {"tokens": 7, "mismatch_mean": 0.25, "mismatch_max": 1.5, "mismatch_at": 8, "entropy": 0.5}
    columns = {"old_log_probs": [-0.5] * 8 + [-2.0], "rollout_log_probs": [-0.5] * 9}
    packed = {name: struct.pack("<9e", *values) for name, values in columns.items()}
    return {SUMMARY: pack_summary([numbers.get(name, math.nan) for name in NUMBERS]), **packed}


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
    if (who["uid"][0], who["rollout"]) == ("u", 0):
        process.token_facts(computed(), {"uid": who["uid"], "session_id": "0"})
    if not fails:
        process.fact("trained_in_step", who["step"] + 1, trace)
    process.close(trace, root)
    return trace


def recorded(parent: Path, name: str = "20261121-064412-3f9c1a", **given: Any) -> Path:
    """The folder of a finished run: per step one group with variance and one without."""
    folder = new_run(parent, name, **given)
    process = Process(folder, run_id=name)
    process.bind("config", project_name="proj")
    for step in (1, 2):
        process.write(StepFacts(step, "metrics", {"actor/entropy": step / 4, "length": 9.0}, process.tick()))
        process.write(StepFacts(step, "token_facts", {"actor/entropy": step / 4, "left": 0.0}, process.tick()))
        rollout(process, step=step, rollout=0, uid=f"u{step}", reward=1.0)
        rollout(process, step=step, rollout=1, uid=f"u{step}", reward=0.0, finish="length", fails=True)
        for number in (0, 1):
            rollout(process, step=step, rollout=number, uid=f"v{step}", reward=0.25)
    trace = process.open(b"t" * 16, "trainer", attributes={"step": 2})
    process.close(b"t" * 16, trace)
    process.exit()
    return folder
