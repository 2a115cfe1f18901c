"""What the HTTP servers of the tests have in common."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietServer(ThreadingHTTPServer):
    """Listens at ``url``, a port of its own by default. Says nothing of clients that hang up: tests kill
    them, and a word of a server would stand in the output of whatever test runs by then."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        """Answer, in a thread, until the process ends or ``shutdown``."""
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing."""


@contextmanager
def answering(code: int, **headers: str) -> Iterator[tuple[QuietServer, list[str | None]]]:
    """A server that answers each GET with ``code`` and ``headers``, and the ``Authorization`` it was asked with."""
    credentials: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            credentials.append(self.headers["Authorization"])
            self.send_response(code)
            for header in headers.items():
                self.send_header(*header)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with QuietServer(Handler) as server:
        server.start()
        yield server, credentials
        server.shutdown()
