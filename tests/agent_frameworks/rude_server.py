"""A model server that does what real ones do on bad days; the model's name says what. Also files, batches, Azure's
paths, and requests as a proxy gets them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

TEXT = "Größe 4 🙂"
FILE = {"id": "file-1", "object": "file", "bytes": 3, "created_at": 1, "filename": "asked.jsonl", "purpose": "batch",
        "status": "processed"}  # fmt: skip
BATCH = {"id": "batch-1", "object": "batch", "completion_window": "24h", "created_at": 1, "input_file_id": "file-1",
         "endpoint": "/v1/chat/completions", "status": "validating"}  # fmt: skip
HUGE = json.dumps({"text": "x" * 300_000})


def completion(text: str = TEXT) -> dict[str, Any]:
    """An answer that is not streamed."""
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}]
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "choices": choices}


def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
    """One chunk of a streamed answer."""
    choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": choices}
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


END = event({}, "stop") + b"data: [DONE]\n\n"


def _called(text: str, size: int) -> Iterator[bytes]:
    for start in range(0, len(text), size):
        named = {"id": "call_1", "type": "function"} if start == 0 else {}
        function = {"name": "add"} if start == 0 else {}
        call = {**named, "index": 0, "function": {**function, "arguments": text[start : start + size]}}
        yield event({"tool_calls": [call]})


class _Rude(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: ClassVar[Counter[str]] = Counter()
    enough = threading.Event()

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        path = urlsplit(self.path).path
        if path.endswith(("/files", "/batches")):
            self._json(FILE if path.endswith("/files") else BATCH)
            return
        body = json.loads(data)
        model = path.split("/deployments/")[1].split("/")[0] if "/deployments/" in path else body["model"]
        self.asked[model] += 1
        if model.startswith("busy") and self.asked[model] < 3:
            self._json({"error": {"message": "too busy"}}, 500)
        elif model == "missing":
            self._json({"error": {"message": "no such model"}}, 404)
        elif model == "moved":
            self.send_response(307)
            self.send_header("location", self.path)
            self.send_header("content-length", "0")
            self.end_headers()
        elif body.get("stream"):
            self._stream(model)
        else:
            self._json(completion('{"sum": 4}' if body.get("response_format") else TEXT))

    def _stream(self, model: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        with suppress(OSError):
            for piece in self._pieces(model):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
            if model == "broken":
                self.close_connection = True
                self.connection.close()
            else:
                self.wfile.write(b"0\r\n\r\n")

    def _pieces(self, model: str) -> Iterator[bytes]:
        said = b"".join(event({"content": piece}) for piece in (TEXT[:3], TEXT[3:]))
        if model == "cut":  # every piece ends in the middle of something, characters included
            data = said + END
            yield from (data[start : start + 7] for start in range(0, len(data), 7))
        elif model == "latin":
            yield event({"content": "Gr"}).replace(b"Gr", "Größe".encode("latin-1")) + END
        elif model == "refused":
            yield event({"content": "Gr"}) + b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
        elif model == "nothing":
            yield b"data: [DONE]\n\n"
        elif model == "called":
            yield from _called(HUGE, 30_000)
            yield END
        else:
            yield event({"content": TEXT[:3]})
            if model == "hanging":
                self.enough.wait(20)
            yield event({"content": TEXT[3:]})
            if model != "broken":
                yield END

    def _json(self, answer: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


@contextmanager
def serving() -> Iterator[str]:
    """The base URL of a server that runs meanwhile."""
    _Rude.asked.clear()
    _Rude.enough.clear()
    server = _Server(("127.0.0.1", 0), _Rude)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        _Rude.enough.set()
        server.shutdown()
        server.server_close()
