"""A stand-in for a model server: it asks for the temperature, and then says it, now and then wrongly."""

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
        town = re.findall(r"in (\w+)\?", messages[0]["content"])[0]
        if messages[-1]["role"] == "tool":
            Model.answers += 1
            degrees = int(re.findall(r"\d+", messages[-1]["content"])[0]) + (Model.answers % 3 == 0)
            deltas = [{"content": word} for word in f"It is {degrees} degrees in {town}.".split(" ")]
            deltas[1:] = [{"content": f" {delta['content']}"} for delta in deltas[1:]]
        else:
            function = {"name": "temperature", "arguments": json.dumps({"town": town})}
            deltas = [{"tool_calls": [{"index": 0, "id": "call_0", "type": "function", "function": function}]}]
        reason = "stop" if messages[-1]["role"] == "tool" else "tool_calls"
        choices = [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": reason})
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "stand-in"}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for choice in choices:
            self.wfile.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


@contextmanager
def serving() -> Iterator[str]:
    """The address of the server, which runs meanwhile."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
