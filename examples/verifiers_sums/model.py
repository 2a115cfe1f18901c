"""A stand-in for a model server: it asks for the sum, and then says it, now and then wrongly."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Model(BaseHTTPRequestHandler):
    answers = 0

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        messages = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"]
        if messages[-1]["role"] == "tool":
            Model.answers += 1
            text = f"It is {int(messages[-1]['content']) + (Model.answers % 3 == 0)}."
            message: dict[str, Any] = {"role": "assistant", "content": text}
        else:
            a, b = re.findall(r"\d+", str(messages[-1]["content"]))[-2:]
            function = {"name": "add", "arguments": json.dumps({"a": int(a), "b": int(b)})}
            call = {"id": "call_0", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        reason = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "stand-in", "usage": usage}
        body = json.dumps({**answer, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[str]:
    """The address of the server, which runs meanwhile."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
