"""Receives segments of other nodes and appends them to the collector's own spool, where they are like any other.

Plain HTTP, one verb: ``PUT /segments/NAME?offset=N&alive=1`` with the bytes that stand at ``offset`` of segment NAME.
The answer's ``size`` is what is here now; an offset that is not the current size is answered 409 with it, so sending
again is harmless and a relay can resume after any interruption. While a relay reports that the writer lives, the
receiver holds the file's lock on its behalf, so that ``spool.reader.writer_alive`` works as for a local writer.

Port and token stay the same for the run (``collector.json``): relays find a restarted collector again.
Each request has the sender's boot and monotonic clock (``X-Clock``), so that its records are put on this node's wall
clock, however wrong the other one's is; the error is the time that the head of a request takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import logging
import os
import re
import secrets
import socket
import sys
import threading
import time
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from autotrace.run import files, layout

_log = logging.getLogger("autotrace.ship")

MAX_BODY = 16 << 20
"""Bytes in one request."""
IDLE = 30.0
"""Seconds after which a connection on which nothing arrives is closed; relays open another."""
STRANGER = 10.0
"""Seconds in which a new connection has to show the token."""
MAX_CONNECTIONS = 512
"""Open at the same time, about one per relay; more are closed at once (a relay tries again)."""
SILENCE = 20.0
"""Seconds without a request from the relay after which a writer counts as dead."""
_NAME = re.compile(r"[A-Za-z0-9_.]{1,80}-\d{1,10}-[0-9a-f]{8}-\d{1,9}\.seg")


class _Incoming:
    """One segment of another node; its file is open as long as its writer lives there."""

    def __init__(self, path: str) -> None:
        self.fd = files.shared(path, os.O_APPEND)
        self.size = os.fstat(self.fd).st_size
        self.heard = time.monotonic()
        self.locked = False

    def hold(self) -> None:
        """Its writer lives."""
        self.heard = time.monotonic()
        if not self.locked:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.locked = True


class _Server(ThreadingHTTPServer):
    """One thread a connection, up to ``MAX_CONNECTIONS``; what goes wrong on a connection goes to the log."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.connections: dict[socket.socket, float | None] = {}
        """Since when each connection has not shown the token; None: it has."""
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self.connections) >= MAX_CONNECTIONS:
            _log.warning("more than %d connections of other nodes: one is closed", MAX_CONNECTIONS)
            self.shutdown_request(request)
            return
        self.connections[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self.connections.pop(request, None)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.pop(request, None)

    def turn_away_strangers(self) -> None:
        """Close what was opened ``STRANGER`` seconds ago and has not shown the token, however slowly it sends."""
        for connection, since in list(self.connections.items()):
            if since is not None and time.monotonic() - since > STRANGER:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # its thread, in a read, goes on and closes it

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.warning("a connection from %s was closed: %r", client_address[0], sys.exc_info()[1])


class Receiver:
    """Listens on ``host`` (default: every interface) until ``close``; ``url`` and ``token`` are what relays need.

    ``towards``: an address of the cluster, so that of several interfaces the one that leads there is published. Raises
    ``OSError`` when the given port is taken.
    """

    def __init__(self, run_folder: str | Path, host: str = "0.0.0.0", port: int = 0, towards: str = "") -> None:
        self._folder = layout.spool_of(str(run_folder))
        before = published(run_folder)
        parts = urlsplit(before.get("url", ""))
        self.token = before.get("token") or secrets.token_urlsafe(24)
        self.clocks: dict[str, int] = {}
        """Boot of another node -> nanoseconds from its monotonic clock to this node's wall clock."""
        self.silent: dict[str, None] = {}
        """Nodes that have fallen silent while something there was still being recorded."""
        self._incoming: dict[str, _Incoming] = {}
        self._guard = threading.Lock()
        self.last_heard = time.monotonic()
        try:
            self._server = _Server((host, port or parts.port or 0), _handler(self))
        except OSError:
            if port:
                raise
            self._server = _Server((host, 0), _handler(self))
        name = host if host not in ("", "0.0.0.0") else parts.hostname or address(towards)
        self.url = f"http://{name}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True).start()

    def publish(self, run_folder: str | Path) -> None:
        """Write ``collector.json`` (0600), where the launcher and the driver look for the address."""
        text = json.dumps({"url": self.url, "token": self.token})
        files.replace(Path(run_folder, layout.COLLECTOR_JSON), text.encode())

    def knows(self, connection: socket.socket) -> None:
        """The sender on ``connection`` has shown the token."""
        self._server.connections[connection] = None

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._server.connections)

    def append(self, name: str, offset: int, alive: bool, data: bytes) -> tuple[int, int]:
        """(HTTP status, size of the segment here). Raises ``OSError`` when the disk does not take it."""
        with self._guard:
            self.last_heard = time.monotonic()
            self.silent.pop(name.rsplit("-", 3)[0], None)
            incoming = self._incoming.get(name)
            if incoming is None:
                incoming = self._incoming[name] = _Incoming(os.path.join(self._folder, name))
            incoming.hold()  # never let it look dead between these bytes and their last
            if offset != incoming.size:
                return 409, incoming.size
            written = 0
            try:
                while written < len(data):
                    written += os.write(incoming.fd, data[written:])
            except OSError:
                os.ftruncate(incoming.fd, incoming.size)
                raise
            incoming.size += written
            if not alive:
                self._let_go(name)
            return 200, incoming.size

    def _let_go(self, name: str) -> None:
        """The writer of ``name`` is gone: closing the file frees its lock; a later request opens it anew."""
        incoming = self._incoming.pop(name)
        with contextlib.suppress(OSError):
            os.close(incoming.fd)

    def forget_the_silent(self) -> None:
        """Let go of writers whose relay has sent nothing for ``SILENCE`` seconds (their node is gone)."""
        self._server.turn_away_strangers()
        now = time.monotonic()
        with self._guard:
            for name, incoming in list(self._incoming.items()):
                if now - incoming.heard > SILENCE:
                    node = name.rsplit("-", 3)[0]
                    self._let_go(name)
                    self.silent[node] = None
                    _log.warning("%s has sent nothing for %.0f s; its processes are taken for dead", node, SILENCE)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        with self._guard:
            for incoming in self._incoming.values():
                with contextlib.suppress(OSError):
                    os.close(incoming.fd)


