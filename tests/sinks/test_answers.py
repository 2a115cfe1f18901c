"""Answers of servers are bounded, compressed or not."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from autotrace.sinks import answers
from autotrace.sinks.answers import BOUNDED

BODIES = {
    "/short": (b"{}", None),
    "/packed": (gzip.compress(b"{}"), "gzip"),
    "/long": (b" " * (answers.MOST + 1), None),
    "/expands": (gzip.compress(bytes(1 << 29), 1)[: answers.MOST_ENCODED * 2], "gzip"),
}


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body, encoding = BODIES[self.path]
        self.send_response(200)
        if encoding:
            self.send_header("content-encoding", encoding)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_short_answer_arrives(address: str) -> None:
    with httpx.Client(event_hooks=BOUNDED) as client:
        assert client.get(f"{address}/short").json() == client.get(f"{address}/packed").json() == {}


@pytest.mark.parametrize("path", ["/long", "/expands"])
def test_a_long_answer_is_a_failure_of_the_connection(address: str, path: str) -> None:
    with httpx.Client(event_hooks=BOUNDED) as client, pytest.raises(httpx.TransportError, match="more than"):
        client.get(address + path)


def test_an_answer_without_end_is_a_failure_of_the_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SECONDS", -1.0)
    with httpx.Client(event_hooks=BOUNDED) as client, pytest.raises(httpx.TransportError, match="took more"):
        client.get(f"{address}/short")
