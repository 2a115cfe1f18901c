"""What is measured: a small tool, a stream, an LLM client, a conversation, and trajectories of some turns. Knows no
tracer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

Function = Callable[..., Any]
ITEMS = 100
"""Items of a stream."""
TOOL_ANSWER = "It has 12 books about the sea. " * 16
TOOL_TOKENS = 32
"""What a tool's answer adds to the prompt."""


@dataclass
class TokenOutput:
    """As veRL's: what the engine answered."""

    token_ids: list[int]
    log_probs: list[float] | None = None
    stop_reason: str = "completed"
    extra_fields: dict[str, Any] = field(default_factory=dict)


class Tool:
    """A tool with a small argument and a small answer, in every kind of function."""

    def sync(self, query: str, top_k: int = 3) -> str:
        return query

    async def coroutine(self, query: str, top_k: int = 3) -> str:
        return query

    def stream(self, query: str) -> Generator[str, None, None]:
        for _ in range(ITEMS):
            yield query

    async def async_stream(self, query: str) -> AsyncGenerator[str, None]:
        for _ in range(ITEMS):
            yield query


class Chat:
    """A model that gets the whole conversation at each turn, of which two messages are new, or all."""

    def __init__(self, messages: int, nested: bool, new: int) -> None:
        self.nested, self.new = nested, new
        self.turn = 0
        self.messages = [self._message(number) for number in range(messages)]

    def _message(self, number: int) -> dict[str, Any]:
        message = {
            "role": ("user", "assistant", "tool")[number % 3],
            "content": f"Number {number} at turn {self.turn}: in the library are many books about the sea.",
        }
        if not self.nested:
            return message
        usage = {"input": number, "output": 2 * number}
        return {**message, "metadata": {"turn": number, "tags": ["books", "sea"], "usage": usage}}

    def next_turn(self) -> None:
        """The agent made another turn."""
        self.turn += 1
        first = len(self.messages) - self.new
        self.messages[first:] = [self._message(first + number) for number in range(self.new)]

    def complete(self, messages: list[Any]) -> str:
        return "It has 12 books about the sea."


class Client:
    """An LLM client that knows its answer; ``seconds`` of thinking before it."""

    def __init__(self, prompt: int, response: int, logprobs: bool = False, seconds: float = 0.0) -> None:
        self.prompt_ids = [(7 * number) % 150_000 for number in range(prompt)]
        self.messages = [{"role": "user", "content": f"What is in library {n}? " * 45} for n in range(4)]
        self.answer = TokenOutput(
            [(11 * number) % 150_000 for number in range(response)], [-0.1] * response if logprobs else None
        )
        self.seconds = seconds

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], messages: list[Any]
    ) -> TokenOutput:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return self.answer

    async def call(self) -> TokenOutput:
        """One call as an agent makes it."""
        return await self.generate(
            "request-1",
            prompt_ids=self.prompt_ids,
            sampling_params={"temperature": 1.0, "top_p": 1.0, "max_tokens": 1024},
            messages=self.messages,
        )


class Agent:
    """A trajectory: some turns of model and tool. The prompt grows by the response and the tool's answer.

    All token lists are made beforehand and shared, and waiting times differ from call to call: the agent itself leaves
    the event loop and the garbage collector in peace, so that what shows is the tracer.
    """

    def __init__(self, turns: int, prompt: int, response: int, seconds: float) -> None:
        self.turns, self.seconds = turns, seconds
        longest = [(7919 * number) % 150_000 for number in range(prompt + turns * (response + TOOL_TOKENS))]
        self.longest = longest
        self.prompts = [longest[: prompt + turn * (response + TOOL_TOKENS)] for turn in range(turns)]
        self.answers = [TokenOutput(longest[len(ids) : len(ids) + response]) for ids in self.prompts]
        self.unique_tokens = len(longest)
        self._waits = random.Random(7)

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        await asyncio.sleep(self.seconds * self._waits.uniform(0.5, 1.5))
        return self.answers[int(request_id)]

    async def tool(self, name: str, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(self.seconds * self._waits.uniform(0.1, 0.4))
        return TOOL_ANSWER

    async def run(self, uid: str, step: int, rollout_n: int) -> None:
        """One trajectory."""
        for turn, ids in enumerate(self.prompts):
            await self.generate(str(turn), prompt_ids=ids, sampling_params={"temperature": 1.0})
            await self.tool("search", {"query": "books", "turn": turn})


CHUNKS = 200
"""Chunks of a streamed answer."""
QUESTION = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": "What is in the library?"}]}


class Streamed:
    """A model that is asked through the real client of openai, or through httpx alone; what it says is made up without
    a network."""

    def __init__(self, client: str) -> None:
        import httpx

        delta = {"content": " books"}
        choices = [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}]
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
        last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        said = [json.dumps({**chunk, "choices": choices}) for _ in range(CHUNKS - 1)] + [json.dumps(last), "[DONE]"]
        events = [f"data: {event}\n\n".encode() for event in said]

        def answer(request: Any) -> Any:
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=iter(events))

        self._http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://model/v1")
        self.ask = self._by_openai() if client == "openai" else self._by_httpx

    def _by_openai(self) -> Function:
        import openai

        create: Any = openai.OpenAI(
            api_key="none", base_url="http://model/v1", http_client=self._http
        ).chat.completions.create
        return lambda: create(**QUESTION)

    @contextlib.contextmanager
    def _by_httpx(self) -> Generator[Any]:
        with self._http.stream("POST", "/chat/completions", json=QUESTION) as response:
            yield response.iter_lines()

    def read(self) -> None:
        """One answer, as an agent reads it."""
        with self.ask() as chunks:
            for _ in chunks:
                pass


def send(coroutine: Any) -> Any:
    """Run a coroutine that never waits, without an event loop's own cost."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the coroutine waits")
