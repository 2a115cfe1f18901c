"""Tools, instructions, guardrails and hooks of openai-agents, as its documentation makes them."""

from __future__ import annotations

from typing import Any

import agents
from agents.tool_context import ToolContext


@agents.function_tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@agents.function_tool(name_override="look_up")
async def search(context: agents.RunContextWrapper[Any], query: str, limit: int = 3) -> list[str]:
    """Searches."""
    return [query] * limit


def plain(x: int) -> int:
    """Used by name and as a tool."""
    return x * 2


TOOL = agents.function_tool(plain)


def instructions(context: agents.RunContextWrapper[Any], agent: Any) -> str:
    return f"You are {agent.name}."


@agents.input_guardrail
async def careful(context: Any, agent: Any, asked: Any) -> agents.GuardrailFunctionOutput:
    return agents.GuardrailFunctionOutput(output_info=asked, tripwire_triggered=False)


AGENT = agents.Agent(name="adder", instructions=instructions, tools=[add, search, TOOL], input_guardrails=[careful])


async def invoked(tool: Any, arguments: str) -> Any:
    context = ToolContext(context=None, tool_name=tool.name, tool_call_id="1", tool_arguments=arguments)
    return await tool.on_invoke_tool(context, arguments), tool.params_json_schema


async def guarded() -> Any:
    result = await AGENT.input_guardrails[0].run(AGENT, "hello", agents.RunContextWrapper(None))
    return result.output.output_info


HELD = {
    "add": lambda: invoked(AGENT.tools[0], '{"a": 2, "b": 3}'),
    "search": lambda: invoked(AGENT.tools[1], '{"query": "x", "limit": 2}'),
    "plain": lambda: invoked(AGENT.tools[2], '{"x": 2}'),
    "instructions": lambda: AGENT.get_system_prompt(agents.RunContextWrapper(None)),
    "careful": guarded,
}
