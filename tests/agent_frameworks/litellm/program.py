"""An agent that asks a model through litellm in each of its ways. Written without a thought of tracing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks nobody for prices

import litellm

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: Any = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": SCHEMA}}]
ASKED: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]


class Toolbox:
    def call_tool(self, name: str, arguments: dict[str, int]) -> str:
        assert name == "add"
        return str(arguments["a"] + arguments["b"])


class Agent:
    def __init__(self, url: str) -> None:
        self.known = {"model": "openai/tiny", "api_base": url, "api_key": "sk-secret"}
        self.messages = {"model": "anthropic/tiny", "api_base": url.removesuffix("/v1"), "api_key": "sk-secret"}
        self.tools = Toolbox()

    def solve(self, way: str, number: int) -> str:
        """One task, in one way."""
        answer = getattr(self, way)()
        return asyncio.run(answer) if asyncio.iscoroutine(answer) else str(answer)

    def _told(self, message: Any) -> list[Any]:
        call = message.tool_calls[0]
        result = self.tools.call_tool(call.function.name, json.loads(call.function.arguments))
        return [*ASKED, message, {"role": "tool", "tool_call_id": call.id, "content": result}]

    def chat(self) -> str:
        first = litellm.completion(messages=ASKED, tools=TOOLS, temperature=0.5, **self.known)
        messages = self._told(first.choices[0].message)
        return str(litellm.completion(messages=messages, tools=TOOLS, **self.known).choices[0].message.content)

    async def chat_async(self) -> str:
        first = await litellm.acompletion(messages=ASKED, tools=TOOLS, **self.known)
        second = await litellm.acompletion(messages=self._told(first.choices[0].message), **self.known)
        return str(second.choices[0].message.content)

    def stream(self) -> str:
        options: Any = {"include_usage": True}
        stream = litellm.completion(messages=ASKED, stream=True, stream_options=options, **self.known)
        assert type(stream) is litellm.CustomStreamWrapper
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    async def stream_async(self) -> str:
        stream = await litellm.acompletion(messages=ASKED, stream=True, **self.known)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    def stream_tools(self) -> str:
        chunks = [*litellm.completion(messages=ASKED, tools=TOOLS, stream=True, **self.known)]
        message = litellm.stream_chunk_builder(chunks).choices[0].message
        messages = self._told(message)
        return str(litellm.completion(messages=messages, **self.known).choices[0].message.content)

    def stopped(self) -> str:
        """A caller that stops before the end."""
        for chunk in litellm.completion(messages=ASKED, stream=True, **self.known):
            if chunk.choices[0].delta.content:
                break
        return "It is 4."

    def anthropic(self) -> str:
        """A provider that is asked without a client."""
        answer = litellm.completion(messages=ASKED, max_tokens=64, **self.messages)
        return str(answer.choices[0].message.content)

    def anthropic_stream(self) -> str:
        stream = litellm.completion(messages=ASKED, max_tokens=64, stream=True, **self.messages)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    def responses(self) -> str:
        return str(litellm.responses(input="2+2?", **self.known).output[0].content[0].text)

    def embeddings(self) -> str:
        vector = litellm.embedding(input=["cats"], **self.known).data[0]["embedding"]
        return "It is 4." if len(vector) == 64 else "?"

    def failing(self) -> str:
        try:
            litellm.completion(messages=ASKED, **{**self.known, "model": "openai/missing"})
        except litellm.BadRequestError:
            return "It is 4."
        return "?"


WAYS = (
    "chat", "chat_async", "stream", "stream_async", "stream_tools", "stopped", "anthropic", "anthropic_stream",
    "responses", "embeddings", "failing",
)  # fmt: skip

if __name__ == "__main__":
    agent = Agent(sys.argv[1])
    outside = litellm.completion(messages=ASKED, **agent.known)
    for number, way in enumerate(WAYS):
        print(way, agent.solve(way, number))
