"""An engine's own HTTP server under ``autotrace-run``: start, ask, end it; and a receiver for its OpenTelemetry."""

from __future__ import annotations

import http.client
import http.server
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine_run import LIMIT, environ

from tests import ports


class Server:
    """A server that is up."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
        """Send a request; the answer is not read yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        data = None if body is None else json.dumps(body)
        connection.request(
            "GET" if body is None else "POST", path, data, {"Content-Type": "application/json", **(headers or {})}
        )
        return connection.getresponse()

    def answer(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        """What the server answers."""
        response = self.ask(path, body, headers)
        text = response.read()
        assert response.status == 200, text
        return json.loads(text)

    def stream(self, path: str, body: Any) -> list[Any]:
        """The events of a streamed answer."""
        lines = self.ask(path, {**body, "stream": True}).read().decode().split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    def hang_up(self, path: str, body: Any) -> None:
        """Read the first event of a streamed answer and go away."""
        response = self.ask(path, {**body, "stream": True})
        response.fp.readline()
        response.close()


@contextmanager
def server(folder: Path, *command: str, **more: str) -> Iterator[Server]:
    """``command`` (``PORT`` in it stands for the port) under the launcher, until it is healthy; ended by SIGINT."""
    folder.mkdir(parents=True, exist_ok=True)
    port = ports.reserved()
    words = ["autotrace-run", *(word.replace("PORT", str(port)) for word in command)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, env=environ(folder / "runs", **more), cwd=folder, stdout=log, stderr=log)
    made = Server(process, port)
    try:
        end = time.monotonic() + LIMIT
        while True:
            assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text(errors="replace")[
                -4000:
            ]
            try:
                if made.ask("/health").status == 200:
                    break
            except OSError:
                time.sleep(0.2)
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Receiver:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    @property
    def url(self) -> str:
        """Where to send traces."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def __enter__(self) -> Receiver:
        spans = self.spans

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                import gzip

                from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

                data = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    data = gzip.decompress(data)
                found = ExportTraceServiceRequest.FromString(data)
                spans.extend(span for resource in found.resource_spans for scope in resource.scope_spans
                             for span in scope.spans)  # fmt: skip
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
