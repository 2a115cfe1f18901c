"""An agent on the openai client with a search tool, against a server that stands in for the model:
``agents.py OUT.json [NAME ...]`` plays each fault and its twin, each in steps of its own.

``OUT.json`` gets what was planted: of each run its first step and the rollouts that have the fault.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import httpx
import openai

from tests.findings import token_agent
from tests.findings.acts import CHAT, FACTS, PROMPTS, STEPS, Act, Fault, N
from tests.findings.field import CITIES
from tests.findings.token_agent import ROWS, TOKENS

PLAYED: ContextVar[int] = ContextVar("PLAYED")


def asked(act: Act, messages: list[dict[str, Any]], tools: Any) -> tuple[dict[str, Any], str]:
    """What the model answers, and why it stops."""
    results = [str(one["content"]) for one in messages if one["role"] == "tool"]
    thought = act.thought or (f"I recall little of {act.city}; attempt {act.number}." if act.thinks else None)
    if not results and act.said is not None:
        return {"content": act.said, "reasoning_content": thought}, act.finish
    if not tools:
        return {"content": f"I have no way to look this up, so I guess: #### {5000 + act.attempt}"}, "stop"
    if len(results) < (act.again + 1 if act.again else 1):
        cities = [CITIES[(CITIES.index(act.city) + place) % len(CITIES)] if act.city in CITIES else act.city
                  for place in range(act.asked)]  # fmt: skip
        calls = [
            {"id": f"c{act.number}{place}", "type": "function", "function": {"name": "search", "arguments": json.dumps(
                {"query": f"inhabitants of {city}"} if act.arguments is None else act.arguments)}}
            for place, city in enumerate(cities)
        ]  # fmt: skip
        return {"content": "Let me look.", "tool_calls": calls, "reasoning_content": thought}, "tool_calls"
    seen = re.findall(r"has (\d+) inhabitants", " ".join(results))
    answer = seen[0] if seen and act.lucky else str(5000 + act.number * 7 % 4000)
    return {"content": act.last.format(number=act.number, answer=answer)}, act.finish


class Agent:
    """The agent as people write one."""

    def __init__(self, client: openai.OpenAI, acts: Mapping[int, Act]) -> None:
        self.client, self.acts = client, acts

    def solve(
        self, number: int, step: int, sample: int, attempt: int, uid: str, source: str, validate: bool
    ) -> float | None:
        act = self.acts[number]
        PLAYED.set(number)
        if not act.asks:
            return 0.0  # no session could be had; scored as if the rollout had been tried
        messages: list[Any] = [{"role": "system", "content": act.system}] if act.system else []
        messages.append({"role": "user", "content": act.question})
        content = ""
        for _ in range(5):
            try:
                reply = self.ask(act, messages)
            except openai.APIStatusError:
                break
            content = reply.content or ""
            kept = reply.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
            if act.keeps_thinking and (thought := getattr(reply, "reasoning_content", None)):
                kept["reasoning_content"] = thought
            messages.append(kept)
            if not reply.tool_calls:
                break
            calls = reply.tool_calls[: act.ran]
            if len(calls) < len(reply.tool_calls):
                kept["tool_calls"] = kept["tool_calls"][: act.ran]
            messages += self.results(act, calls)
            if act.foreign:
                messages.append({"role": "assistant", "content": act.foreign})
            if not act.ends:
                break
            if not act.keeps_question:
                messages = [one for one in messages if one["role"] != "user"]
        if act.made_up:
            messages.append({"role": "assistant", "content": act.made_up})
            content = act.made_up
        if act.judged is not None:
            messages = [*messages[:-1], {"role": "assistant", "content": act.judged}]
            content = act.judged
        return score(messages, content, act.city)

    def ask(self, act: Act, messages: list[Any]) -> Any:
        given: dict[str, Any] = {"model": "policy", **act.sampling}
        if act.tools is not None:
            given["tools"] = act.tools
        return self.client.chat.completions.create(messages=list(messages), **given).choices[0].message

    def results(self, act: Act, calls: list[Any]) -> list[dict[str, Any]]:
        """The messages of the tools."""
        ids = [one.id for one in calls]
        made = []
        for one, name in zip(calls, reversed(ids) if act.swapped else ids, strict=True):
            try:
                answer = use(one.function.name, json.loads(one.function.arguments))
            except Exception:
                answer = ""
            made.append({"role": "tool", "tool_call_id": name, "content": answer})
        return made + made[:1] if act.doubled else made


def use(name: str, arguments: dict[str, Any]) -> str:
    """The tool."""
    act = ACTS[PLAYED.get()]
    if act.kills:
        time.sleep(5)  # what the others did is kept by now
        os.kill(os.getpid(), signal.SIGKILL)
    if act.error is not None:
        raise {"KeyError": KeyError, "TimeoutError": TimeoutError}[act.error[0]](act.error[1])
    if act.answer is not None:
        return act.answer
    city = act.of or str(arguments.get("query", "nothing")).split()[-1]
    if city not in FACTS:
        return f"Nothing in the index about {city}."
    return (
        f"Archive of {city}. " + "It lies on a river and has an old town. " * 2 + f"It has {FACTS[city]} inhabitants."
    )


def score(messages: list[Any], content: str, city: str) -> float | None:
    """The reward function."""
    act = ACTS[PLAYED.get()]
    if act.reward is not None:
        return act.reward
    try:
        return judge(content, city)
    except Exception:
        return 0.0  # the failure of the judge becomes a reward


def judge(content: str, city: str) -> float:
    if ACTS[PLAYED.get()].judge_fails:
        raise TimeoutError("uvx: failed to fetch the toolchain: connection reset")
    found = re.search(r"#### (\d+)", content)
    return float(bool(found) and int(found[1]) == FACTS.get(city))


ACTS: dict[int, Act] = {}
"""The rollouts by number."""


@contextmanager
def serving() -> Iterator[str]:
    """The address of the model server, which runs meanwhile."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", 1 << 16

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            act = ACTS[int(self.headers["x-rollout"])]
            if act.refused:
                self.reply(500, {"error": {"message": act.refused}})
                return
            said, finish = asked(act, body["messages"], body.get("tools"))
            message = {"role": "assistant", **{name: value for name, value in said.items() if value is not None}}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            usage = {"prompt_tokens": len(str(body["messages"])) // 4, "completion_tokens": len(str(said)) // 4}
            usage["total_tokens"] = sum(usage.values())
            head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": body["model"]}
            self.reply(200, {**head, "usage": usage, "choices": [choice]})

        def reply(self, status: int, answer: Any) -> None:
            out = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

    ThreadingHTTPServer.request_queue_size = 256
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()


def client(url: str) -> openai.OpenAI:
    """A client whose requests say which rollout they are of, to the stand-in alone."""

    def name(request: httpx.Request) -> None:
        request.headers["x-rollout"] = str(PLAYED.get())

    return openai.OpenAI(
        base_url=url, api_key="x", max_retries=0, http_client=httpx.Client(event_hooks={"request": [name]})
    )


def play(fault: Fault, clean: bool, first: int, agent: Agent, pool: ThreadPoolExecutor) -> dict[str, Any]:
    """One run of ``STEPS`` steps from ``first`` on."""
    luck, planted = random.Random(fault.name), []
    made = Act if fault.kind == "chat" else token_agent.Tokens
    solve = agent.solve if fault.kind == "chat" else token_agent.Loop().run
    for step in range(STEPS):
        jobs: list[Any] = []
        for prompt in range(PROMPTS):
            for attempt in range(N):
                number = (first + step) * 100 + prompt * N + attempt
                act = made(step, CITIES[(prompt + step) % len(CITIES)], number, luck, prompt=prompt, attempt=attempt)
                vars(act).update(fault.base)
                usual = vars(act).copy()
                if not clean and step >= fault.since:
                    fault.planted(act)
                if vars(act) != usual:
                    planted.append([first + step, prompt, attempt])
                ACTS[number] = token_agent.ACTS[number] = act
                jobs.append((number, first + step, prompt, attempt, act.uid or f"{step}-p{prompt}", act.source, False))
        if fault.kind == "rows":
            token_agent.Trainer().generate_and_score([{"number": job[0]} for job in jobs], first + step)
        else:
            list(pool.map(lambda job: solve(*job), jobs))
    return {"name": fault.name, "clean": clean, "step": first, "planted": planted}


FAULTS = [*CHAT, *TOKENS, *ROWS]


def main() -> None:
    out, *names = sys.argv[1:]
    played = []
    with serving() as url, ThreadPoolExecutor(8) as pool:
        agent = Agent(client(url), ACTS)
        for place, fault in enumerate(FAULTS):
            for clean in (False, True) if not names or fault.name in names else ():
                played.append(play(fault, clean, 10 * (2 * place + clean), agent, pool))
    Path(out).write_text(json.dumps(played))


if __name__ == "__main__":
    main()