def published(run_folder: str | Path) -> dict[str, str]:
    """The contents of ``collector.json`` (``url``, ``token``); empty when there is none."""
    try:
        with open(Path(run_folder, layout.COLLECTOR_JSON), encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else {}


def address(towards: str = "") -> str:
    """The address other nodes reach this one at: that of the interface towards ``towards``, or of the default route."""
    for target in filter(None, (towards, "192.0.2.1")):  # the second: documentation range, stands for "anywhere else"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((target, 9))  # a datagram socket sends nothing here
            own = str(probe.getsockname()[0])
            if not own.startswith("127."):
                return own
    return socket.gethostbyname(socket.gethostname())


def authorized(headers: Message, token: str) -> bool:
    """The sender knows the run's token. The header may hold any byte (the standard library reads Latin-1)."""
    given = headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, f"Bearer {token}".encode())


def clock(headers: Message) -> tuple[str, int] | None:
    """Boot of the sender and the nanoseconds from its monotonic clock to our wall clock; None if absent."""
    boot, _, now = headers.get("X-Clock", "").partition(" ")
    if not boot or len(boot) > 64 or not now.isdecimal() or len(now) > 19:
        return None
    return boot, time.time_ns() - int(now)


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE
        """For the request line and for each read of headers and body."""

        def do_PUT(self) -> None:
            if not authorized(self.headers, receiver.token):
                self._answer(401, {})
                return
            receiver.knows(self.connection)
            sender_clock = clock(self.headers)  # before the body: its transfer time must not count as clock difference
            if sender_clock is not None:
                receiver.clocks.setdefault(*sender_clock)
            parts = urlsplit(self.path)
            name = parts.path.removeprefix("/segments/")
            query = parse_qs(parts.query)
            try:
                length = int(self.headers["Content-Length"])
                offset, alive = int(query["offset"][0]), query["alive"][0] == "1"
            except (KeyError, TypeError, ValueError):
                self._answer(400, {})
                return
            if not name.isascii() or not _NAME.fullmatch(name) or not 0 <= length <= MAX_BODY or offset < 0:
                self._answer(400, {})
                return
            data = self.rfile.read(length)
            if len(data) < length:
                return
            try:
                status, size = receiver.append(name, offset, alive, data)
            except OSError as error:
                _log.error("cannot write a segment of another node to disk: %s", error)
                self._answer(507, {})
                return
            self._answer(status, {"size": size})

        def _answer(self, status: int, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status not in (200, 409):
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
