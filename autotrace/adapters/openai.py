"""openai: a raw response (``with_raw_response``, ``with_streaming_response``) that was not read says nothing of the
answer until it is parsed, so the call ends with what ``parse`` returns: a stream, or the answer.

LangChain and the Agents SDK ask for raw responses, for the sake of the headers.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from autotrace.record import closing, drivers, faults
from autotrace.record.context import OpenCall
from autotrace.record.object_fields import member

RAW = (
    ("openai._legacy_response", "LegacyAPIResponse"),
    ("openai._response", "APIResponse"),
    ("openai._response", "AsyncAPIResponse"),
)
_MARK = "__autotrace_parse__"
_kinds: set[int] = set()
_waiting: dict[int, tuple[OpenCall, weakref.ref[Any]]] = {}
"""By the ``id`` of the raw response: its call, which goes on."""


def install() -> None:
    """End calls that return raw responses when these are parsed or dropped. Idempotent."""
    for module, name in RAW:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and "parse" in vars(kind) and not hasattr(vars(kind)["parse"], _MARK):
            wrapped = _async_parse if name.startswith("Async") else _parse
            setattr(kind, "parse", wrapped(vars(kind)["parse"]))  # noqa: B010 - mypy knows no such method
            _kinds.add(id(kind))
    if _hold not in drivers.adopters:
        drivers.adopters.append(_hold)


def _hold(call: OpenCall, result: Any) -> bool:
    """Whether ``result`` is such a response; its call then goes on."""
    if id(type(result)) not in _kinds:
        return False
    response = member(result, "http_response")
    if response is None or type(member(response, "_content")) is bytes:
        return False
    _waiting[id(result)] = (call, weakref.ref(result, functools.partial(_dropped, id(result))))
    return True


def _dropped(number: int, _: Any) -> None:
    call, _ = _waiting.pop(number, (None, None))
    if call is not None:
        closing.ended(call, GeneratorExit())


def _parsed(response: Any, result: Any) -> None:
    call, _ = _waiting.pop(id(response), (None, None))
    try:
        if call is not None and not drivers.adopt(call, result):
            closing.close(call, result)
    except Exception as error:
        faults.failed("openai", error)


def _parse(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if _waiting:
            _parsed(self, result)
        return result

    setattr(parse, _MARK, True)
    return parse


def _async_parse(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def parse(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = await original(self, *args, **kwargs)
        if _waiting:
            _parsed(self, result)
        return result

    setattr(parse, _MARK, True)
    return parse
