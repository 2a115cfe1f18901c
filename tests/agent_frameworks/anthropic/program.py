"""An agent that asks a model through the client of anthropic in each of its ways. Written without a thought of
tracing."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

from anthropic import Anthropic, AsyncAnthropic, BadRequestError, Stream, beta_tool
from anthropic.lib.streaming import MessageStream
from pydantic import BaseModel

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: Any = [{"name": "add", "description": "Add.", "input_schema": SCHEMA}]
ASKED: Any = [{"role": "user", "content": "2+2?"}]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}
KNOWN: Any = {"model": "tiny", "max_tokens": 2048, "system": [{"type": "text", "text": "Be brief."}]}


class Sum(BaseModel):
    sum: int


class Toolbox:
    def call_tool(self, name: str, arguments: dict[str, int]) -> str:
        assert name == "add"
        return str(arguments["a"] + arguments["b"])


TOOLBOX = Toolbox()


@beta_tool
def add(a: int, b: int) -> str:
    """Add."""
    return TOOLBOX.call_tool("add", {"a": a, "b": b})


class Agent:
    def __init__(self, url: str) -> None:
        self.client = Anthropic(base_url=url, api_key="sk-secret", max_retries=0)
        self.url = url

    def solve(self, way: str, number: int) -> str:
        """One task, in one way."""
        answer = getattr(self, way)()
        return asyncio.run(answer) if asyncio.iscoroutine(answer) else str(answer)

    def _later(self) -> AsyncAnthropic:
        return AsyncAnthropic(base_url=self.url, api_key="sk-secret", max_retries=0)

    def _told(self, content: Any) -> list[Any]:
        call = content[-1]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": TOOLBOX.call_tool(call.name, call.input)}
        return [*ASKED, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]

    def messages(self) -> str:
        create = self.client.messages.create
        first = create(messages=ASKED, tools=TOOLS, thinking=THINKING, **KNOWN)
        return create(messages=self._told(first.content), tools=TOOLS, **KNOWN).content[0].text

    async def messages_async(self) -> str:
        async with self._later() as client:
            first = await client.messages.create(messages=ASKED, tools=TOOLS, thinking=THINKING, **KNOWN)
            second = await client.messages.create(messages=self._told(first.content), **KNOWN)
        return str(second.content[0].text)

    def stream(self) -> str:
        text = ""
        with self.client.messages.create(messages=ASKED, stream=True, **KNOWN) as stream:
            assert type(stream) is Stream and stream.response.status_code == 200
            for event in stream:
                if event.type == "content_block_delta":
                    text += event.delta.text
        return text

    async def stream_async(self) -> str:
        text = ""
        async with self._later() as client:
            async for event in await client.messages.create(messages=ASKED, stream=True, **KNOWN):
                if event.type == "content_block_delta":
                    text += event.delta.text
        return text

    def helper(self) -> str:
        with self.client.messages.stream(messages=ASKED, tools=TOOLS, thinking=THINKING, **KNOWN) as stream:
            assert type(stream) is MessageStream
            first = stream.get_final_message()
        with self.client.messages.stream(messages=self._told(first.content), tools=TOOLS, **KNOWN) as stream:
            return "".join(stream.text_stream)

    async def helper_async(self) -> str:
        async with self._later() as client, client.messages.stream(messages=ASKED, **KNOWN) as stream:
            return "".join([text async for text in stream.text_stream])

    def stopped(self) -> str:
        """A caller that stops when all was said, one that stops earlier, and one that never begins."""
        text = ""
        for event in self.client.messages.create(messages=ASKED, stream=True, **KNOWN):
            text += event.delta.text if event.type == "content_block_delta" else ""
            if event.type == "message_delta":
                break
        with self.client.messages.stream(messages=ASKED, **KNOWN) as stream:
            next(stream.text_stream)
        self.client.messages.stream(messages=ASKED, **KNOWN)
        return text

    def structured(self) -> str:
        parsed = self.client.messages.parse(messages=ASKED, output_format=Sum, **KNOWN).parsed_output
        assert parsed is not None
        return f"It is {parsed.sum}."

    def raw(self) -> str:
        return self.client.messages.with_raw_response.create(messages=ASKED, **KNOWN).parse().content[0].text

    async def raw_stream(self) -> str:
        async with self._later() as client:
            create = client.messages.with_streaming_response.create
            async with create(messages=ASKED, stream=True, **KNOWN) as raw:
                events = [event async for event in await raw.parse()]
        return "".join(event.delta.text for event in events if event.type == "content_block_delta")

    def beta(self) -> str:
        return self.client.beta.messages.create(messages=ASKED, **KNOWN).content[0].text

    async def beta_helper(self) -> str:
        async with self._later() as client, client.beta.messages.stream(messages=ASKED, **KNOWN) as stream:
            return str((await stream.get_final_message()).content[0].text)

    def runner(self) -> str:
        """The client's own loop over tools."""
        last = self.client.beta.messages.tool_runner(messages=ASKED, tools=[add], **KNOWN).until_done()
        return last.content[0].text

    def failing(self) -> str:
        with contextlib.suppress(BadRequestError):
            self.client.messages.create(messages=ASKED, **{**KNOWN, "model": "missing"})
        try:
            with self.client.messages.stream(messages=ASKED, **{**KNOWN, "model": "missing"}):
                return "?"
        except BadRequestError:
            return "It is 4."


WAYS = (
    "messages", "messages_async", "stream", "stream_async", "helper", "helper_async", "stopped", "structured", "raw",
    "raw_stream", "beta", "beta_helper", "runner", "failing",
)  # fmt: skip

if __name__ == "__main__":
    url = sys.argv[1].removesuffix("/v1")
    outside = Anthropic(base_url=url, api_key="sk-secret").messages.create(messages=ASKED, **KNOWN)
    agent = Agent(url)
    for number, way in enumerate(WAYS):
        print(way, agent.solve(way, number))
