"""Wait for answers of openai and anthropic that come later than the call returns.

A raw response that was not read (``with_raw_response``, ``with_streaming_response``) or the manager of a stream's
context has no answer yet. The call that returned such an object ends with the result of one of the object's methods: a
stream, or the answer. LangChain and the Agents SDK ask for raw responses to read the headers.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from autotrace.adapters.hooks import within
from autotrace.patch import adapting
from autotrace.record import closing, drivers, faults, iterators
from autotrace.record.context import OpenCall
from autotrace.record.object_fields import member

RAW = (
    ("_legacy_response", "LegacyAPIResponse", "parse"),
    ("_response", "APIResponse", "parse"),
    ("_response", "AsyncAPIResponse", "parse"),
)
"""Module below the package, class, and the method that gives the answer, for clients generated from OpenAPI
descriptions."""
CLIENTS = {
    "openai": RAW,
    "anthropic": (
        *RAW,
        ("lib.streaming._messages", "MessageStreamManager", "__enter__"),
        ("lib.streaming._messages", "AsyncMessageStreamManager", "__aenter__"),
        ("lib.streaming._beta_messages", "BetaMessageStreamManager", "__enter__"),
        ("lib.streaming._beta_messages", "BetaAsyncMessageStreamManager", "__aenter__"),
    ),
}
"""Maps a package to its objects; anthropic's ``messages.stream`` sends the request when its context is entered."""
_MARK = "__autotrace_later__"
_kinds: dict[int, str] = {}
"""Maps the ``id`` of a class to the method."""
_waiting: dict[int, iterators.Watched] = {}
"""Maps the ``id`` of an object to the unfinished call that returned the object."""


def install() -> None:
    """End calls with the later answers of clients that are imported. Idempotent."""
    for package, answers in CLIENTS.items():
        if package in sys.modules:
            wait_for(package, answers)


def wait_for(package: str, answers: Iterable[tuple[str, str, str]]) -> None:
    """End calls that return such an object when the method of ``answers`` gives the answer, or the object is dropped.

    Idempotent; a class that a release does not have is passed over.
    """
    for module, name, method in answers:
        kind = getattr(sys.modules.get(f"{package}.{module}"), name, None)
        original = vars(kind).get(method) if isinstance(kind, type) else None
        if isinstance(kind, type) and inspect.isfunction(original) and not hasattr(original, _MARK):
            answer = within(original, _Answering)
            setattr(answer, _MARK, True)
            adapting.put(kind, method, answer)
            _kinds[id(kind)] = method
    if _hold not in drivers.adopters:
        drivers.adopters.append(_hold)


def _hold(call: OpenCall, result: Any) -> bool:
    """Tell whether ``result`` is such an object; the object's call then goes on."""
    method = _kinds.get(id(type(result)))
    if method is None:
        return False
    if method == "parse":
        response = member(result, "http_response")
        if response is None or type(member(response, "_content")) is bytes:
            return False  # the response was read, and has the answer
    _waiting[id(result)] = iterators.Watched(result, call, _waiting)
    return True


class _Answering:
    """Makes the waiting call current while the method runs that gives the answer of ``value``, and ends the call with
    the result. Does nothing for an object without a waiting call."""

    __slots__ = ("_call",)

    def __init__(self, value: Any, *_: Any, **__: Any) -> None:
        watched = iterators.watched_in(value, _waiting)
        self._call: OpenCall | None = None if watched is None else _waiting.pop(watched.number).call

    def __enter__(self) -> Callable[[Any], Any] | None:
        if self._call is None:
            return None
        closing.enter(self._call)
        return functools.partial(self._end, self._call)

    def _end(self, call: OpenCall, result: Any) -> Any:
        """End the call with ``result``, and return ``result``."""
        closing.leave(call)
        try:
            if not drivers.adopt(call, result):
                closing.close(call, result)
        except Exception as error:
            faults.failed("later answer", error)
        return result

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if self._call is not None and error is not None:
            closing.fail(self._call, error)
