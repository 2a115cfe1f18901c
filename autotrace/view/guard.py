"""Decide which requests the server answers, and restrict its pages.

On a machine of several people anybody may connect to 127.0.0.1. The link has a code that opens the page once: the
page's script exchanges the code for the session, keeps the session where no page of another port can look, and shows
the session in a header of each question, which no browser adds by itself (a cookie goes to every port). Anybody gets
the files of the page, which hold nothing of a run.

The guard refuses a ``Host`` that is another machine's name (a page that had its own name resolve to this machine),
requests of other pages, and anything but reading and labelling. Connections that have not shown the session are
strangers': at most ``STRANGERS`` connections, each for ``PATIENCE`` seconds, with ``HEAD`` bytes before a complete
request.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

STRANGERS = 128
"""Connections at the same time; a further connection closes the oldest, so nobody can keep the owner out."""
PATIENCE = 10.0
HEAD = 8192
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_LABEL = re.compile(r"/api/runs/[^/]+/traces/[^/]+/label")
"""Path of a label, the only write."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Guard:
    """Guard the application as ASGI middleware. ``host``: the listening address; ``opened``: called when a link was
    used."""

    def __init__(self, app: ASGIApp, host: str, opened: Callable[[], None] = lambda: None) -> None:
        self._app = app
        self._names = _LOOPBACK if host in _LOOPBACK else _LOOPBACK | {host, socket.gethostname(), socket.getfqdn()}
        self._anywhere = host not in _LOOPBACK
        self._opened = opened
        self._code = ""
        self._session = secrets.token_urlsafe(24)
        self._strangers: dict[object, tuple[float, asyncio.Transport]] = {}
        """Address of a connection -> time of connection; the oldest first."""

    def code(self) -> str:
        """Return the code of a new link. The code opens the page once; earlier links stop working."""
        self._code = secrets.token_urlsafe(24)
        return self._code

    def connection(self) -> type[H11Protocol]:
        """Return the protocol class for the server's connections."""
        guard = self

        class Connection(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
                super().connection_made(transport)
                guard._arrived(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                guard._strangers.pop(self.client, None)

        return Connection

    def _arrived(self, client: object, transport: asyncio.Transport) -> None:
        if not self._strangers:
            asyncio.get_running_loop().call_later(1, self._turn_away)
        self._strangers[client] = time.monotonic(), transport
        if len(self._strangers) > STRANGERS:
            self._strangers.pop(next(iter(self._strangers)))[1].abort()

    def _turn_away(self) -> None:
        """Close connections that have been strangers' for too long; check again while strangers remain."""
        for client, (since, transport) in list(self._strangers.items()):
            if time.monotonic() - since > PATIENCE:
                del self._strangers[client]
                transport.abort()
        if self._strangers:
            asyncio.get_running_loop().call_later(1, self._turn_away)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        response = self._own_answer(scope)
        if response is not None:
            response.headers.update(HEADERS)
            await response(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in given)]
            await send(message)

        await self._app(scope, receive, guarded)

    def _own_answer(self, scope: Scope) -> Response | None:
        """Return the refusal, or the answer to an opened link; None: the application may answer."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self._is_ours(host):
            return PlainTextResponse(f"this server is not {host!r}: open the link that autotrace view printed", 403)
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            return PlainTextResponse("pages of other origins may not ask this server", 403)
        writes = scope["method"] == "POST" and _LABEL.fullmatch(scope["path"])
        if scope["method"] not in ("GET", "HEAD") and not writes:
            return PlainTextResponse("runs are only read here", 405)
        path, shown = scope["path"], headers.get(b"authorization", "")
        if path == "/session":
            if not self._code or not _is(shown, self._code):
                return PlainTextResponse("this link was opened already: open the one that was printed last", 401)
            self._code = ""
            self._opened()
            return PlainTextResponse(self._session)
        if _is(shown, self._session):
            self._strangers.pop(scope.get("client"), None)
        elif path not in ("/", "/page.js") and not path.startswith("/static/"):
            return PlainTextResponse("this page was not let in: open the link that autotrace view printed last", 401)
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name not in self._names:
                ipaddress.ip_address(name)  # an IP address cannot be made to resolve to another machine
        except ValueError:
            return False
        return name in self._names or self._anywhere


def _is(shown: str, secret: str) -> bool:
    return hmac.compare_digest(shown.encode("utf-8", "replace"), f"Bearer {secret}".encode())
