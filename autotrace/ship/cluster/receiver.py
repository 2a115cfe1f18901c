"""Receive segments of other nodes and append them to the collector's own spool, like local segments. The receiver
listens once the run asks for a receiver.

Both ends of a ``channel`` are proved. A frame is a ``ForwardedPart`` with the bytes at ``offset`` of segment ``name``.
The answer is the present size of the segment here. Bytes at another offset are refused, so sending again is harmless
and a relay can resume after any interruption. While a relay reports that the writer lives, the receiver holds the
file's lock for the writer, so that ``spool.reader.writer_alive`` works as for a local writer.

Port and token stay the same for the run (``collector.json``): relays find a restarted collector again. Each frame has
the sender's boot and monotonic clock, which put the sender's records on this node's wall clock, however wrong the
sender's wall clock is. The error is the transfer time of the first bytes of a frame.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import secrets
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from autotrace.config import environment as env
from autotrace.run import files, layout
from autotrace.run.remote_node import published
from autotrace.ship.cluster.channel import Channel, certificate

_log = logging.getLogger("autotrace.ship")

IDLE = 30.0
"""Close a silent connection after so many seconds; relays open another connection."""
STRANGER = 10.0
"""Give a new connection so many seconds to prove that the other end knows the token."""
STRANGERS = 64
"""Limit the open connections without a proof; the oldest is closed for another."""
MAX_CONNECTIONS = 512
"""Limit the open connections, about one per relay. A further connection is closed at once (a relay tries again)."""
SILENCE = 20.0
"""Count a writer as dead after so many seconds without a request from the relay."""
_NAME = re.compile(r"[A-Za-z0-9_.]{1,80}-\d{1,10}-[0-9a-f]{8}-\d{1,9}\.seg")


class _Incoming:
    """Hold one segment of another node; the file is open as long as its writer lives."""

    def __init__(self, path: str) -> None:
        self.fd = files.shared(path, os.O_APPEND)
        self.size = os.fstat(self.fd).st_size
        self.heard = time.monotonic()

    def hold(self) -> None:
        """Note that the writer lives. A second lock changes nothing."""
        self.heard = time.monotonic()
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


class ForwardedPart(msgspec.Struct, array_like=True):
    """Hold one frame of a relay."""

    name: str
    offset: int
    alive: bool
    boot: str
    clock: int
    """Hold the sender's monotonic clock, ns."""


