"""An agent that asks a model through httpx alone, in each way. Written without a thought of tracing."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any

import httpx
import httpx2
import openai

ASKED: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
CHAT: dict[str, Any] = {"model": "tiny", "messages": ASKED}
STREAM = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}


def said(lines: Iterable[str]) -> str:
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])


class Toolbox:
    def call_tool(self, name: str, arguments: dict[str, int]) -> str:
        assert name == "add"
        return str(arguments["a"] + arguments["b"])


class Agent:
    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[str] = []
        headers = {"authorization": "Bearer sk-secret"}
        self.client = httpx.Client(base_url=url, headers=headers, event_hooks={"response": [self._look]})
        self.tools = Toolbox()

    def _look(self, response: httpx.Response) -> None:
        self.seen += [name for name in response.request.headers if name == "x-request-id"]

    def solve(self, way: str, number: int) -> str:
        """One task, in one way."""
        answer = getattr(self, way)()
        answer = asyncio.run(answer) if asyncio.iscoroutine(answer) else str(answer)
        assert not self.seen, "the program sees a header that it did not send"
        return str(answer)

    def _text(self, answer: Any) -> str:
        return str(answer.json()["choices"][0]["message"]["content"])

    def chat(self) -> str:
        message = self.client.post("/chat/completions", json={**CHAT, "tools": TOOLS}).json()["choices"][0]["message"]
        call = message["tool_calls"][0]
        result = self.tools.call_tool(call["function"]["name"], json.loads(call["function"]["arguments"]))
        told = [*ASKED, message, {"role": "tool", "tool_call_id": call["id"], "content": result}]
        return self._text(self.client.post("/chat/completions", json={**CHAT, "messages": told}))

    async def chat_async(self) -> str:
        async with httpx.AsyncClient(base_url=self.url) as client:
            return self._text(await client.post("chat/completions", json=CHAT))

    def function(self) -> str:
        return self._text(httpx.post(f"{self.url}/chat/completions", json=CHAT))

    def sent(self) -> str:
        """A request that was built before, sent twice."""
        request = self.client.build_request("POST", "/chat/completions", json=CHAT)
        assert self._text(self.client.send(request)) == "It is 4."
        assert "x-request-id" not in request.headers
        return self._text(self.client.send(request))

    def stream(self) -> str:
        with self.client.stream("POST", "/chat/completions", json=STREAM) as answer:
            return said(answer.iter_lines())

    async def stream_async(self) -> str:
        async with (
            httpx.AsyncClient(base_url=self.url) as client,
            client.stream("POST", "/chat/completions", json=STREAM) as answer,
        ):
            return said([line async for line in answer.aiter_lines()])

    def stream_raw(self) -> str:
        """Seven bytes at a time, whatever they cut through."""
        with self.client.stream("POST", "/chat/completions", json=STREAM) as answer:
            return said(b"".join(answer.iter_raw(7)).decode().splitlines())

    def stream_read(self) -> str:
        """A stream that is read at once; and one that is no stream."""
        with self.client.stream("POST", "/chat/completions", json=STREAM) as answer:
            text = said(answer.read().decode().splitlines())
        with self.client.stream("POST", "/chat/completions", json=CHAT) as answer:
            answer.read()
            assert self._text(answer) == text
        return text

    def stopped(self) -> str:
        """A caller that leaves before the end, and one that reads nothing."""
        with self.client.stream("POST", "/chat/completions", json=STREAM) as answer:
            next(answer.iter_lines())
        with self.client.stream("POST", "/chat/completions", json=STREAM):
            return "It is 4."

    def second(self) -> str:
        with httpx2.Client() as client:
            with client.stream("POST", f"{self.url}/chat/completions", json=STREAM) as answer:
                text = said(answer.iter_lines())
            assert self._text(client.post(f"{self.url}/chat/completions", json=CHAT)) == text
        return text

    async def second_async(self) -> str:
        async with (
            httpx2.AsyncClient() as client,
            client.stream("POST", f"{self.url}/chat/completions", json=STREAM) as answer,
        ):
            return said([line async for line in answer.aiter_lines()])

    def text(self) -> str:
        answer = self.client.post("/completions", json={"model": "tiny", "prompt": "2+2? "})
        return str(answer.json()["choices"][0]["text"])

    def messages(self) -> str:
        body = {"model": "tiny", "max_tokens": 9, "system": "Be brief.", "messages": ASKED[1:]}
        return str(self.client.post("/messages", json=body).json()["content"][0]["text"])

    def cut(self) -> str:
        """A Response at a limit of tokens, whole and streamed."""
        body = {"model": "cut", "input": "2+2?"}
        answer = self.client.post("/responses", json=body).json()
        with self.client.stream("POST", "/responses", json={**body, "stream": True}) as stream:
            assert '"status": "incomplete"' in stream.read().decode()
        return str(answer["output"][0]["content"][0]["text"])

    def failing(self) -> str:
        refused = self.client.post("/chat/completions", json={**CHAT, "model": "missing"})
        assert refused.status_code == 400
        try:
            httpx.post("http://127.0.0.1:9/v1/chat/completions", json=CHAT, timeout=5)
        except httpx.ConnectError:
            return "It is 4."
        return "?"

    def other(self) -> str:
        """Nothing that asks a model."""
        self.client.post("/embeddings", json={"model": "tiny-e", "input": ["cats"]})
        self.client.get("/models")
        return "It is 4."

    def below_a_client(self) -> str:
        with openai.OpenAI(base_url=self.url, api_key="sk-secret") as client:
            return str(client.chat.completions.create(**CHAT).choices[0].message.content)

    async def below_aiohttp(self) -> str:
        http = openai.DefaultAioHttpClient()
        async with openai.AsyncOpenAI(base_url=self.url, api_key="sk-secret", http_client=http) as client:
            stream = await client.chat.completions.create(**CHAT, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


WAYS = (
    "chat", "chat_async", "function", "sent", "stream", "stream_async", "stream_raw", "stream_read", "stopped",
    "second", "second_async", "text", "messages", "cut", "failing", "other", "below_a_client", "below_aiohttp",
)  # fmt: skip

if __name__ == "__main__":
    url = sys.argv[1]
    httpx.post(f"{url}/chat/completions", json=CHAT)
    agent = Agent(url)
    for number, way in enumerate(WAYS):
        print(way, agent.solve(way, number))
