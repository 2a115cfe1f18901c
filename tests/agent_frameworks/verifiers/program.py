"""Episodes of verifiers: two tasks, three rollouts of each, as an evaluation runs them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

ROLLOUTS = 3


async def main(url: str) -> None:
    """Run them all at once."""
    client = vf.EvalClientConfig(base_url=url, api_key_var="NO_KEY_NEEDED")
    agent = {"harness": {"id": "in_process"}, "runtime": {"type": "subprocess"}}
    environment = load_environment(resolve_env_config({"taskset": {"id": "sums"}, "agent": agent}))
    context = vf.ModelContext(client=client, model="tiny", sampling=vf.Sampling(temperature=1.0, max_tokens=64))
    gate = asyncio.Semaphore(4)
    async with environment.serving():
        slots = [slot for task in environment.taskset for slot in environment.slots(task, ROLLOUTS)]
        episodes = await asyncio.gather(*(environment.run_slot(slot, context, gate) for slot in slots))
    for episode in episodes:
        (trace,) = episode.traces
        print(
            episode.task.data.name,
            episode.ok,
            trace.id,
            round(trace.reward, 3),
            *[error.message for error in trace.errors],
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
