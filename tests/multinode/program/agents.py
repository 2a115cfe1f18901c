"""What runs on the cluster: plain Python agents. Their spec is ``agents.yaml``; they know nothing of autotrace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray

if os.uname().nodename == "node2" and os.environ.get("CLOCK_AHEAD"):  # a machine whose clock is wrong
    _real = time.time_ns
    time.time_ns = lambda: _real() + int(os.environ["CLOCK_AHEAD"]) * 10**9


class Engine:
    """Answers prompts."""

    def generate(self, prompt: str) -> dict[str, Any]:
        return {"text": f"{prompt} -> answered on {os.uname().nodename}", "where": os.uname().nodename}


class Search:
    """A tool; ``note`` is called often, ``hang`` comes to no end."""

    def __init__(self, marks: str = "") -> None:
        self.marks = marks

    def look_up(self, words: str) -> str:
        return f"{words}: found on {os.uname().nodename}"

    def note(self, number: int) -> int:
        return number

    def hang(self, marks: Path) -> None:
        """Calls ``note`` for ever, and writes down (what no trace needs) when each was done."""
        with marks.open("w") as file:
            for number in range(10_000):
                self.note(number)
                file.write(f"{number} {time.time()}\n")
                file.flush()
                time.sleep(0.01)


class Gateway:
    """Stands between agents and the engine, and is told whose session a request is of."""

    def complete(self, session: str, messages: list[dict[str, str]]) -> dict[str, str]:
        return {"role": "assistant", "content": f"{len(messages)}: answered on {os.uname().nodename}"}


@ray.remote(num_cpus=0)
class GatewayServer:
    """Over HTTP: ``POST /SESSION``."""

    def __init__(self) -> None:
        gateway = Gateway()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                messages = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = json.dumps(gateway.complete(self.path.strip("/"), messages)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        self.server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def address(self) -> str:
        return f"http://{os.uname().nodename}:{self.server.server_port}"


HARNESS = """
import json, sys, urllib.request

messages = [{"role": "user", "content": "Do it."}]
for _ in range(2):
    with urllib.request.urlopen(sys.argv[1], json.dumps(messages).encode()) as answer:
        messages += [json.load(answer), {"role": "user", "content": "Go on."}]
print(messages[-2]["content"])
"""
"""A program that no tracer enters: it asks twice."""


@ray.remote(num_cpus=0, max_concurrency=4)
class EngineServer:
    def __init__(self) -> None:
        self.engine = Engine()

    def generate(self, prompt: str) -> dict[str, Any]:
        return self.engine.generate(prompt)


@ray.remote(num_cpus=0, max_concurrency=4)
class ToolServer:
    def __init__(self) -> None:
        self.search = Search()

    async def look_up(self, words: str) -> str:
        return self.search.look_up(words)


@ray.remote(num_cpus=0)
class HangingTool:
    def hang(self, marks: str) -> None:
        Search().hang(Path(marks))


class Agent:
    """One rollout: think (engine), look up (tool), think again."""

    def __init__(self, engine: Any, tool: Any) -> None:
        self.engine, self.tool = engine, tool

    def rollout(self, step: int, sample_index: int, rollout_n: int) -> str:
        first = self.think(f"question {sample_index}")
        found = ray.get(self.tool.look_up.remote(first["text"]))
        return self.think(found)["text"]

    def session(self, step: int, sample_index: int, rollout_n: int, session: str, gateway: str) -> str:
        words = [sys.executable, "-I", "-S", "-c", HARNESS, f"{gateway}/{session}"]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def think(self, prompt: str) -> dict[str, Any]:
        return ray.get(self.engine.generate.remote(prompt))

    def wait_for(self, step: int, sample_index: int, rollout_n: int, tool: Any, marks: str) -> None:
        ray.get(tool.hang.remote(marks))


@ray.remote(num_cpus=0, max_concurrency=4)
class Worker:
    """Runs rollouts where it was put."""

    def __init__(self, engine: Any, tool: Any) -> None:
        self.agent = Agent(engine, tool)

    def rollout(self, *identity: int) -> str:
        return self.agent.rollout(*identity)

    def session(self, *arguments: Any) -> str:
        *identity, gateway = arguments
        return self.agent.session(*identity, uuid4().hex, gateway)

    def wait_for(self, *arguments: Any) -> None:
        self.agent.wait_for(*arguments)