class _Server(socketserver.ThreadingTCPServer):
    """Serve each connection in one thread, up to ``MAX_CONNECTIONS``."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], receiver: Receiver) -> None:
        self.connections: dict[socket.socket, float | None] = {}
        """Map connection -> when it was opened, the oldest first; None: the connection has given its proof."""
        self._receiver = receiver
        super().__init__(address, socketserver.BaseRequestHandler)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        if len(self.connections) >= MAX_CONNECTIONS:
            _log.warning("more than %d connections of other nodes: one is closed", MAX_CONNECTIONS)
            self.shutdown_request(request)
            return
        strangers = [connection for connection, since in list(self.connections.items()) if since is not None]
        for connection in strangers[: max(0, len(strangers) + 1 - STRANGERS)]:
            self._turn_away(connection)
        self.connections[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self.connections.pop(request, None)
            raise

    def finish_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        try:
            request.settimeout(IDLE)
            self._receiver.serve(request)
        except (OSError, ValueError) as error:  # a stranger can open any number of connections
            _log.debug("a connection from %s was closed: %r", client_address, error)

    def turn_away_strangers(self) -> None:
        """Close connections that have given no proof within ``STRANGER`` seconds, however slowly the other end
        sends."""
        for connection, since in list(self.connections.items()):
            if since is not None and time.monotonic() - since > STRANGER:
                self._turn_away(connection)

    def _turn_away(self, connection: socket.socket) -> None:
        self.connections.pop(connection, None)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # the connection's thread, in a read, goes on and closes the socket

    def handle_error(self, request: object, client_address: object) -> None:
        _log.warning("a connection from %s was closed", client_address, exc_info=True)


class Receiver:
    """Listen on ``host`` (default: every interface) until ``close``. Relays need ``url`` and ``token``.

    ``towards``: an address of the cluster; of several interfaces, the interface that leads there is published. Raises
    ``OSError`` if the given port is taken.
    """

    def __init__(self, run_folder: str | Path, host: str = "0.0.0.0", port: int = 0, towards: str = "") -> None:
        self._folder = layout.spool_of(str(run_folder))
        before = published(run_folder)
        parts = urlsplit(before.get("url", ""))
        self.token = before.get("token") or secrets.token_urlsafe(24)
        self.clocks: dict[str, int] = {}
        """Map boot of another node -> nanoseconds from the node's monotonic clock to this node's wall clock."""
        self.silent: dict[str, None] = {}
        """List nodes that have fallen silent while a process there was still recording."""
        self._incoming: dict[str, _Incoming] = {}
        self._guard = threading.Lock()
        self.last_heard = time.monotonic()
        self._tls, digest = certificate(os.environ)
        try:
            self._server = _Server((host, port or parts.port or 0), self)
        except OSError:
            if port:
                raise
            self._server = _Server((host, 0), self)
        name = host if host not in ("", "0.0.0.0") else parts.hostname or address(towards)
        self.url = f"{'tls' if digest else 'tcp'}://{name}:{self._server.server_address[1]}{digest and f'#{digest}'}"
        threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True).start()

    def publish(self, run_folder: str | Path) -> None:
        """Write ``collector.json`` (0600), in which the launcher and the driver look for the address."""
        text = json.dumps({"url": self.url, "token": self.token})
        files.replace(Path(run_folder, layout.COLLECTOR_JSON), text.encode())

    def serve(self, connection: socket.socket) -> None:
        """Receive frames on ``connection`` until the connection ends. Raises ``OSError`` and ``ValueError``, both of
        which end the connection."""
        if self._tls is not None:
            bare, since = connection, self._server.connections.pop(connection, 0.0)
            connection = self._tls.wrap_socket(bare, server_side=True, do_handshake_on_connect=False)
            self._server.connections[connection] = since
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            channel = Channel(connection, self.token, collector=True)
            if self._server.connections.get(connection) is None:  # the connection was turned away
                return
            self._server.connections[connection] = None
            while True:
                lengths = channel.begun()
                now = time.time_ns()  # before the body: its transfer time must not count as clock difference
                head, data = channel.rest(lengths)
                arrived = msgspec.msgpack.decode(head, type=ForwardedPart)
                if not arrived.name.isascii() or not _NAME.fullmatch(arrived.name) or arrived.offset < 0:
                    raise ValueError("that is not the name of a segment")
                if arrived.boot and len(arrived.boot) <= 64:
                    self.clocks.setdefault(arrived.boot, now - arrived.clock)
                try:
                    channel.send(b"%d" % self.append(arrived.name, arrived.offset, arrived.alive, data))
                except OSError as error:
                    _log.error("cannot write a segment of another node to disk: %s", error)
                    raise
        finally:
            self._server.connections.pop(connection, None)
            connection.close()

    @property
    def connections(self) -> int:
        """Count the open connections."""
        return len(self._server.connections)

    def append(self, name: str, offset: int, alive: bool, data: bytes) -> int:
        """Append to a segment; return the segment's size afterwards. Raises ``OSError`` if the disk does not take the
        bytes."""
        with self._guard:
            self.last_heard = time.monotonic()
            self.silent.pop(name.rsplit("-", 3)[0], None)
            incoming = self._incoming.get(name)
            if incoming is None:
                incoming = self._incoming[name] = _Incoming(os.path.join(self._folder, name))
            incoming.hold()  # the segment must not look dead between these bytes and the last bytes
            if offset != incoming.size:
                return incoming.size
            try:
                files.write_all(incoming.fd, data)
            except OSError:
                os.ftruncate(incoming.fd, incoming.size)
                raise
            incoming.size += len(data)
            if not alive:
                self._let_go(name)
            return incoming.size

    def _let_go(self, name: str) -> None:
        """Close the file of ``name``, whose writer is gone, to free the lock; a later request opens the file again."""
        incoming = self._incoming.pop(name)
        with contextlib.suppress(OSError):
            os.close(incoming.fd)

    def forget_the_silent(self) -> None:
        """Release writers whose relay has sent nothing for ``SILENCE`` seconds (the node is gone)."""
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
            for name in list(self._incoming):
                self._let_go(name)


def address(towards: str = "") -> str:
    """Find the address at which other nodes reach this node, on the interface towards ``towards`` or of the default
    route."""
    for target in filter(None, (towards, "192.0.2.1")):  # the second: documentation range, stands for "anywhere else"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((target, 9))  # a datagram socket sends nothing here
            own = str(probe.getsockname()[0])
            if not own.startswith("127."):
                return own
    return socket.gethostbyname(socket.gethostname())


GRACE = 3.0
"""Wait so many seconds after the end of the run, or after a relay's last request, for other nodes."""


class Listening:
    """Receive the records of other nodes of one run."""

    def __init__(self, run_folder: Path) -> None:
        self._run_folder = run_folder
        self._receiver: Receiver | None = None
        self._problem = ""

    def look(self) -> None:
        """Listen if other nodes will send; release nodes that have stopped sending."""
        request = self._run_folder / layout.LISTEN
        if self._receiver is None and request.exists():
            host, _, port = os.environ.get(env.LISTEN, "").rpartition(":")
            try:
                self._receiver = Receiver(
                    self._run_folder, host or "0.0.0.0", int(port or 0), request.read_text().strip()
                )
                self._receiver.publish(self._run_folder)
            except (OSError, ValueError) as error:
                if not self._problem:
                    _log.error("cannot listen for other nodes: %s", error)
                self._problem = str(error)
        if self._receiver is not None:
            self._receiver.forget_the_silent()

    @property
    def clocks(self) -> Mapping[str, int]:
        """Map boot of another node -> nanoseconds from the node's monotonic clock to this node's wall clock."""
        return {} if self._receiver is None else self._receiver.clocks

    def expects_more(self, ended_for: float) -> bool:
        """Return whether last records of other nodes may be in transit, ``ended_for`` seconds after the end of the
        run."""
        receiver = self._receiver
        return receiver is not None and min(ended_for, time.monotonic() - receiver.last_heard) < GRACE

    def notes(self) -> Iterator[str]:
        """Yield notes for the user about other nodes."""
        if self._receiver is None:
            if self._problem:
                yield f"other nodes cannot send what they record: {self._problem}"
            return
        for node in self._receiver.silent:
            yield f"{node} is gone or cannot be reached: what it records stays on its disk"

    def close(self) -> None:
        """Stop listening."""
        if self._receiver is not None:
            self._receiver.close()
