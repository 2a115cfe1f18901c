"""veRL's own agent loop with an engine that answers from a script: ``python -m benchmarks.rollout_program MODE FOLDER
SECONDS PROMPTS`` (seconds of thinking, a turn).

Prints wall, CPU and main thread's seconds of the rollout as JSON. Everything but the two ends is veRL's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "verl_loop"))
ROLLOUTS = 8


def script(conversation: str, turn: int) -> str:
    """Two tool calls, then an answer."""
    if turn < 2:
        return "Let me look. " * 20 + '<tool_call>{"name": "stock", "arguments": {"item": "plums"}}</tool_call>'
    return "I have seen enough of it. " * 20 + "#### 7"


def trace(folder: Path) -> None:
    """Record with the shipped lists, before veRL is imported."""
    from autotrace.adapters import registry
    from autotrace.spec.compiler import compile_plan

    registry.start(compile_plan(), str(folder), "bench")


def engine(in_process: Any, tokenizer: Any) -> Any:
    """The scripted engine, whose answers take from half to one and a half times ``thinks`` seconds: the same in every
    run, as the n-th answer to a prompt always takes as long."""

    class Engine(in_process.ScriptedServer):  # type: ignore[misc]
        thinks = 0.0

        async def _generate(self, request_id: str, prompt_ids: list[int], **options: Any) -> Any:
            prompt = hash(tuple(prompt_ids))
            asked[prompt] += 1
            await asyncio.sleep(self.thinks * Random(prompt + asked[prompt]).uniform(0.5, 1.5))
            return await super()._generate(request_id, prompt_ids, **options)

    asked: Counter[int] = Counter()
    return Engine(tokenizer, script)


async def main(mode: str, folder: Path, seconds: float, number: int) -> dict[str, Any]:
    """One batch."""
    if "BENCH_PEERS" in os.environ:  # the peers' packages, behind those of veRL's environment
        sys.path.append(os.environ["BENCH_PEERS"])
    if mode == "autotrace":
        trace(folder)
    import in_process

    tokenizer = in_process.make_model(folder / "model")
    backend = {"veRL on MLflow": "mlflow", "veRL on Weave": "weave"}.get(mode)
    overrides = [
        f"actor_rollout_ref.rollout.multi_turn.function_tool_path={ROOT / 'examples/verl_loop/tools.py'}",
        f"actor_rollout_ref.rollout.n={ROLLOUTS}",
        "actor_rollout_ref.rollout.response_length=2048",
        "trainer.project_name=dev/bench",
    ]
    if backend is not None:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        overrides += [f"actor_rollout_ref.rollout.trace.backend={backend}"]
    config = in_process.configuration(folder / "model", overrides)
    server = engine(in_process, tokenizer)
    agents = in_process.worker(config, server, reward=False)
    prompts = [
        {"question": f"How many plums are in stock on day {day}?", "answer": "7", "index": day, "uid": f"uid-{day}"}
        for day in range(number)
    ]
    await in_process.rollout(agents, prompts[:1], 1, 0)
    server.thinks = seconds
    wall, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
    await in_process.rollout(agents, prompts, ROLLOUTS, 1)
    found = {
        "wall_s": time.perf_counter() - wall,
        "process_s": time.process_time() - process,
        "thread_s": time.thread_time() - thread,
    }
    if mode == "autotrace":
        from autotrace.record import calls, faults, flusher

        flusher.flush()
        found["recorded"] = sum(probe.counts.calls for probe in calls.probes.values())
        found["drops"] = sum(count for reason, count in faults.counts.items() if reason.startswith("drop:"))
    return found


if __name__ == "__main__":
    mode, folder, seconds, number = sys.argv[1:]
    print(json.dumps(asyncio.run(main(mode, Path(folder), float(seconds), int(number)))), flush=True)
    os._exit(0)  # some peers wait minutes for their servers at exit
