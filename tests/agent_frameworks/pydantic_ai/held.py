"""Tools, prompts and validators of pydantic-ai, as its documentation makes them."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.models.test import TestModel

AGENT = Agent(TestModel(), deps_type=int)


@AGENT.tool
def add(context: RunContext[int], a: int) -> int:
    """Adds."""
    return a + context.deps


@AGENT.tool_plain
async def search(query: str) -> list[str]:
    """Searches."""
    return [query]


@AGENT.system_prompt
def prompted(context: RunContext[int]) -> str:
    return f"You have {context.deps}."


@AGENT.output_validator
def validated(answer: str) -> str:
    return answer.upper()


def plain(x: int) -> int:
    """Doubles."""
    return x * 2


OTHER = Agent(TestModel(), tools=[Tool(plain)])


def answered(agent: Any) -> Any:
    return agent.run_sync("hello", deps=5).output


HELD = {name: lambda: answered(AGENT) for name in ("add", "search", "prompted", "validated")} | {
    "plain": lambda: answered(OTHER)
}
