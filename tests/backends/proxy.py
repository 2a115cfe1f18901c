"""A proxy in front of a real backend that fails on order, and counts what it is sent."""

from __future__ import annotations

import http.client
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "weave_server"))
from fake_server import Fault

from tests.http_server import QuietServer

_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


class Proxy(QuietServer):
    """Listens on a free port and passes on to ``target``, unless one of ``faults`` hits."""

    def __init__(self, target: str) -> None:
        super().__init__(_Handler)
        self.host = urlsplit(target).netloc
        self.faults: list[Fault] = []
        self.hits: list[str] = []
        """Paths of the requests that a fault met."""
        self.taken: list[tuple[str, int]] = []
        """Path and bytes of the requests that the backend answered with success."""
        self.lock = threading.Lock()
        self.start()

    def fault_for(self, path: str, body: bytes) -> Fault | None:
        """The first fault that this request meets, counted."""
        with self.lock:
            for fault in self.faults:
                if fault.hits(path, body):
                    fault.times -= 1
                    self.hits.append(path)
                    return fault
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are expected here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        fault = self.server.fault_for(self.path, body)
        if fault is not None:
            time.sleep(fault.delay)
            if fault.after:
                self._passed_on(body)
            if fault.drop:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if fault.status:
                self._answer(fault.status, fault.headers, b'{"reason": "ordered by the test"}')
                return
        status, headers, content = self._passed_on(body)
        if status < 300:
            with self.server.lock:
                self.server.taken.append((self.path, len(body)))
        self._answer(status, headers, content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def _passed_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.host, timeout=120)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
