"""veRL's own agent loop with an engine that answers from a script: ``python -m benchmarks.rollout_program MODE FOLDER
SECONDS`` (of thinking, a turn).

Prints wall, CPU and main thread's seconds of the rollout as JSON. Everything but the two ends is veRL's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "verl_loop"))
PROMPTS, ROLLOUTS = 32, 8


def script(conversation: str, turn: int) -> str:
    """Two tool calls, then an answer."""
    if turn < 2:
        return "Let me look. " * 20 + '<tool_call>{"name": "stock", "arguments": {"item": "plums"}}</tool_call>'
    return "I have seen enough of it. " * 20 + "#### 7"


def trace(folder: Path) -> None:
    """Record with the shipped lists, before veRL is imported."""
    from autotrace.patch import engine
    from autotrace.spec.compiler import compile_plan

    sys.meta_path.insert(0, engine.start(compile_plan(), str(folder), "bench"))  # type: ignore[arg-type]


async def main(mode: str, folder: Path, seconds: float) -> dict[str, Any]:
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
    server = in_process.ScriptedServer(tokenizer, script, seconds=seconds)
    agents = in_process.worker(config, server, reward=False)
    prompts = [
        {"question": f"How many plums are in stock on day {day}?", "answer": "7", "index": day, "uid": f"uid-{day}"}
        for day in range(PROMPTS)
    ]
    await in_process.rollout(agents, prompts[:1], 1, 0)
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
        found["recorded"] = sum(probe.calls for probe in calls.probes.values())
        found["drops"] = sum(count for reason, count in faults.counts.items() if reason.startswith("drop:"))
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))), flush=True)
    os._exit(0)  # some peers wait minutes for their servers at exit
