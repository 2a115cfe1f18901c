"""The agent loop of any release of veRL since 0.5: ``release_program.py process|ray OUT.json``.

Two prompts, each rolled out twice; two turns with a tool call in between. ``process``: the worker in this process, and
where veRL would call an actor it calls an object. ``ray`` (up to 0.7.1): real actors on a cluster of this machine; only
the engine is played. What differs between the releases, as far as a caller of the worker sees it, is in this file.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import re
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import in_process
import release_shim

release_shim.install()

import numpy as np  # noqa: E402
import ray  # noqa: E402
from release_tools import SCHEMA  # noqa: E402
from verl.experimental.agent_loop import agent_loop  # noqa: E402
from verl.protocol import DataProto  # noqa: E402

MODE, OUT = sys.argv[1:3]
N, STEP = 2, 3
PROMPTS = [
    {
        "question": f"What is twice the number {number}?",
        "answer": str(2 * number),
        "uid": f"uid-{number}",
        "index": number,
        "data_source": "openai/gsm8k",
    }
    for number in (11, 12)
]
WORKER = agent_loop.AgentLoopWorker
AUTO_AWAIT = inspect.iscoroutinefunction(getattr(agent_loop.AgentLoopManager, "create", None))


def script(conversation: str, turn: int) -> str:
    """Call the tool with the number of the question, then answer with what it said."""
    number = int(re.findall(r"number (\d+)", conversation)[0])
    if turn == 0:
        return f"<tool_call>{json.dumps({'name': 'double', 'arguments': {'number': number}})}</tool_call>"
    return f"#### {2 * number}"


def batch() -> DataProto:
    """What the trainer hands to a worker."""
    columns = in_process.rows(PROMPTS, N)
    columns["priority"] = np.arange(len(PROMPTS) * N)
    if "messages" in inspect.signature(plain(WORKER)._run_agent_loop).parameters:  # 0.5: rows are arrays
        for place, messages in enumerate(columns["raw_prompt"]):
            columns["raw_prompt"][place] = np.array(messages, dtype=object)
    return DataProto(batch=None, non_tensor_batch=columns, meta_info={"global_steps": STEP, "validate": False})


def plain(cls: Any) -> Any:
    """The class behind ``@ray.remote``, or the class."""
    metadata = getattr(cls, "__ray_metadata__", None)
    return cls if metadata is None else metadata.modified_class.__ray_actor_class__


class InProcess:
    """Stands where veRL holds an actor class: what it makes is in this process."""

    def __init__(self, cls: Any) -> None:
        self.cls = plain(cls)

    def options(self, **options: Any) -> InProcess:
        """No matter here."""
        return self

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """An object whose methods are called as an actor's."""
        made = self.cls(*args, **kwargs)
        names = [name for name in dir(made) if not name.startswith("_") and inspect.isroutine(getattr(made, name))]
        return types.SimpleNamespace(**{name: in_process.Remote(getattr(made, name)) for name in names})


class Balancer(in_process.LoadBalancer):
    """That of 0.7.1 names a server, the later ones hand it out."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.acquire_server = in_process.Remote(lambda request_id: "server-0")


async def in_this_process(config: Any, folder: Path) -> list[dict[str, Any]]:
    """The worker here; returns what the engine saw and said."""
    from transformers import AutoTokenizer

    release_shim.answers()
    server = in_process.ScriptedServer(AutoTokenizer.from_pretrained(folder), script)
    for name in ("RewardManagerWorker", "RewardLoopWorker"):
        if hasattr(agent_loop, name):
            setattr(agent_loop, name, InProcess(getattr(agent_loop, name)))
    ray.get_runtime_context = lambda: types.SimpleNamespace(get_node_id=lambda: "0" * 56)
    worker = plain(getattr(agent_loop, "AgentLoopWorkerBase", WORKER))
    parameters = inspect.signature(worker.__init__).parameters
    if "server_handles" in parameters:  # up to 0.7.0
        made = worker(config, [server])
    elif "servers" in parameters:  # 0.7.1
        made = worker(config, [("server-0", server)], Balancer(server), [in_process.RewardHandle(config)])
    else:
        made = in_process.worker(config, server)
    await made.generate_sequences(batch())
    return server.calls


class Engine:
    """The engine server as an actor."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoTokenizer

        release_shim.answers()
        self.server = in_process.ScriptedServer(AutoTokenizer.from_pretrained(folder), script)

    async def generate(self, **kwargs: Any) -> Any:
        """Answer."""
        return await self.server._generate(**kwargs)

    def calls(self) -> list[dict[str, Any]]:
        """What it saw and said."""
        return self.server.calls


async def in_actors(config: Any, folder: Path) -> list[dict[str, Any]]:
    """The worker, the rewards and the load balancer as veRL's manager makes them."""
    runpy.run_path(os.environ["RAY_WAITS"])
    ray.init(
        address="local", num_cpus=8, include_dashboard=False, log_to_driver=False,
        runtime_env={"worker_process_setup_hook": "release_shim.install"},
    )  # fmt: skip
    engine = ray.remote(Engine).remote(str(folder))
    actor = WORKER if hasattr(WORKER, "__ray_metadata__") else ray.remote(WORKER)
    if hasattr(agent_loop, "GlobalRequestLoadBalancer"):  # 0.7.1
        from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

        reward = RewardLoopWorker if hasattr(RewardLoopWorker, "__ray_metadata__") else ray.remote(RewardLoopWorker)
        balancer = agent_loop.GlobalRequestLoadBalancer.remote(["server-0"])
        scoring = reward.remote(config)
        workers = [actor.remote(config, [("server-0", engine)], balancer, [scoring]), scoring]
    else:
        workers = [actor.remote(config, [engine])]
    await workers[0].generate_sequences.remote(batch())
    calls = await engine.calls.remote()
    await asyncio.sleep(1)  # a training step follows: whatever scored in actors of its own has written it out
    for worker in workers:
        with contextlib.suppress(ray.exceptions.RayActorError):  # it ends well, and writes out what it has
            await worker.__ray_terminate__.remote()
    return list(calls)


async def main(folder: Path) -> None:
    """Run it and write down what the engine saw."""
    in_process.make_model(folder)
    tool = {"class_name": "release_tools.Double", "config": {"type": "native"}, "tool_schema": SCHEMA}
    tools = folder / "tools.yaml"
    tools.write_text(json.dumps({"tools": [tool]}))
    config = in_process.configuration(
        folder,
        [f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tools}", f"actor_rollout_ref.rollout.n={N}",
         "actor_rollout_ref.rollout.mode=async", "trainer.project_name=releases", "trainer.experiment_name=one"],
    )  # fmt: skip
    calls = await {"process": in_this_process, "ray": in_actors}[MODE](config, folder)
    Path(OUT).write_text(json.dumps({"calls": calls, "auto_await": AUTO_AWAIT}))


if __name__ == "__main__":
    asyncio.run(main(Path(OUT).parent / "model"))
