"""A server that speaks as vLLM's does, with a token for each letter: the model adds with its tool, and is right if its
seed is even."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOGPROB = -0.25


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self._reply({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._reply({"tokens": _tokens(_prompt(body))} if self.path.endswith("/tokenize") else _completion(body))

    def _reply(self, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _tokens(text: str) -> list[int]:
    return [*map(ord, text)]


def _said(message: dict[str, Any]) -> str:
    calls = message.get("tool_calls")
    return calls[0]["function"]["arguments"] if calls else message["content"]


def _prompt(body: dict[str, Any]) -> str:
    told = [f"<{message['role']}>{_said(message)}" for message in body["messages"]]
    return "".join(told) + "<assistant>"


def _completion(body: dict[str, Any]) -> dict[str, Any]:
    last = body["messages"][-1]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if last["role"] == "tool":
        right = "sum" in last["content"] and body["seed"] % 2 == 0
        message["content"] = f"It is {json.loads(last['content'])['sum']}." if right else "It is 99."
    else:
        a, b = re.findall(r"\d+", last["content"])
        function = {"name": "add", "arguments": f'{{"a": {a}, "b": {b}}}'}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    tokens = _tokens(_said(message))
    content = [{"token": f"token_id:{token}", "logprob": LOGPROB, "top_logprobs": []} for token in tokens]
    reason = "stop" if last["role"] == "tool" else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": {"content": content}}
    prompt = len(_prompt(body))
    usage = {"prompt_tokens": prompt, "completion_tokens": len(tokens), "total_tokens": prompt + len(tokens)}
    base = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny"}
    return {**base, "choices": [choice], "usage": usage}


@contextmanager
def serving() -> Iterator[str]:
    """The base URL of a server that runs meanwhile."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
