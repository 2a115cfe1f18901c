"""Writes run folders as traced processes do, with whatever timing, death and damage a test wants."""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from array import array
from pathlib import Path
from typing import Any

import msgspec

from autotrace.record.token_prefixes import TokenLog
from autotrace.run import layout
from autotrace.run.info import RunInfo
from autotrace.spool.blobs import keep_tokenizer
from autotrace.spool.records import (
    FORMAT,
    MAGIC,
    Bind,
    Close,
    Counters,
    Define,
    Fact,
    Header,
    NewTokens,
    Open,
    Record,
    Report,
    Seal,
    TokenFacts,
)
from autotrace.spool.segment import frame

ROLES = {
    "trajectory": "AgentLoopWorker._run_agent_loop",
    "agent": "ToolAgentLoop.run",
    "llm": "LLMServerClient.generate",
    "engine": "vLLMHttpServer.generate",
    "tool": "ToolAgentLoop._call_tool",
    "parser": "HermesToolParser.extract_tool_calls",
    "reward": "compute_score",
    "trainer": "RayPPOTrainer.step",
    "span": "my.function",
}
BOOT = "b" * 8
_spans = itertools.count(1000)


def new_run(parent: Path, name: str = "run", **given: Any) -> Path:
    """A run folder whose first process is gone already (unless ``main_pid`` says otherwise)."""
    folder = parent / name
    folder.mkdir(mode=0o700)
    (folder / layout.SPOOL).mkdir()
    (folder / layout.BLOBS).mkdir()
    settings: dict[str, Any] = {
        "run_id": name,
        "created": "2026-11-21T06:00:00+00:00",
        "command": ["python", "train.py"],
        "host": os.uname().nodename,
        "main_pid": 0,
        "backends": ["jsonl"],
        "drain_timeout": 2.0,
    }
    RunInfo(**{**settings, **given}).write(folder)
    return folder


class Process:
    """A traced process: an own segment, its lock, a clock that ticks a millisecond per record."""

    def __init__(self, run: Path, name: str = "node-1-aa", *, run_id: str | None = None, boot: str = BOOT) -> None:
        self.run, self.name, self.run_id, self.boot = run, name, run_id or run.name, boot
        self.sequence = 0
        self.at = 1_000_000_000
        self.wall = 1_700_000_000_000_000_000
        self.logs: dict[bytes, TokenLog] = {}
        self.prompts: dict[int, Any] = {}
        self.fd = -1
        self._begin()

    def _begin(self) -> None:
        self.path = self.run / layout.SPOOL / f"{self.name}-{self.sequence}{layout.SEGMENT_SUFFIX}"
        self.fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        host, pid, _ = self.name.split("-")
        header = Header(
            FORMAT, self.run_id, host, int(pid), self.boot, "python train.py", "", self.wall, 0, self.sequence
        )
        os.write(self.fd, MAGIC)
        self.write(header, *(Define(n, f"key.{role}", name, role) for n, (role, name) in enumerate(ROLES.items())))

    def write(self, *records: Record) -> None:
        """Append records."""
        self.raw(b"".join(frame(msgspec.msgpack.encode(record)) for record in records))

    def raw(self, data: bytes) -> None:
        """Append bytes."""
        os.write(self.fd, data)

    def tick(self) -> int:
        """The next moment."""
        self.at += 1_000_000
        return self.at

    def open(self, trace: bytes, role: str, parent: int = 0, prompt: list[int] | None = None, **more: Any) -> int:
        """Begin a call; its span."""
        span = next(_spans)
        tokens: NewTokens | None = None
        if prompt is not None:
            log = self.logs.setdefault(trace, TokenLog(0))
            tokens, self.prompts[span] = log.prompt(prompt, more.pop("withheld", False))
        self.write(Open(span, trace, parent, list(ROLES).index(role), self.tick(), prompt=tokens, **more))
        return span

    def close(
        self, trace: bytes, span: int, response: list[int] | None = None, status: str = "OK", **more: Any
    ) -> None:
        """End a call."""
        tokens: NewTokens | None = None
        if response is not None:
            log = self.logs.setdefault(trace, TokenLog(0))
            tokens = log.response(self.prompts.get(span), response, more.pop("withheld", False))
        self.write(Close(span, trace, self.tick(), status, response=tokens, **more))

    def fact(self, name: str, value: Any, trace: bytes = b"", key: dict[str, Any] | None = None) -> None:
        """Say something about a trajectory."""
        self.write(Fact(trace, key, name, value, self.tick()))

    def token_facts(self, value: dict[str, bytes], key: dict[str, Any]) -> None:
        """Say what the trainer computed for the tokens of a response."""
        self.write(TokenFacts(key, value, self.tick()))

    def bind(self, name: str, **value: Any) -> None:
        """Say something about the run; with a copy of a tokenizer's folder, as a traced process makes one."""
        if name == "tokenizer" and "blob" not in value:
            value["blob"] = keep_tokenizer(self.run, str(value.get("path")))
        self.write(Bind(name, value, self.tick()))

    def report(self, key: str, state: str, reason: str = "") -> None:
        """Say what happened to a target."""
        self.write(Report(key, f"{key}:place", state, reason))

    def count(
        self, calls: dict[str, int], drops: dict[str, int], paths: dict[str, tuple[int, int]] | None = None
    ) -> None:
        """Write counters."""
        self.write(Counters(calls, drops, {}, self.tick(), paths or {}))

    def rotate(self) -> None:
        """Go on in the next segment."""
        self.end("rotate")
        self.begin_next()

    def begin_next(self) -> None:
        """Begin the next segment."""
        self.sequence += 1
        self._begin()

    def exit(self) -> None:
        """End as a process should."""
        self.end("exit")

    def end(self, reason: str) -> None:
        """End the segment."""
        self.write(Seal(reason, self.tick()))
        os.close(self.fd)

    def die(self) -> None:
        """End as by SIGKILL: nothing is written any more, the lock is free."""
        os.close(self.fd)
        old = time.time() - 10
        os.utime(self.path, (old, old))


