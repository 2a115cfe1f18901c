"""The answer inside of what an LLM call returned, where that is the HTTP response itself."""

from __future__ import annotations

from typing import Any

import msgspec

from autotrace.record.object_fields import layout_of, layouts, members
from autotrace.record.snapshot import FIXED

MAX_BODY = 4 << 20
"""Bytes of JSON that are read on the caller's thread."""


def answered(result: Any) -> Any:
    """``result``; or, of an HTTP response whose body was read, or an object around one (``with_raw_response``, which
    LangChain and the Agents SDK use), what its JSON says."""
    kind = type(result)
    layout = layouts.get(id(kind))
    if layout is None:
        if kind is dict or kind is str or kind is list or id(kind) in FIXED:
            return result
        layout = layout_of(kind)
    if layout.fields is not None:  # responses declare none
        return result
    held = members(result)
    response = dict.get(held, "http_response")
    body = dict.get(held if response is None else members(response), "_content")
    if type(body) is not bytes or not body.startswith((b"{", b"[")) or len(body) > MAX_BODY:
        return result
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return result
