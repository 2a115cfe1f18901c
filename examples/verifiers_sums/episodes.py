"""Episodes of verifiers: two tasks, three rollouts of each, as an evaluation runs them.

    autotrace-run python examples/verifiers_sums/episodes.py
    autotrace ls --tree

Asks the stand-in of `model.py`, which needs no key; with OPENAI_BASE_URL and OPENAI_API_KEY set, a real model (MODEL).
"""

from __future__ import annotations

import asyncio
import os

import model
import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

ROLLOUTS = 3


async def run(client: vf.ClientConfig) -> list[vf.Episode]:
    """Run them all at once, asking the model through ``client``."""
    agent = {"harness": {"id": "in_process"}, "runtime": {"type": "subprocess"}}
    environment = load_environment(resolve_env_config({"taskset": {"id": "sums"}, "agent": agent}))
    sampling = vf.Sampling(temperature=1.0, max_tokens=64)
    context = vf.ModelContext(client=client, model=os.environ.get("MODEL", "stand-in"), sampling=sampling)
    gate = asyncio.Semaphore(4)
    async with environment.serving():
        slots = [slot for task in environment.taskset for slot in environment.slots(task, ROLLOUTS)]
        episodes = await asyncio.gather(*(environment.run_slot(slot, context, gate) for slot in slots))
    for episode in episodes:
        (trace,) = episode.traces
        errors = [error.message for error in trace.errors]
        print(episode.task.data.name, episode.ok, trace.id, round(trace.reward, 3), *errors)
    return list(episodes)


def asking(url: str) -> vf.ClientConfig:
    """A client of the server at ``url``, as an evaluation has it."""
    return vf.EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY")


if __name__ == "__main__":
    if "OPENAI_BASE_URL" in os.environ:
        asyncio.run(run(asking(os.environ["OPENAI_BASE_URL"])))
    else:
        with model.serving() as url:
            asyncio.run(run(asking(url)))
