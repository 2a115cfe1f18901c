"""An agent that asks a model through the client of openai in each of its ways. Written without a thought of tracing."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI, BadRequestError, OpenAI
from openai._streaming import AsyncStream, Stream
from pydantic import BaseModel

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: Any = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": SCHEMA}}]
FLAT: Any = [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}]
ASKED: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]


class Sum(BaseModel):
    sum: int


class Toolbox:
    def call_tool(self, name: str, arguments: dict[str, int]) -> str:
        assert name == "add"
        return str(arguments["a"] + arguments["b"])


class Agent:
    def __init__(self, url: str) -> None:
        self.client = OpenAI(base_url=url, api_key="sk-secret", max_retries=0)
        self.url = url
        self.tools = Toolbox()

    def solve(self, way: str, number: int) -> str:
        """One task, in one way."""
        answer = getattr(self, way)()
        return asyncio.run(answer) if asyncio.iscoroutine(answer) else str(answer)

    def _later(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=self.url, api_key="sk-secret", max_retries=0)

    def _told(self, message: Any) -> list[Any]:
        call = message.tool_calls[0]
        result = self.tools.call_tool(call.function.name, json.loads(call.function.arguments))
        return [*ASKED, message, {"role": "tool", "tool_call_id": call.id, "content": result}]

    def chat(self) -> str:
        first = self.client.chat.completions.create(model="tiny", messages=ASKED, tools=TOOLS, temperature=0.5)
        messages = self._told(first.choices[0].message)
        second = self.client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS)
        return str(second.choices[0].message.content)

    async def chat_async(self) -> str:
        async with self._later() as client:
            first = await client.chat.completions.create(model="tiny", messages=ASKED, tools=TOOLS)
            messages = self._told(first.choices[0].message)
            second = await client.chat.completions.create(model="tiny", messages=messages)
        return str(second.choices[0].message.content)

    def stream(self) -> str:
        options: Any = {"include_usage": True}
        arguments = ""
        with self.client.chat.completions.create(
            model="tiny", messages=ASKED, tools=TOOLS, stream=True, stream_options=options
        ) as stream:
            assert type(stream) is Stream and stream.response.status_code == 200
            for chunk in stream:
                for choice in chunk.choices:
                    for call in choice.delta.tool_calls or ():
                        arguments += (call.function and call.function.arguments) or ""
        result = self.tools.call_tool("add", json.loads(arguments))
        call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
        told: Any = [
            *ASKED,
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": result},
        ]
        again = self.client.chat.completions.create(model="tiny", messages=told, stream=True)
        return next(again).choices[0].delta.content + "".join(
            (chunk.choices[0].delta.content or "") for chunk in again if chunk.choices
        )

    async def stream_async(self) -> str:
        async with (
            self._later() as client,
            await client.chat.completions.create(model="tiny", messages=ASKED, stream=True) as stream,
        ):
            assert type(stream) is AsyncStream
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    def stopped(self) -> str:
        """A caller that stops at the finish reason, as many do, and one that stops earlier, and one that closes it
        then, and keeps it."""
        text = ""
        for chunk in self.client.chat.completions.create(model="tiny", messages=ASKED, stream=True):
            text += chunk.choices[0].delta.content or ""
            if chunk.choices[0].finish_reason:
                break
        for chunk in self.client.chat.completions.create(model="tiny", messages=ASKED, stream=True):
            if chunk.choices[0].delta.content:
                break
        with self.client.chat.completions.create(model="tiny", messages=ASKED, stream=True) as self.closed:
            for chunk in self.closed:
                if chunk.choices[0].delta.content:
                    break
        return text

    def helper(self) -> str:
        with self.client.chat.completions.stream(model="tiny", messages=ASKED) as stream:
            for _ in stream:
                pass
            return str(stream.get_final_completion().choices[0].message.content)

    async def helpers_left(self) -> str:
        """The helpers of both protocols close the response alone: left early, and kept; and one that is read."""
        with self.client.chat.completions.stream(model="tiny", messages=ASKED) as chat:
            next(event for event in chat if event.type == "content.delta" and event.delta)
        with self.client.responses.stream(model="tiny", input="2+2?") as response:
            next(event for event in response if event.type == "response.output_text.delta")
        async with self._later() as client:
            async with client.chat.completions.stream(model="tiny", messages=ASKED) as chat_later:
                await anext(event async for event in chat_later if event.type == "content.delta" and event.delta)
            async with client.responses.stream(model="tiny", input="2+2?") as response_later:
                await anext(event async for event in response_later if event.type == "response.output_text.delta")
            async with client.responses.stream(model="tiny", input="2+2?") as whole:
                text = (await whole.get_final_response()).output_text
        self.left = (chat, response, chat_later, response_later)
        return text

    def structured(self) -> str:
        parsed = self.client.chat.completions.parse(model="tiny", messages=ASKED, response_format=Sum)
        answer = parsed.choices[0].message.parsed
        assert answer is not None
        return f"It is {answer.sum}."

    def raw(self) -> str:
        raw = self.client.chat.completions.with_raw_response.create(model="tiny", messages=ASKED)
        return str(raw.parse().choices[0].message.content)

    def raw_stream(self) -> str:
        raw = self.client.chat.completions.with_raw_response.create(model="tiny", messages=ASKED, stream=True)
        assert raw.headers["content-type"] == "text/event-stream"
        with raw.parse() as stream:
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    async def raw_async(self) -> str:
        async with self._later() as client:
            create = client.chat.completions.with_streaming_response.create
            async with create(model="tiny", messages=ASKED, stream=True) as raw:
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in await raw.parse()])
            async with create(model="tiny", messages=ASKED) as raw:
                assert (await raw.parse()).choices[0].message.content == text
            async with create(model="tiny", messages=ASKED) as raw:
                assert [line async for line in raw.iter_lines()]
        return text

    def responses(self) -> str:
        first = self.client.responses.create(model="tiny", input="2+2?", instructions="Be brief.", tools=FLAT)
        call: Any = first.output[0]
        result = self.tools.call_tool(call.name, json.loads(call.arguments))
        told: Any = [
            {"role": "user", "content": "2+2?"},
            call,
            {"type": "function_call_output", "call_id": call.call_id, "output": result},
        ]
        return self.client.responses.create(model="tiny", input=told, tools=FLAT).output_text

    async def responses_stream(self) -> str:
        text = ""
        async with self._later() as client:
            async for event in await client.responses.create(model="tiny", input="2+2?", stream=True):
                if event.type == "response.output_text.delta":
                    text += event.delta
        return text

    def cut(self) -> str:
        """At a limit of tokens, whole and streamed."""
        answer = self.client.responses.create(model="cut", input="2+2?")
        assert answer.status == "incomplete"
        for event in self.client.responses.create(model="cut", input="2+2?", stream=True):
            assert event.type != "response.completed"
        return answer.output_text

    def text(self) -> str:
        asked = self.client.completions.create(model="tiny", prompt="2+2? ", stream=True)
        return "".join(chunk.choices[0].text for chunk in asked)

    def embeddings(self) -> str:
        vector = self.client.embeddings.create(model="tiny-e", input=["cats"]).data[0].embedding
        return "It is 4." if len(vector) == 64 else "?"

    def failing(self) -> str:
        try:
            self.client.chat.completions.create(model="missing", messages=ASKED)
        except BadRequestError:
            return "It is 4."
        return "?"


WAYS = (
    "chat", "chat_async", "stream", "stream_async", "stopped", "helper", "helpers_left", "structured", "raw",
    "raw_stream", "raw_async", "responses", "responses_stream", "cut", "text", "embeddings", "failing",
)  # fmt: skip

if __name__ == "__main__":
    url = sys.argv[1]
    outside = OpenAI(base_url=url, api_key="sk-secret").chat.completions.create(model="tiny", messages=ASKED)
    agent = Agent(url)
    for number, way in enumerate(WAYS):
        print(way, agent.solve(way, number))
