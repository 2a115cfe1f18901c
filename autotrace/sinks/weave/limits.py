"""The trace server's limits on size, and how a call is made to fit.

Sources: W&B's client 0.54.0 and its last public server (0.52.41). A request may hold 32 MiB (the client splits at 31)
and 1,000 calls. A row over 3.5 MiB is refused. Text of 8 KiB and more that is nothing but base64 characters is
replaced by a reference to a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

CALL_BYTES = 3_000_000
REQUEST_BYTES = 8 * 1024 * 1024
"""The server takes four times as much; a smaller request ends within the timeout on a slow line."""
REQUEST_CALLS = 1_000
BASE64_CHARS = 8 * 1024
CONTENT = ("inputs", "output", "attributes", "exception")
"""Parts of a call that may be cut."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}\Z")
_LONG_BASE64 = re.compile(rb'"[A-Za-z0-9+/]{%d,}={0,2}"' % (BASE64_CHARS - 2))
"""One of them in JSON, where none of its characters is escaped; the last two may be ``=``."""
_Item = TypeVar("_Item")


def encoded(call: dict[str, Any]) -> bytes:
    """``call`` as JSON, without a text that the server would take for a file."""
    data = msgspec.json.encode(call)
    if len(data) < BASE64_CHARS or _LONG_BASE64.search(data) is None:
        return data
    return msgspec.json.encode(no_base64(call))


def fitted(data: bytes, limit: int = CALL_BYTES) -> bytes:
    """The call ``data`` in at most ``limit`` bytes.

    If it is larger, its largest texts lose their middle, and ``attributes.autotrace_cut`` says which ones and how many
    characters they had. If even that is not enough (a million small values), whole parts are left out.
    """
    if len(data) <= limit:
        return data
    call = msgspec.json.decode(data)
    attributes = call.setdefault("attributes", {})
    lengths: dict[str, int] = {}
    for keep in (65_536, 16_384, 4_096, 1_024, 256):
        excess = len(data) + 128 - limit
        for path, holder, key in sorted(_texts(call), key=lambda leaf: -len(leaf[1][leaf[2]])):
            value = holder[key]
            kept = max(keep, len(value) - excess - 128)
            if excess <= 0 or len(value) <= keep:
                break
            lengths.setdefault(path, len(value))
            short = f"{value[: kept // 2]} … [{lengths[path] - kept} characters cut] … {value[-(kept // 2) :]}"
            holder[key] = short
            excess += 128 - (len(value) - len(short))
        attributes["autotrace_cut"] = [f"{path}: {length} characters" for path, length in list(lengths.items())[:50]]
        data = msgspec.json.encode(call)
        if len(data) <= limit:
            return data
    for part in ("output", "inputs"):
        size = len(msgspec.json.encode(call.get(part)))
        call[part] = {"…": f"{size} bytes left out: larger than the server takes"}
        attributes["autotrace_cut"].append(f"{part}: left out")
        data = msgspec.json.encode(call)
        if len(data) <= limit:
            break
    return data


def _texts(call: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """``(path, container, key)`` of every text in the parts that may be cut."""
    waiting: list[tuple[str, Any, Any]] = [(part, call, part) for part in CONTENT if part in call]
    while waiting:
        path, holder, key = waiting.pop()
        value = holder[key]
        if isinstance(value, str):
            yield path, holder, key
        elif isinstance(value, dict):
            waiting.extend((f"{path}.{name}", value, name) for name in value if name != "autotrace_cut")
        elif isinstance(value, list):
            waiting.extend((f"{path}.{index}", value, index) for index in range(len(value)))


def no_base64(value: Any) -> Any:
    """``value`` with a blank after every text that the server would take for a file: ``aaaa...`` is base64 to it."""
    if isinstance(value, str):
        return value + " " if len(value) >= BASE64_CHARS and _BASE64.match(value) else value
    if isinstance(value, dict):
        return {name: no_base64(item) for name, item in value.items()}
    if isinstance(value, list):
        return [no_base64(item) for item in value]
    return value


def batches(items: Sequence[tuple[_Item, bytes]]) -> Iterator[list[tuple[_Item, bytes]]]:
    """``items`` in order, in requests within the limits."""
    batch: list[tuple[_Item, bytes]] = []
    size = 0
    for item in items:
        if batch and (size + len(item[1]) > REQUEST_BYTES or len(batch) >= REQUEST_CALLS):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item[1]) + 1
    if batch:
        yield batch
