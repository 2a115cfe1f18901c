"""Bytes of a trajectory: ``python -m benchmarks.volume FOLDER TURNS PROMPT RESPONSE`` prints them as JSON.

Each is set against what it would be if each token and each text were there once, in the same encoding: four bytes a
token in the spool; in the backends token ids as decimal text, and the text of the conversation and of the tools.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotrace.record import flusher, statements
from autotrace.run.info import RunInfo
from autotrace.ship.readers import of_run
from autotrace.sinks import payload, registry
from autotrace.sinks.mlflow.server import request
from autotrace.sinks.mlflow.spans import encode
from autotrace.trajectory.model import Trajectory
from benchmarks.measures import _copy
from benchmarks.subjects import Autotrace
from benchmarks.workload import TOOL_ANSWER, Agent

WORDS = 150_000


def main(folder: Path, turns: int, prompt: int, response: int) -> dict[str, dict[str, float]]:
    """Record one trajectory, read it back with its texts, and weigh it."""
    info = RunInfo(
        run_id="bench", created="2026-01-01T00:00:00+00:00", command=["bench"], host=os.uname().nodename, main_pid=0,
        backends=["jsonl"],
    )  # fmt: skip
    info.write(folder)
    agent = _recorded(folder, turns, prompt, response)
    index = of_run(folder)
    (row,) = index.select(roots=True)
    trajectory = index.load(row.trace_id)
    ids = agent.longest[: len(agent.prompts[-1]) + response]
    spool = sum(path.stat().st_size for path in (folder / "spool").iterdir())
    tools = turns * len(TOOL_ANSWER)
    found = {"spool": _weighed(spool, 4 * len(ids) + tools)}
    texts = sum(len(span.new_prompt_text or "") + len(span.response_text or "") for span in trajectory.llm_spans)
    once = len(payload.packed(ids)) + texts + tools
    os.environ.setdefault("WANDB_API_KEY", "x" * 40)
    for backend in ("mlflow", "weave"):
        size = registry.make(backend, info, folder, {}).size(trajectory)
        found[backend] = _weighed(size, once)
    found["mlflow server, on the wire"] = _weighed(len(_compressed(trajectory)), once)
    found["veRL's pattern"] = _weighed(_repeated(agent, ids), once)
    return found


def _weighed(size: int, once: int) -> dict[str, float]:
    return {"bytes": size, "once_bytes": once, "ratio": size / once}


def _recorded(folder: Path, turns: int, prompt: int, response: int) -> Agent:
    subject = Autotrace(folder)

    class Traced(Agent):
        pass

    for name, role in (("generate", "llm"), ("tool", "tool"), ("run", "trajectory")):
        setattr(Traced, name, subject.wrap(_copy(Agent.__dict__[name]), role))
    agent = Traced(turns, prompt, response, 0.0)
    statements.bind("tokenizer", _tokenizer(folder / "tokenizer"))
    asyncio.run(agent.run("uid-1", 1, 0))
    flusher.shutdown()
    return agent


def _tokenizer(folder: Path) -> Mapping[str, Any]:
    """A tokenizer whose tokens are four characters each, as English has them on average."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = {
        f"{letters[n // 36**3 % 36]}{letters[n // 36**2 % 36]}{letters[n // 36 % 36]}{letters[n % 36]}": n
        for n in range(WORDS)
    }
    folder.mkdir()
    model = {"type": "WordLevel", "vocab": words, "unk_token": "aaaa"}
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "model": model, "decoder": {"type": "Fuse"}, "added_tokens": []})
    )
    return {"path": str(folder)}


def _compressed(trajectory: Trajectory) -> bytes:
    return zlib.compress(request(encode(trajectory)).SerializeToString(), 1)


def _repeated(agent: Agent, ids: list[int]) -> int:
    """Every turn with its whole prompt and response, as ``rollout_trace_op`` logs them; without any text."""
    answers = [answer.token_ids for answer in agent.answers]
    return sum(len(payload.packed([*prompt, *said])) for prompt, said in zip(agent.prompts, answers, strict=True))


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
