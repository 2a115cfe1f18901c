"""Agents of Agent Lightning in its own runner and store: ``python -m ... URL``. Each prompt is rolled out twice; the
one of the way "fails" raises, and one more rollout is for validation. Prints what the store says of each rollout."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import agentlightning as agl
import openai

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
WAYS = ("returned", "emitted", "yes", "fails")


class Calculator(agl.LitAgent[dict[str, Any]]):
    """Asks twice, with a tool in between."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.client = openai.AsyncOpenAI(base_url=url, api_key="sk-secret")

    async def validation_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> float | None:
        return await self.training_rollout_async(task, resources, rollout)

    async def rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> float | None:
        if task["way"] == "fails":
            raise ValueError("no such task")
        messages: list[Any] = [{"role": "user", "content": "What is 2 + 2?"}]
        asked = (await self.client.chat.completions.create(model="calculator", messages=messages, tools=[TOOL])).choices
        (call,) = asked[0].message.tool_calls
        total = sum(json.loads(call.function.arguments).values())
        messages.append(asked[0].message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(total)})
        said = (await self.client.chat.completions.create(model="calculator", messages=messages)).choices[0].message
        reward = float("4" in (said.content or ""))
        if task["way"] == "returned":
            return reward
        if task["way"] == "yes":
            return reward == 1
        agl.emit_reward({"right": reward, "short": 0.25}, primary_key="right")
        return None


async def main(url: str) -> None:
    """Queue, run, and tell."""
    store = agl.InMemoryLightningStore()
    await store.add_resources({})
    runner: Any = agl.LitAgentRunner(tracer=agl.OtelTracer(), max_rollouts=2 * len(WAYS) + 1, poll_interval=0.01)
    for way in WAYS:
        for _ in range(2):
            await store.enqueue_rollout(input={"way": way}, mode="train", metadata={"data_id": way})
    await store.enqueue_rollout(input={"way": "returned"}, mode="val", metadata={"data_id": "later"})
    with runner.run_context(agent=Calculator(url), store=store):
        await runner.iter()
    for rollout in await store.query_rollouts():
        spans = await store.query_spans(rollout.rollout_id)
        print(json.dumps({
            "id": rollout.rollout_id, "uid": rollout.metadata["data_id"], "status": rollout.status,
            "reward": agl.find_final_reward(spans),
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
