"""An agent that asks an engine's HTTP server: by the client of openai, and by httpx alone, streamed.

http_agent.py COMMAND... RESULT         PORT in the command stands for the port of the server
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from agents import conversation
from openai import AsyncOpenAI

ASKED: Any = [{"role": "user", "content": "What is 1 plus 2?"}]
LIMIT = 600


def wait_until_healthy(server: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise TimeoutError("the server did not start")


async def ask(url: str) -> list[str]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-none") as client, httpx.AsyncClient() as http:

        async def turn(number: int) -> str:
            if number == 1:
                answer = await client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=8, temperature=0)
                return answer.choices[0].message.content or ""
            text = ""
            body = {"model": "tiny", "messages": ASKED, "max_tokens": 8, "temperature": 0, "stream": True}
            async with http.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=LIMIT) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        for choice in json.loads(line[6:])["choices"]:
                            text += choice["delta"].get("content") or ""
            return text

        return await conversation(turn, "one")


def main(command: list[str], result: Path) -> None:
    holder = socket.socket()  # kept, so that nobody else gets the port before the server has it
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port = int(holder.getsockname()[1])
    server = subprocess.Popen([word.replace("PORT", str(port)) for word in command])
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_healthy(server, url)
        result.write_text(json.dumps(asyncio.run(ask(url))))
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(120)


if __name__ == "__main__":
    main(sys.argv[1:-1], Path(sys.argv[-1]))
