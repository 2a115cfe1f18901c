"""An agent of pydantic-ai, run in each way. Written without a thought of tracing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def asking(url: str) -> Agent:
    provider = OpenAIProvider(base_url=url, api_key="sk-secret")
    return Agent(OpenAIChatModel("tiny", provider=provider), tools=[add], system_prompt="Be brief.")


async def run(url: str) -> str:
    adder = asking(url)
    result = await adder.run("2+2?")
    assert adder.name == "adder", adder.name
    return result.output


async def run_stream(url: str) -> str:
    streamer = asking(url)
    async with streamer.run_stream("2+2?") as answer:
        assert streamer.name == "streamer", streamer.name
        return [text async for text in answer.stream_text()][-1]


async def without_a_client(_: str) -> str:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("add", {"a": 2, "b": 2}, tool_call_id="call_1")])
        return ModelResponse(parts=[TextPart("It is 4.")])

    agent: Agent[None, str] = Agent(FunctionModel(answer), tools=[add], name="own", instructions="Be brief.")
    return (await agent.run("2+2?")).output


async def stream_without_a_client(_: str) -> str:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        if len(messages) == 1:
            yield {0: DeltaToolCall("add", '{"a": 2, ', tool_call_id="call_1")}
            yield {0: DeltaToolCall(json_args='"b": 2}')}
        else:
            for word in ("It ", "is ", "4."):
                yield word

    agent: Agent[None, str] = Agent(
        FunctionModel(stream_function=answer), tools=[add], name="own", instructions="Be brief."
    )
    async with agent.run_stream("2+2?") as streamed:
        return [text async for text in streamed.stream_text()][-1]


async def iterate(url: str) -> str:
    async with asking(url).iter("2+2?") as steps:
        async for _ in steps:
            pass
    assert steps.result is not None
    return steps.result.output


async def iterate_by_hand(url: str) -> str:
    """Through a wrapper, with a stream of each turn; the body runs the same agent once more."""
    inner = asking(url)
    async with WrapperAgent(inner).iter("2+2?") as steps:
        node = steps.next_node
        while not Agent.is_end_node(node):
            if Agent.is_model_request_node(node):
                async with node.stream(steps.ctx) as stream:
                    async for _ in stream:
                        pass
            node = await steps.next(node)
        async with inner.iter("again: 2+2?") as more:
            async for _ in more:
                pass
    assert steps.result is not None
    return steps.result.output


async def left_in_the_middle(url: str) -> str:
    try:
        async with asking(url).iter("2+2?") as steps:
            async for node in steps:
                if Agent.is_call_tools_node(node):
                    raise LookupError("enough")
    except LookupError as error:
        return str(error)
    return "not raised"


WAYS = (
    run, run_stream, without_a_client, stream_without_a_client, iterate, iterate_by_hand, left_in_the_middle,
)  # fmt: skip


async def main(url: str) -> None:
    for way in WAYS:
        answer: Any = await way(url)
        print(way.__name__, answer)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
