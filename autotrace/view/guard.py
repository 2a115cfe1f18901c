"""Who may ask the server, and what its pages may do.

The link has a token, on 127.0.0.1 too: on a machine of several people anybody may connect to that. The first request
puts it into a cookie. Refused are a ``Host`` that is another machine's name (a page that had its own name resolve to
us), requests of other pages, and anything but reading.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Guard:
    """ASGI middleware. ``host``: the address that the server listens on; ``port``; ``token``: of the link."""

    def __init__(self, app: ASGIApp, host: str, port: int, token: str) -> None:
        self._app = app
        self._names = _LOOPBACK if host in _LOOPBACK else _LOOPBACK | {host, socket.gethostname(), socket.getfqdn()}
        self._anywhere = host not in _LOOPBACK
        self._token = token.encode()
        self._cookie = f"autotrace-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        response = self._refusal(scope)
        if response is not None:
            response.headers.update(HEADERS)
            await response(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                added.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in given)]
            await send(message)

        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to who may not ask; None: go on."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self._is_ours(host):
            return PlainTextResponse(f"this server is not {host!r}: open the link that autotrace view printed", 403)
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return PlainTextResponse("pages of other origins may not ask this server", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("runs are only read here", 405)
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if self._right(query.pop("token", [""])[0]):
            rest = urlencode(query, doseq=True)
            answer = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(self._cookie, self._token.decode(), httponly=True, samesite="strict")
            return answer
        if not self._right(self._carried(headers.get(b"cookie", ""))):
            return PlainTextResponse("the token is missing: open the link that autotrace view printed", 401)
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        return self._anywhere and _is_address(name)

    def _carried(self, cookies: str) -> str:
        try:
            found = SimpleCookie(cookies).get(self._cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), self._token)


def _is_address(name: str) -> bool:
    """An address cannot be made to resolve to another machine."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
