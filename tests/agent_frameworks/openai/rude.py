"""What programs do with the client of openai beside asking and reading: each way prints what it saw. Written without a
thought of tracing."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import inspect
import io
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import httpx
import openai
from openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from openai.resources.chat import Completions
from pydantic import BaseModel

ASKED: Any = [{"role": "user", "content": "2+2?"}]
KEY = "sk-secret"


class Sum(BaseModel):
    sum: int


def said(answer: Any) -> str:
    return str(answer.choices[0].message.content)


def words(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


async def words_of(stream: AsyncIterator[Any]) -> str:
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


def failing(action: Callable[[], Any]) -> str:
    try:
        return f"no error: {action()}"
    except Exception as error:
        request = getattr(error, "request", None)
        sent = sorted(request.headers) if request is not None else None
        return f"{type(error).__mro__[:3]} {error} {getattr(error, 'body', None)} {sent} {type(error.__cause__)}"


class OwnCompletions(Completions):
    def create(self, *args: Any, **kwargs: Any) -> Any:
        return super().create(*args, **{**kwargs, "temperature": 0})


class OwnClient(OpenAI):
    def post(self, *args: Any, **kwargs: Any) -> Any:
        self.posted = getattr(self, "posted", 0) + 1
        return super().post(*args, **kwargs)


class Agent:
    def __init__(self, url: str) -> None:
        self.url = url
        self.client = OpenAI(base_url=url, api_key=KEY, max_retries=0)
        self.create: Any = self.client.chat.completions.create

    def solve(self, way: str, number: int) -> Any:
        answer = getattr(self, way)()
        return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer

    def ask(self, model: str = "tiny", **more: Any) -> Any:
        return self.create(model=model, messages=ASKED, **more)

    def later(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=self.url, api_key=KEY, max_retries=0)

    # -- other clients ---------------------------------------------------------------------------------------------

    def azure(self) -> Any:
        endpoint = self.url.removesuffix("/v1")
        client = AzureOpenAI(azure_endpoint=endpoint, api_key=KEY, api_version="2024-06-01", max_retries=0)
        ask: Any = client.chat.completions.create
        return said(ask(model="tiny", messages=ASKED)), words(ask(model="cut", messages=ASKED, stream=True))

    async def azure_later(self) -> Any:
        endpoint = self.url.removesuffix("/v1")
        async with AsyncAzureOpenAI(azure_endpoint=endpoint, api_key=KEY, api_version="2024-06-01") as client:
            stream: Any = await client.chat.completions.create(model="tiny", messages=ASKED, stream=True)
            return await words_of(stream)

    def proxied(self) -> Any:
        with httpx.Client(proxy=self.url.removesuffix("/v1")) as through:
            client = OpenAI(base_url="http://model.invalid/v1", api_key=KEY, http_client=through)
            return said(client.chat.completions.create(model="tiny", messages=ASKED))

    def subclassed(self) -> Any:
        client = OwnClient(base_url=self.url, api_key=KEY)
        asked = (kind(client).create for kind in (OwnCompletions, Completions))
        return [said(create(model="tiny", messages=ASKED)) for create in asked], client.posted

    def copied(self) -> Any:
        clients = self.client.with_options(timeout=9), self.client.copy(max_retries=1), copy.copy(self.client)
        return [said(client.chat.completions.create(model="tiny", messages=ASKED)) for client in clients]

    def closed(self) -> Any:
        client = OpenAI(base_url=self.url, api_key=KEY, max_retries=0)
        client.close()
        return failing(lambda: client.chat.completions.create(model="tiny", messages=ASKED))

    # -- other endpoints and forms ------------------------------------------------------------------------------------

    def files_and_batches(self) -> Any:
        file = self.client.files.create(file=("asked.jsonl", io.BytesIO(b"{}\n")), purpose="batch")
        batch = self.client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        return file.model_dump(exclude_none=True), batch.model_dump(exclude_none=True)

    def raw(self) -> Any:
        create: Any = self.client.chat.completions.with_raw_response.create
        raw = create(model="tiny", messages=ASKED)
        never = create(model="tiny", messages=ASKED, stream=True)
        return raw.status_code, type(raw).__name__, said(raw.parse()), said(raw.parse()), len(raw.text), type(never)

    def streaming_response(self) -> Any:
        create: Any = self.client.chat.completions.with_streaming_response.create
        with create(model="tiny", messages=ASKED, stream=True) as response:
            lines = [line for line in response.iter_lines() if line]
        with create(model="tiny", messages=ASKED) as response:
            data = b"".join(response.iter_bytes())
        with create(model="tiny", messages=ASKED, stream=True) as response:
            next(iter(response.iter_lines()))
        with create(model="tiny", messages=ASKED) as response:
            text = said(response.parse())
        with create(model="tiny", messages=ASKED):
            pass
        return lines, data, text

    def parsed(self) -> Any:
        parse: Any = self.client.chat.completions.parse
        answer = parse(model="tiny", messages=ASKED, response_format=Sum)
        wrong = failing(lambda: parse(model="tiny", messages=ASKED, response_format=dict))
        return answer.choices[0].message.parsed, wrong

    def retried(self) -> Any:
        client = OpenAI(base_url=self.url, api_key=KEY, max_retries=3)
        raw = client.chat.completions.with_raw_response.create(
            model="busy", messages=ASKED, extra_headers={"retry-after": "0"}
        )
        return raw.retries_taken, said(raw.parse()), failing(lambda: self.ask("busy2"))

    def refused(self) -> Any:
        return failing(lambda: self.ask("missing")), failing(lambda: self.ask(nonsense=1))

    def moved(self) -> Any:
        return failing(lambda: self.ask("moved"))

    # -- streams ---------------------------------------------------------------------------------------------------

    def cut(self) -> Any:
        stream = self.ask("cut", stream=True)
        return words(stream), list(stream), type(stream), isinstance(stream, openai.Stream), sorted(vars(stream))

    def latin(self) -> Any:
        return failing(lambda: words(self.ask("latin", stream=True)))

    def broken(self) -> Any:
        stream, seen = self.ask("broken", stream=True), []

        def read() -> None:
            for chunk in stream:
                seen.append(chunk.choices[0].delta.content)

        return failing(read), seen

    def error_inside(self) -> Any:
        return failing(lambda: words(self.ask("refused", stream=True)))

    def nothing(self) -> Any:
        return list(self.ask("nothing", stream=True))

    def called(self) -> Any:
        arguments = ""
        for chunk in self.ask("called", stream=True):
            for call in chunk.choices[0].delta.tool_calls or ():
                arguments += call.function.arguments
        return len(arguments), arguments[:12]

    def unread(self) -> Any:
        kept = self.ask(stream=True)
        dropped = self.ask(stream=True)
        del dropped
        gc.collect()
        shut = self.ask(stream=True)
        shut.close()
        again = failing(lambda: list(shut))
        with self.ask(stream=True) as left:
            first = next(left).choices[0].delta.content
        return first, again, words(kept)

    async def cancelled(self) -> Any:
        async with self.later() as client:

            async def read(seen: list[Any]) -> None:
                async for chunk in await client.chat.completions.create(model="hanging", messages=ASKED, stream=True):
                    seen.append(chunk.choices[0].delta.content)

            late: list[Any] = []
            try:
                await asyncio.wait_for(read(late), 1)
            except asyncio.TimeoutError as error:
                outcome = str(error)
            seen: list[Any] = []
            task = asyncio.create_task(read(seen))
            while not seen:
                await asyncio.sleep(0.01)
            task.cancel("enough")
            try:
                await task
            except asyncio.CancelledError as error:
                return outcome, late, seen, error.args, task.cancelled()
        return "?"

    async def given_away(self) -> Any:
        """Made in one task, read in another, closed in a third."""
        async with self.later() as client:
            stream: Any = await client.chat.completions.create(model="tiny", messages=ASKED, stream=True)
            first = await asyncio.create_task(stream.__anext__())
            await asyncio.create_task(stream.close())
            return first.choices[0].delta.content

    # -- threads, loops, hooks -----------------------------------------------------------------------------------------

    def threads(self) -> Any:
        answers: list[Any] = []
        run = [threading.Thread(target=lambda: answers.append(words(self.ask("cut", stream=True)))) for _ in range(8)]
        for thread in run:
            thread.start()
        for thread in run:
            thread.join()
        return answers

    def loops(self) -> Any:
        async def one() -> str:
            async with self.later() as client:
                return said(await client.chat.completions.create(model="tiny", messages=ASKED))

        async def several() -> Any:
            return await asyncio.gather(*(one() for _ in range(4)))

        answers: list[Any] = [asyncio.run(one()), asyncio.run(several())]
        thread = threading.Thread(target=lambda: answers.append(asyncio.run(one())))
        thread.start()
        thread.join()
        return answers

    def hooks(self) -> Any:
        seen: list[Any] = []

        def raises(_: Any) -> None:
            raise LookupError("the hook's own")

        found, listed = [], {"request": [lambda request: seen.append(sorted(request.headers))]}
        for hooks in ({"request": [raises]}, {"response": [raises]}, listed):
            with httpx.Client(event_hooks=hooks) as through:
                client = OpenAI(base_url=self.url, api_key=KEY, http_client=through, max_retries=0)
                ask: Any = functools.partial(client.chat.completions.create, model="tiny", messages=ASKED)
                found.append(failing(lambda ask=ask: said(ask())))  # type: ignore[misc]
        return found, seen

    def looked_at(self) -> Any:
        answer = self.ask()
        later = AsyncOpenAI(api_key=KEY).chat.completions.create
        signature = inspect.signature(self.create)
        return (
            pickle.loads(pickle.dumps(answer)) == answer, copy.deepcopy(answer) == answer, sorted(answer.model_dump()),
            list(signature.parameters), inspect.iscoroutinefunction(later), inspect.iscoroutinefunction(self.create),
            self.create.__name__, self.create.__qualname__, bool(self.create.__doc__),
            failing(lambda: self.create("positional")), failing(lambda: self.create()),
        )  # fmt: skip


WAYS = tuple(name for name in vars(Agent) if not name.startswith("_") and name not in ("solve", "ask", "later"))

if __name__ == "__main__":
    agent = Agent(sys.argv[1])
    with suppress(KeyboardInterrupt):
        for number, way in enumerate(WAYS):
            print(way, str(agent.solve(way, number)).replace(agent.url.removesuffix("/v1"), "URL"), flush=True)
