"""Agents behind Miles' session servers, of both versions, each in a process of its own; what its trainer is given. The
agent is a program that no tracer enters. SGLang and its router are stand-ins."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.agent_frameworks.miles import program  # puts into place what the imports below need

# isort: split
from miles.rollout.session.server import run_session_server
from miles.utils import http_utils
from miles.utils.types import Sample

from tests.agent_frameworks import router

AGENTS: dict[Any, str] = {True: "agent", "v2": "with_helper"}
"""By what stands after ``--use-session-server``."""


async def agent(base_url: str, prompt: str, request_kwargs: dict[str, Any], metadata: dict[str, Any]) -> None:
    """A user's. The first task's runs here, in Python."""
    if "plus 0" not in prompt:
        await _start(base_url, prompt)
        return
    messages = [{"role": "user", "content": _question(prompt)}]
    async with httpx.AsyncClient(timeout=60) as client:
        for told in ("result: 2", None):
            answer = await client.post(f"{base_url}/v1/chat/completions", json={"messages": messages})
            messages.append(answer.json()["choices"][0]["message"])
            messages += [{"role": "user", "content": told}] if told else []


async def with_helper(base_url: str, prompt: str, request_kwargs: dict[str, Any], metadata: dict[str, Any]) -> None:
    """A user's, with a sub-agent: the first version of the server takes only one history."""
    await _start(base_url, prompt, "You help.")


async def score(args: Any, sample: Any, **kwargs: Any) -> Any:
    """A user's. The samples of a rollout have one reward."""
    scores = await router.score(args, sample)
    return [max(scores, key=lambda one: one["score"])] * len(scores) if isinstance(sample, list) else scores


async def _start(base_url: str, prompt: str, *helpers: str) -> None:
    script = str(Path(__file__).with_name("agent.py"))
    command = [sys.executable, "-I", "-S", script, base_url, _question(prompt), *helpers]
    started = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    assert await started.wait() == 0


def _question(prompt: str) -> str:
    return re.sub(r"<[|]\w+[|]>", "", prompt)


def main() -> None:
    """A step with each version of the server."""
    port = program.router()
    data = router.Data(Sample, program.ROLLOUTS)
    for step, (version, name) in enumerate(AGENTS.items()):
        args = program.arguments(
            port, use_session_server=version, tito_model="default", session_message_matcher="strict",
            custom_generate_function_path="miles.rollout.generate_hub.agentic_tool_call.generate",
            custom_agent_function_path=f"tests.agent_frameworks.miles.sessions.{name}",
            session_sample_picker_path="miles.rollout.session.v2.picker_hub.drop_retries",
            session_sample_postprocessor_path="miles.rollout.session.v2.postprocessor_hub.default_postprocess",
            session_server_ip="127.0.0.1", session_server_port=free_port(), lora_rank=0,
            custom_rm_path="tests.agent_frameworks.miles.sessions.score",
        )  # fmt: skip
        args.session_server_ports = [args.session_server_port]
        server = multiprocessing.get_context("spawn").Process(
            target=run_session_server, args=(args, f"http://127.0.0.1:{port}"), daemon=True
        )
        server.start()
        http_utils.wait_for_server_ready("127.0.0.1", args.session_server_port, server, timeout=600)
        program.told(args, step, program.newer(args, data, step))
        os.kill(server.pid or 0, signal.SIGINT)  # uvicorn lets SIGTERM kill the process when all requests are served
        server.join()
        assert server.exitcode == 0


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
