"""openai and anthropic: objects that have no answer yet, such as a raw response that was not read
(``with_raw_response``, ``with_streaming_response``) or the manager of a stream's context. The call that returned one
ends with what a method of the object returns later: a stream, or the answer.

LangChain and the Agents SDK ask for raw responses, for the sake of the headers.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from autotrace.patch import adapting
from autotrace.record import closing, drivers, faults, iterators
from autotrace.record.context import OpenCall
from autotrace.record.object_fields import member

RAW = (
    ("_legacy_response", "LegacyAPIResponse", "parse"),
    ("_response", "APIResponse", "parse"),
    ("_response", "AsyncAPIResponse", "parse"),
)
"""Module below the package, class, and the method that gives the answer: of clients that are generated from OpenAPI
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
"""Package -> its objects; anthropic's ``messages.stream`` asks when its context is entered."""
_MARK = "__autotrace_later__"
_kinds: dict[int, str] = {}
"""By the ``id`` of the class: its method."""
_waiting: dict[int, iterators.Watched] = {}
"""By the ``id`` of the object: the call that returned it, which goes on."""


def install() -> None:
    """Have calls end with what such objects of the clients say that are imported. Idempotent."""
    for package, answers in CLIENTS.items():
        if package in sys.modules:
            wait_for(package, answers)


def wait_for(package: str, answers: Iterable[tuple[str, str, str]]) -> None:
    """End calls that return such an object when ``answers`` gives what it stands for, or when it is dropped.
    Idempotent; what a release does not have is passed over."""
    for module, name, method in answers:
        kind = getattr(sys.modules.get(f"{package}.{module}"), name, None)
        original = vars(kind).get(method) if isinstance(kind, type) else None
        if isinstance(kind, type) and inspect.isfunction(original) and not hasattr(original, _MARK):
            answer = _answering(original)
            setattr(answer, _MARK, True)
            adapting.put(kind, method, answer)
            _kinds[id(kind)] = method
    if _hold not in drivers.adopters:
        drivers.adopters.append(_hold)


def _hold(call: OpenCall, result: Any) -> bool:
    """Whether ``result`` is such an object; its call then goes on."""
    method = _kinds.get(id(type(result)))
    if method is None:
        return False
    if method == "parse":
        response = member(result, "http_response")
        if response is None or type(member(response, "_content")) is bytes:
            return False  # it was read, and says what the answer is
    _waiting[id(result)] = iterators.Watched(result, call, _waiting)
    return True


class _Answering:
    """While the method runs that gives the answer which ``value`` stands for: its call is current, and ends with what
    comes of it. Does nothing for an object that no call waits for."""

    __slots__ = ("_call",)

    def __init__(self, value: Any) -> None:
        watched = iterators.watched_in(value, _waiting)
        self._call: OpenCall | None = None if watched is None else _waiting.pop(watched.number).call

    def __enter__(self) -> _Answering:
        if self._call is not None:
            closing.enter(self._call)
        return self

    def with_result(self, result: Any) -> Any:
        """End the call with ``result``, which is returned."""
        call = self._call
        if call is not None:
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


def _answering(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def answer(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _Answering(self) as answering:
            return answering.with_result(original(self, *args, **kwargs))

    @functools.wraps(original)
    async def answer_later(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _Answering(self) as answering:
            return answering.with_result(await original(self, *args, **kwargs))

    return answer_later if inspect.iscoroutinefunction(original) else answer
