"""Fills a run folder: ``python -m benchmarks.spool_program FOLDER TRAJECTORIES TURNS PROMPT RESPONSE TOOL [STEP]``.

Trajectories as an agentic run has them: a prompt that grows by the response (with log-probabilities) and the tool's
answer, a reward, and a tokenizer to decode it all with. ``TURNS`` 0: traces of one LLM call each and nothing else, also
no tokenizer (what it takes to load one is not what is looked for there).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotrace.record import flusher, statements
from autotrace.run.info import RunInfo
from benchmarks.measures import _copy
from benchmarks.subjects import AutotraceLogprobs
from benchmarks.workload import TOOL_ANSWER, TokenOutput

WORDS = 20_000
"""Words of the vocabulary, four letters each; behind them what a chat template writes."""
TEMPLATE = ("<|im_start|>", "<|im_end|>", "system", "user", "assistant", "tool", "\u010a")
BEGIN, END, SYSTEM, USER, ASSISTANT, TOOL, NEWLINE = range(WORDS, WORDS + len(TEMPLATE))
GROUP, STEP = 16, 512 * 16
"""Rollouts of a prompt, and of a step unless its number is given: a step of today's agentic runs."""


class Rollout:
    """One trajectory: what the model read and said. The system prompt is that of all, the question that of its
    group, or findings would rightly have much to say."""

    def __init__(self, seed: int, turns: int, prompt: int, response: int, tool: int) -> None:
        words, group, run = random.Random(seed), random.Random(-1 - seed // GROUP), random.Random("run")

        def said(role: int, length: int, by: random.Random = words) -> list[int]:
            return [BEGIN, role, NEWLINE, *by.choices(range(WORDS), k=max(1, length - 5)), END, NEWLINE]

        invited = [BEGIN, ASSISTANT, NEWLINE]
        ids = [*said(SYSTEM, prompt // 2, run), *said(USER, prompt - prompt // 2 - len(invited), group), *invited]
        self.prompts: list[list[int]] = []
        self.answers: list[TokenOutput] = []
        for _ in range(max(1, turns)):
            answer = [*words.choices(range(WORDS), k=response - 1), END]
            self.prompts.append(list(ids))
            self.answers.append(TokenOutput(answer, [-words.random() for _ in answer]))
            ids += [*answer, NEWLINE, *said(TOOL, tool - 4), *invited]

    async def generate(self, turn: int, request_id: str, prompt_ids: list[int], sampling_params: Any) -> TokenOutput:
        return self.answers[turn]

    async def tool(self, name: str, arguments: dict[str, Any]) -> str:
        return TOOL_ANSWER[:128]

    async def run(self, uid: str, step: int, rollout_n: int) -> None:
        sampling = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 1024, "stop_token_ids": [1, 2]}
        for turn, ids in enumerate(self.prompts):
            await self.generate(turn, uid, prompt_ids=ids, sampling_params=sampling)
            await self.tool("search", {"query": "books about the sea", "turn": turn, "top_k": 3})
        statements.fact("reward", {"score": float(rollout_n % 2), "format": 1.0})


def main(folder: Path, trajectories: int, turns: int, prompt: int, response: int, tool: int, step: int = STEP) -> None:
    """Record them as if they had been rolled out, and describe the run."""
    RunInfo(
        run_id="bench", created="2026-01-01T00:00:00+00:00", command=["bench"], host=os.uname().nodename, main_pid=0,
        backends=["jsonl"], project="bench", drain_timeout=5.0,
    ).write(folder)  # fmt: skip
    subject = AutotraceLogprobs(folder)

    class Traced(Rollout):
        pass

    for name, role in (("generate", "llm"), ("tool", "tool"), ("run", "trajectory")):
        setattr(Traced, name, subject.wrap(_copy(Rollout.__dict__[name]), role))
    if turns:
        statements.bind("tokenizer", _tokenizer(folder / "tokenizer"))

    async def run() -> None:
        for number in range(trajectories):
            rollout = Traced(number, turns, prompt, response, tool)
            if turns:
                await rollout.run(f"uid-{number // GROUP}", number // step, number % GROUP)
            else:
                await rollout.generate(0, str(number), prompt_ids=rollout.prompts[0], sampling_params={})
            if number % (max(1, 160 // turns) if turns else 256) == 0:
                subject.settle()

    asyncio.run(run())
    flusher.shutdown()
    if subject.about()["drops"]:
        sys.exit(f"not everything was recorded: {subject.about()['drops']}")
    size = sum(path.stat().st_size for path in (folder / "spool").iterdir())
    print(json.dumps({"spans": trajectories * (1 + 2 * turns), "spool_mb": size / 1e6, **subject.about()}))


def _tokenizer(folder: Path) -> Mapping[str, Any]:
    """One of the kind that today's models have: bytes as letters, special tokens for the chat template."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"\u0120{letters[n // 26**2 % 26]}{letters[n // 26 % 26]}{letters[n % 26]}" for n in range(26**3)]
    words += [f"{word[1:]}s" for word in words]
    vocabulary = {word: number for number, word in enumerate([*words[:WORDS], *TEMPLATE])}
    special = [
        {"id": WORDS + number, "content": TEMPLATE[number], "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for number in (0, 1)
    ]  # fmt: skip
    whole = {
        "version": "1.0",
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "added_tokens": special,
    }
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return {"path": str(folder)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
