"""Record model requests that no client library makes, and give ids to model requests, for httpx and httpx2.

A program may call an OpenAI-like or Anthropic-like server without a client library. A post to one of the servers' paths
is recorded like a client's call: the body of the request replaces the arguments, and the body of the answer, streamed
or not, is the result.

Every attempt to call a model inside a recorded call, by any client, is sent with a separate ``x-request-id``, unless
the request has an id: an engine traced in the same run is found by the id (``record.statements.requests``). The header
exists only while the request is being sent: neither the program's request nor its hooks see the header.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import AsyncGeneratorType, GeneratorType, ModuleType
from typing import Any

import msgspec

from autotrace.adapters.hooks import follow, within
from autotrace.patch import adapting
from autotrace.record import calls, closing, context, drivers, faults, ids, iterators, orphans, statements
from autotrace.record.context import OpenCall
from autotrace.record.errors import Failure
from autotrace.record.event_bytes import MAX_BYTES, EventBytes
from autotrace.record.follower import Follower
from autotrace.record.object_fields import member

LIBRARIES = ("httpx", "httpx2")
CLIENTS = ("Client", "AsyncClient")
QUESTIONS = {
    b"/chat/completions": "messages",
    b"/completions": "prompt",
    b"/responses": "input",
    b"/messages": "messages",
}
"""Maps ends of paths to the field without which a body is not a question."""
ENGINES = (*QUESTIONS, b"/generate")
"""Ends of paths at which a model answers, in any protocol."""
RECORDED_CLIENTS = ("openai.", "anthropic.", "litellm.")
"""Prefixes of client libraries whose calls are recorded already."""
HEADER = "x-request-id"
_MARK = "__autotrace_named__"


def install() -> None:
    """Attach to the targets, and give ids to requests. Idempotent."""
    for library in LIBRARIES:
        for client in CLIENTS:
            follow(_key(library, client), Question())
        adapting.when_imported(f"{library}._client", _hook)


def _key(library: str, client: str) -> str:
    return f"{library}._client.{client}.send"


# -- requests that no client makes ------------------------------------------------------------------------------------


class Question(Follower):
    """Follows a request to a model."""

    def __init__(self) -> None:
        self._read: tuple[Any, dict[str, Any]] | None = None
        """Request that was admitted last, and the body."""

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        above = context.current_call()
        if above is None and orphans.is_running(RECORDED_CLIENTS):
            return False
        if above is not None and above.probe is not None and above.probe.key.startswith(RECORDED_CLIENTS):
            return False
        request = args[1] if len(args) > 1 else kwargs.get("request")
        body = question(request)
        self._read = None if body is None else (request, body)
        return body is not None

    def shows(self, arguments: dict[str, Any]) -> None:
        read, self._read = self._read, None
        request = arguments.get("request")
        if read is None or read[0] is not request:  # another thread's came in between
            arguments["request"] = question(request)
        else:
            arguments["request"] = read[1]

    def holds(self, call: OpenCall, result: Any) -> bool:
        whole = member(result, "_content")
        if result.status_code >= 400:
            text = whole[:1000].decode(errors="replace") if type(whole) is bytes else ""
            closing.fail(call, Failure(refusal(call, result.status_code), *([text] if text else [])))
            return True
        bound = result.stream
        inner = member(bound, "_stream")
        if type(whole) is bytes or inner is None or call.probe is None:
            return False
        kind, encoding = (result.headers.get(f"content-{name}", "").lower() for name in ("type", "encoding"))
        call.yielded = EventBytes(call.probe.role, call.probe.capture.limits, kind, encoding)
        bound._stream = Followed(inner, call)
        return True


def refusal(call: OpenCall, status: int) -> str:
    """Name a status of 400 or more: ``HTTP 404 Not Found``. The server's own words are left out."""
    library = sys.modules.get(call.probe.key.partition(".")[0]) if call.probe is not None else None
    name = "" if library is None else library.codes.get_reason_phrase(status)
    return f"HTTP {status} {name}".rstrip()


def question(request: Any) -> dict[str, Any] | None:
    """Return the body of a request that asks a model something; None for any other request."""
    path = asked_at(request, tuple(QUESTIONS))
    content = member(request, "_content")
    if path is None or type(content) is not bytes or not content.startswith(b"{") or len(content) > MAX_BYTES:
        return None
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    needed = next(field for end, field in QUESTIONS.items() if path.endswith(end))
    return body if type(body) is dict and needed in body else None


def asked_at(request: Any, ends: tuple[bytes, ...]) -> bytes | None:
    """Return the path that ``request`` is posted to, if the path has one of ``ends``."""
    if member(request, "method") != "POST":
        return None
    path: bytes = request.url.raw_path.partition(b"?")[0]
    return path if path.endswith(ends) else None


_unread: dict[int, iterators.Watched] = {}
"""Maps the ``id`` of a followed stream to the watch."""


class Followed:
    """Wraps the stream of bytes of an answer; the end of the stream is the end of ``call``."""

    def __init__(self, inner: Any, call: OpenCall) -> None:
        self._inner = inner
        self._call = call
        _unread[id(self)] = iterators.Watched(self, call, _unread)

    def __iter__(self) -> Any:
        return self._through(iter(self._inner))

    def __aiter__(self) -> Any:
        return self._through(self._inner.__aiter__())

    def _through(self, iteration: Any) -> Any:
        kind = type(iteration)
        if kind not in (GeneratorType, AsyncGeneratorType) or not drivers.is_unstarted(iteration):
            closing.close(self._call, None)
            return iteration
        return drivers.through(self._call, iteration)

    def close(self) -> None:
        """Close as the stream does."""
        self._left()
        self._inner.close()

    async def aclose(self) -> None:
        """Close as the stream does."""
        self._left()
        await self._inner.aclose()

    def _left(self) -> None:
        _unread.pop(id(self), None)
        try:
            closing.ended(self._call, GeneratorExit())
        except Exception as error:
            faults.failed("httpx:stream", error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# -- ids of requests --------------------------------------------------------------------------------------------------


def _hook(module: ModuleType) -> None:
    for name in CLIENTS:
        kind: Any = getattr(module, name, object)
        original = vars(kind).get("_send_single_request")
        if inspect.isfunction(original) and not hasattr(original, _MARK):
            key = _key(module.__name__.partition(".")[0], name)
            send = within(original, functools.partial(_named_by, key))
            setattr(send, _MARK, True)
            adapting.put(kind, "_send_single_request", send)


@contextmanager
def _named_by(key: str, client: Any, request: Any, *_: Any) -> Generator[None]:
    """Give ``request`` an id while a model is called; the current call states the id."""
    added = False
    call = context.current_call()
    if call is not None and call.recorded and call.probe is not None and call.probe.role == "llm":
        try:
            added = key in calls.probes and asked_at(request, ENGINES) is not None and _name(request)
        except Exception as error:
            faults.failed("httpx:request", error)
    try:
        yield
    finally:
        if added:
            try:
                request.headers.pop(HEADER, None)
            except Exception as error:
                faults.failed("httpx:request", error)


def _name(request: Any) -> bool:
    """Have the current call state the request's id; tell whether the id was given here."""
    given = request.headers.get(HEADER)
    name = given or ids.new_trace_id().hex()
    if not given:
        request.headers[HEADER] = name
    statements.requests(name)
    return not given
