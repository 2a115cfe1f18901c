"""An agent of pydantic-ai with a tool, stepped through by its caller. Nothing to write for autotrace.

    pip install "pydantic-ai-slim[openai]"
    autotrace-run --backend jsonl python examples/pydantic_ai_agent/agent.py
    autotrace ls --tree

Asks the stand-in of `examples/openai_agent`, which needs no key; with OPENAI_BASE_URL and OPENAI_API_KEY set, a real
model (MODEL).
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

sys.path.insert(0, str(Path(__file__).parents[1] / "openai_agent"))
import model

TOWNS = {"Aachen": 17, "Bonn": 19, "Celle": 16}


def temperature(town: str) -> str:
    """How warm it is in a town."""
    return f"{TOWNS[town]} degrees"


def forecaster(url: str | None) -> Agent[None, str]:
    """The agent, on a client of openai."""
    provider = OpenAIProvider(base_url=url, api_key="none") if url else OpenAIProvider()
    chat = OpenAIChatModel(os.environ.get("MODEL", "stand-in"), provider=provider)
    return Agent(chat, tools=[temperature], name="forecaster")


async def main(url: str | None) -> None:
    agent = forecaster(url)
    for town in TOWNS:
        async with agent.iter(f"How warm is it in {town}?") as steps:
            async for step in steps:
                if Agent.is_model_request_node(step):
                    async with step.stream(steps.ctx) as answer:
                        async for _ in answer:
                            pass
        print(town, steps.result.output if steps.result else "no answer")


if __name__ == "__main__":
    with nullcontext() if "OPENAI_BASE_URL" in os.environ else model.serving() as url:
        asyncio.run(main(url))
