"""Ports for servers that a test starts."""

from __future__ import annotations

import socket

_holders: list[socket.socket] = []


def reserved() -> int:
    """A port of 127.0.0.1 at which nobody listens. It stays the test's as long as its process lives: one that is found
    free and let go may be another's by the time the server starts. The server must set ``SO_REUSEADDR``, as all do."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _holders.append(holder)
    return int(holder.getsockname()[1])
