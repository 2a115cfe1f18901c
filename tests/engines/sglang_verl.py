"""veRL's own client, load balancer and SGLang server class, each in a process of its own: the way a rollout goes.

``autotrace-run --spec agents.yaml python sglang_verl.py MODEL RESULT``
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agents
from sglang_engine import ENGINE, PROMPT

PARAMS = {"max_new_tokens": 8, "temperature": 0.0, "ignore_eos": True}
ROLLOUTS = {"first": {}, "second": {}, "logprobs": {"logprobs": True}, "queued": {"queued": True}}
"""Sampling parameters by uid, besides those; ``queued`` is for the server below."""


def server_class() -> type:
    """veRL 0.9.1 is made for SGLang 0.5.12, whose ``ServerArgs`` was a dataclass; that is all that keeps its class from
    running with 0.5.23."""
    from verl.workers.rollout.sglang_rollout import async_sglang_server

    class Server(async_sglang_server.SGLangHttpServer):
        async def launch_server(self, *args: Any, **kwargs: Any) -> None:
            from verl.workers.rollout.sglang_rollout import async_sglang_server

            async_sglang_server.dataclasses = SimpleNamespace(fields=lambda _: [])
            await super().launch_server(*args, **kwargs)

        async def generate(self, prompt_ids: Any, sampling_params: Any, request_id: str, **more: Any) -> Any:
            self.here = getattr(self, "here", 0) + 1
            queued = sampling_params.pop("queued", False)
            call = super().generate(prompt_ids, sampling_params, request_id, **more)
            try:
                if queued:  # served by a task that does not know who asked, as behind a queue of requests
                    call = asyncio.get_running_loop().create_task(call, context=contextvars.Context())
                return await call
            finally:
                self.here -= 1

        async def busy(self) -> bool:
            """Whether somebody waits for an answer."""
            return getattr(self, "here", 0) > 0

        async def generating(self) -> bool:
            """Whether the engine has begun to answer somebody."""
            return any(state.output_ids for state in self.tokenizer_manager.rid_to_state.values())

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


def client_of(server: Any) -> Any:
    """veRL's client, which asks a load balancer for the server."""
    import ray
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    balancer = ray.remote(num_cpus=0)(GlobalRequestLoadBalancer).remote(servers={"3": server})
    rollout = SimpleNamespace(name="sglang", full_determinism=False)
    config: Any = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
    return LLMServerClient(config, balancer)


async def rollouts(client: Any) -> dict[str, Any]:
    """Two turns each, all at once."""

    async def one(name: str, more: dict[str, Any]) -> list[Any]:
        said = PROMPT

        async def turn(_: int) -> Any:
            nonlocal said
            output = await client.generate(f"sticky-{name}", prompt_ids=said, sampling_params={**PARAMS, **more})
            found = {"prompt_ids": said, "response_ids": list(output.token_ids)}
            said = [*said, *output.token_ids, 9]
            return found

        return await agents.conversation(turn, uid=name)

    outcomes = await asyncio.gather(*(one(name, more) for name, more in ROLLOUTS.items()))
    return dict(zip(ROLLOUTS, outcomes, strict=True))


async def interrupted(client: Any, server: Any) -> list[Any]:
    """The trainer aborts all requests for a weight sync while a turn is being answered; the next waits for its end."""

    async def turn(number: int) -> Any:
        params = {**PARAMS, "max_new_tokens": 480 if number == 1 else 8}
        call = asyncio.ensure_future(client.generate("sticky-cut", prompt_ids=PROMPT, sampling_params=params))
        if number == 1:
            while not await server.generating.remote():
                await asyncio.sleep(0.01)
            await server.abort_all_requests.remote()
        else:
            while not await server.busy.remote():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            await server.resume_generation.remote()
        output = await call
        return {"response_ids": list(output.token_ids), "stop_reason": output.stop_reason}

    return await agents.conversation(turn, uid="cut")


def main(model: str, result: str) -> None:
    import ray

    ray.init(address="local", num_cpus=4, include_dashboard=False)
    server = start(model)
    client = client_of(server)
    found = asyncio.run(rollouts(client))
    found["cut"] = asyncio.run(interrupted(client, server))
    ray.get(server.clear_kv_cache.remote())
    Path(result).write_text(json.dumps(found))
    ray.kill(server)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
