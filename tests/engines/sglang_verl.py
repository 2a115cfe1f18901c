"""veRL's own SGLang server class as a Ray actor, asked by an agent in another process: the way a rollout goes.

``autotrace-run --spec agents.yaml python sglang_verl.py MODEL RESULT``
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agents
from sglang_engine import ENGINE, PROMPT

PARAMS = {"max_new_tokens": 8, "temperature": 0.0, "ignore_eos": True}


def server_class() -> type:
    """veRL 0.9.1 is made for SGLang 0.5.12, whose ``ServerArgs`` was a dataclass; that is all that keeps its class from
    running with 0.5.23."""
    from verl.workers.rollout.sglang_rollout import async_sglang_server

    class Server(async_sglang_server.SGLangHttpServer):
        async def launch_server(self, *args: Any, **kwargs: Any) -> None:
            from verl.workers.rollout.sglang_rollout import async_sglang_server

            async_sglang_server.dataclasses = SimpleNamespace(fields=lambda _: [])
            await super().launch_server(*args, **kwargs)

    return Server


def start(model: str) -> Any:
    """The server, up: a handle of the actor."""
    import ray
    from verl.workers.config import HFModelConfig, RolloutConfig
    from verl.workers.rollout.replica import RolloutMode

    options = {name: value for name, value in ENGINE.items() if name not in ("load_format", "dtype", "log_level")}
    rollout = RolloutConfig(
        name="sglang", dtype="float32", tensor_model_parallel_size=1, max_model_len=512, load_format="dummy",
        max_num_seqs=8, enforce_eager=True, skip_tokenizer_init=False,
        engine_kwargs={"sglang": {**options, "enable_memory_saver": False, "disable_cuda_graph": True}},
    )  # fmt: skip
    config = HFModelConfig(path=model, override_config={"attn_implementation": "eager"})
    server = ray.remote(num_cpus=1)(server_class()).remote(
        config=rollout, model_config=config, rollout_mode=RolloutMode.STANDALONE, workers=[], replica_rank=3,
        node_rank=0, nnodes=1, cuda_visible_devices="", base_gpu_id=0,
    )  # fmt: skip
    ray.get(server.launch_server.remote())
    return server


async def rollouts(server: Any) -> dict[str, Any]:
    async def one(name: str) -> list[Any]:
        said = PROMPT

        async def turn(number: int) -> Any:
            nonlocal said
            output = await agents.ask(server, f"{name}-{number}", said, dict(PARAMS))
            said = [*said, *output.token_ids, 9]
            return {"response_ids": list(output.token_ids), "stop_reason": output.stop_reason}

        return await agents.conversation(turn, uid=name)

    names = [f"rollout{number}" for number in range(4)]
    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


def main(model: str, result: str) -> None:
    import ray

    ray.init(address="local", num_cpus=4, include_dashboard=False)
    server = start(model)
    found = asyncio.run(rollouts(server))
    ray.get(server.clear_kv_cache.remote())
    Path(result).write_text(json.dumps(found))
    ray.kill(server)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