def attributes(step: int = 1, rollout: int = 0, uid: str = "u0", **more: Any) -> dict[str, Any]:
    """A trajectory's identity."""
    return {
        "step": step,
        "sample_index": 7,
        "rollout_n": rollout,
        "session_id": rollout,
        "validate": False,
        "uid": uid,
        "data_source": "gsm8k",
        "project_name": "proj",
        "experiment_name": "exp",
        **more,
    }


PROMPT = [1, 2, 3, 4]
ANSWER = [10, 11, 12]
TOOL = [20, 21]
FINAL = [30, 31, 32, 33]


def trajectory(
    process: Process,
    *,
    reward: float | None = 1.0,
    trace: bytes | None = None,
    nested_tool: bool = False,
    **who: Any,
) -> bytes:
    """A trajectory as veRL makes it: agent, LLM, parser, tool, LLM; its trace id."""
    trace = trace or os.urandom(16)
    root = process.open(trace, "trajectory", inputs={"raw_prompt": [{"role": "user", "content": "2+2?"}]},
                        attributes=attributes(**who))  # fmt: skip
    agent = process.open(trace, "agent", root, inputs={"sampling_params": {"temperature": 1.0}})
    llm = process.open(trace, "llm", agent, PROMPT, attributes={"request_id": "r1"})
    process.close(trace, llm, ANSWER, output={"stop_reason": "completed"}, logprobs=array("f", [-0.5] * 3).tobytes())
    parser = process.open(trace, "parser", agent)
    process.close(trace, parser, output=["add"])
    tool = process.open(trace, "tool", agent, inputs={"tool_call": {"name": "add"}})
    if nested_tool:
        method = process.open(trace, "tool", tool)
        process.close(trace, method, output=4)
    process.close(trace, tool, output="4")
    second = process.open(trace, "llm", agent, PROMPT + ANSWER + TOOL, attributes={"request_id": "r1"})
    process.close(trace, second, FINAL)
    process.close(trace, agent, ANSWER + TOOL + FINAL, mask=bytes([1, 1, 1, 0, 0, 1, 1, 1, 1]))
    if reward is not None:
        process.fact("reward", reward, trace)
    process.close(trace, root)
    return trace


def tokens_of(data: list[int]) -> bytes:
    """As a record holds them."""
    return array("i", data).tobytes()
