"""Records of rollouts as traced processes write them, made quickly: for programs that fill spools or play relays."""

from __future__ import annotations

import hashlib
import itertools
import random
import time
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from autotrace.spool.records import FORMAT, MAGIC, Close, Define, Fact, Header, NewTokens, Open, Record, Seal
from autotrace.spool.segment import frame

ROLES = {
    "trajectory": "AgentLoopWorker._run_agent_loop",
    "llm": "LLMServerClient.generate",
    "tool": "WebSearch.execute",
}
TOOL_ANSWER = "A page of search results, as long as tools give them. " * 20


class Writer:
    """What one traced process writes: ``begin``, then ``rollout`` after ``rollout``, then ``end``; all give bytes to
    append to its segment ``name``. Each has ``2 * turns + 1`` calls."""

    def __init__(
        self, run_id: str, host: str, pid: int, *, boot: str = "boot",
        turns: int = 20, prompt: int = 1_000, response: int = 256, tool: int = 100,
    ) -> None:  # fmt: skip
        """``prompt``, ``response``, ``tool``: tokens of the first prompt, of each response, of each tool's answer."""
        self.name = f"{host}-{pid}-{random.getrandbits(32):08x}-0.seg"
        self._header = Header(
            FORMAT, run_id, host, pid, boot, "ray::AgentLoopWorker", "", time.time_ns(), time.monotonic_ns()
        )
        self._turns = turns
        self._draw = random.Random(self.name)
        self._prompt, self._answer, self._tool = (self._ids(length) for length in (prompt, response, tool))
        self._logprobs = array("f", [-0.5] * response).tobytes()
        self._encode = msgspec.msgpack.Encoder().encode
        self._spans = itertools.count(self._draw.getrandbits(62))

    def _ids(self, length: int) -> bytes:
        return array("i", [self._draw.randrange(150_000) for _ in range(length)]).tobytes()

    @property
    def spans(self) -> int:
        """Calls of one rollout."""
        return 2 * self._turns + 1

    def begin(self) -> bytes:
        """The head of the segment."""
        defines = (Define(n, f"key.{role}", name, role) for n, (role, name) in enumerate(ROLES.items()))
        return MAGIC + self._framed(self._header, *defines)

    def end(self) -> bytes:
        """Its end, as by a process that exits."""
        return self._framed(Seal("exit", time.monotonic_ns()))

    def rollout(self, step: int, uid: str, number: int) -> Iterator[bytes]:
        """One rollout, a turn at a time: the first piece opens it, the last one closes it and reports its reward."""
        trace = self._draw.getrandbits(128).to_bytes(16, "big")
        root = next(self._spans)
        who = {
            "step": step, "sample_index": uid, "rollout_n": number, "session_id": number, "validate": False, "uid": uid,
            "project_name": "bench", "experiment_name": "scale",
        }  # fmt: skip
        start = Open(root, trace, 0, 0, time.monotonic_ns(), {"raw_prompt": "Find it."}, who)
        sequences, sequence = hashlib.blake2b(digest_size=16), -1
        total, new, head = 0, self._prompt, self._framed(start)
        for _ in range(self._turns):
            records: list[Record] = []
            for role, data, extra in ((1, new, {}), (2, b"", {"inputs": {"query": "what was asked"}})):
                span, tokens, answered = next(self._spans), None, None
                if role == 1:
                    tokens, total, sequence = _added(sequences, data, total, sequence)
                records.append(Open(span, trace, root, role, time.monotonic_ns(), prompt=tokens, **extra))
                if role == 1:
                    answered, total, sequence = _added(sequences, self._answer, total, sequence)
                    records.append(
                        Close(span, trace, time.monotonic_ns(), "OK", {"stop_reason": "completed"}, response=answered,
                              logprobs=self._logprobs)
                    )  # fmt: skip
                else:
                    records.append(Close(span, trace, time.monotonic_ns(), "OK", TOOL_ANSWER))
            new = self._tool
            yield head + self._framed(*records)
            head = b""
        reward: Any = self._draw.random()
        yield self._framed(
            Fact(trace, None, "reward", reward, time.monotonic_ns()), Close(root, trace, time.monotonic_ns(), "OK")
        )

    def _framed(self, *records: Record) -> bytes:
        return b"".join([frame(self._encode(record)) for record in records])


def _added(hasher: Any, data: bytes, total: int, sequence: int) -> tuple[NewTokens, int, int]:
    """``data`` behind the ``total`` tokens of ``sequence``: the record, the new total and sequence."""
    hasher.update(data)
    after = total + len(data) // 4
    return NewTokens(sequence, total, data, after, hasher.digest()[:8], sequence + 1), after, sequence + 1
