"""Convert a trajectory to Weave calls.

Ids follow from ours, so that sending twice replaces the first call. The trace id written as a UUID is the id of the
trace and of the root call (Weave's pages rely on equal ids). The call of any other span is the UUID built from the
first half of the trace id and the span id. The server's table is keyed by (project, ``started_at``, id): a span's start
must never change between two deliveries.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from autotrace.insight.profile import codes, decode
from autotrace.sinks import payload
from autotrace.tables import trajectories
from autotrace.trajectory.durations import ending
from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import Span, Trajectory

OP_NAME = 128
DISPLAY_NAME = 1_024
ATTRIBUTES_OF_OURS = "autotrace_"
_STOPS = ("stop_reason", "finish_reason")
RESERVED = frozenset({"weave", "python", "os"})
"""Attribute names that W&B's client fills."""


def call_uuid(trajectory: Trajectory, span_id: str) -> str:
    """Return the Weave id of the call for ``span_id``."""
    root = trajectory.root
    if root.parent_id is None and span_id == root.span_id:
        return uuid_of(trajectory.trace_id)
    return uuid_of(trajectory.trace_id[:16] + span_id)


def uuid_of(digits: str) -> str:
    """Format 32 hexadecimal digits as ``uuid.UUID`` does, in a tenth of the time. Raises ``ValueError`` for other text.

    For a trace id, the result is the Weave id of the trace and of the root call.
    """
    if len(digits) != 32 or len(bytes.fromhex(digits)) != 16:
        raise ValueError(f"{digits!r} is not the hexadecimal form of 16 bytes")
    digits = digits.lower()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def feedback_uuid(trace_id: str, name: str) -> str:
    """Return the id of the feedback for the fact ``name``: the same in every process and at every attempt."""
    return str(UUID(bytes=hashlib.sha256(f"{trace_id}/{name}".encode()).digest()[:16]))


def object_name(name: str) -> str:
    """Convert ``name`` to the characters and the length that Weave allows for ops and objects."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[:OP_NAME] or "unnamed"


def timestamp(ns: int) -> str:
    """Format ``ns`` as ISO 8601 in UTC with microseconds; the same ``ns`` always gives the same text."""
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


class WeaveCalls:
    """Makes the calls of one trajectory. Common parts are made once.

    ``run``: ``entity/project/run_id`` of the W&B run the trainer logs to, if reported.
    """

    def __init__(self, trajectory: Trajectory, project_id: str, run: str | None) -> None:
        self._trajectory = trajectory
        self._ids = {span.span_id: call_uuid(trajectory, span.span_id) for span in trajectory.spans}
        self._shared: dict[str, Any] = {"project_id": project_id, "trace_id": uuid_of(trajectory.trace_id)}
        group = payload.group_of(trajectory.attributes)
        if group is not None:
            self._shared |= {"thread_id": group, "turn_id": self._shared["trace_id"]}
        step = trajectory.attributes.get("step")
        if run is not None:
            self._shared["wb_run_id"] = run
            if isinstance(step, int) and not isinstance(step, bool) and step >= 0:
                self._shared["wb_run_step"] = step
        self._identity = {**_flat(trajectories.tags(trajectory)), **_flat(trajectory.attributes)}

    def of(self, span: Span) -> dict[str, Any]:
        """Make the call for ``span``, without ``op_name`` and without facts."""
        trajectory = self._trajectory
        error = payload.failure(span)
        inputs, output = _content(trajectory, span)
        call = {
            **self._shared,
            "id": self._ids[span.span_id],
            "parent_id": self._ids.get(span.parent_id or ""),
            "started_at": timestamp(span.start_ns),
            "ended_at": timestamp(payload.end_of(trajectory, span)),
            "attributes": _attributes(trajectory, span, self._identity),
            "inputs": inputs,
            "output": output,
            "summary": _summary(trajectory, span, error is not None),
        }
        if error is not None:
            call["exception"] = _exception(span, error)
        if span is trajectory.root:
            call["display_name"] = payload.title(trajectory)[:DISPLAY_NAME]
        elif span.title:
            call["display_name"] = text(span.title)[:DISPLAY_NAME]
        return call


def add_facts(call: dict[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Add the trajectory's facts to the root call: ``output.reward``, ``output.facts``, ``summary.reward``."""
    if not facts:
        return call
    shown = payload.jsonable(dict(facts))
    output = call["output"] if isinstance(call["output"], dict) else {"result": call["output"]}
    summary = dict(call["summary"])
    output = {**output, "facts": shown}
    if "reward" in shown:
        output["reward"] = summary["reward"] = shown["reward"]
    return {**call, "output": output, "summary": summary}


def _flat(source: Mapping[str, Any]) -> dict[str, Any]:
    """Convert attributes for Weave, where a dot in a key means a path."""
    flat: dict[str, Any] = {}
    for name, value in source.items():
        key = text(str(name)).replace(".", "_")
        flat[f"{ATTRIBUTES_OF_OURS}{key}" if key in RESERVED else key] = payload.jsonable(value)
    return flat


def _attributes(trajectory: Trajectory, span: Span, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a call; every call has the trajectory's identity, under veRL's names."""
    attributes = {**_flat(span.attributes), **identity}
    attributes.setdefault("run_id", trajectory.run_id)
    attributes["role"] = span.role
    attributes["target"] = span.key
    attributes["status"] = span.status
    attributes["host"], attributes["pid"] = span.host, span.pid
    attributes |= {name: payload.jsonable(value) for name, value in payload.measured(span).items()}
    if span.first_item_ns:
        attributes["seconds_to_first_item"] = round((span.first_item_ns - span.start_ns) / 1e9, 6)
    if span is trajectory.root and (found := codes(decode(trajectory.profile))):
        attributes["findings"] = found
    if span is trajectory.root and trajectory.notes:
        attributes["notes"] = payload.jsonable(trajectory.notes)
    return attributes


def _content(trajectory: Trajectory, span: Span) -> tuple[dict[str, Any], Any]:
    inputs = payload.jsonable(span.inputs)
    result = payload.jsonable(span.output)
    if span.role == "llm":
        return _chat(trajectory, span, inputs, result)
    if span is not trajectory.root:
        return inputs, result
    output = dict(result) if isinstance(result, dict) else {} if result is None else {"result": result}
    output |= payload.whole(trajectory)
    output |= payload.tokens(trajectory, span)
    return inputs, output


def _chat(trajectory: Trajectory, span: Span, inputs: dict[str, Any], result: Any) -> tuple[dict[str, Any], Any]:
    """Build the shape of an OpenAI chat completion, which Weave's pages show as a conversation."""
    turn = payload.turn(span)
    model = payload.model_name(trajectory, span)
    fields = payload.tokens(trajectory, span)
    inputs = {"model": model, **inputs}
    if turn.messages:
        inputs["messages"] = turn.messages
    inputs |= {name: fields.pop(name) for name in ("new_prompt_ids", "prompt_ids") if name in fields}
    if span.prompt_base is not None:
        # the whole prompt: the first prompt_keep tokens of that call's prompt and response, then the new tokens
        inputs |= {"prompt_base": call_uuid(trajectory, span.prompt_base), "prompt_keep": span.prompt_keep}
    output: dict[str, Any] = {}
    if turn.reply is not None:
        stop = ending(trajectory, span)
        choice = {"index": 0, "message": turn.reply, "finish_reason": stop}
        if isinstance(result, dict):  # said by the choice
            result = {name: value for name, value in result.items() if name not in _STOPS or value != stop}
        output = {"object": "chat.completion", "model": model, "choices": [choice]}
    counts = payload.usage(span)
    if counts is not None:
        output["usage"] = _counts(counts)
    output |= fields
    if result is not None:
        output["result"] = result
    return inputs, output or None


def _counts(usage: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def _summary(trajectory: Trajectory, span: Span, failed: bool) -> dict[str, Any]:
    """Summarize a call; Weave adds nothing up, so the root carries the totals."""
    if span is trajectory.root:
        bad = sum(payload.failure(other) is not None for other in trajectory.spans)
        summary: dict[str, Any] = {"status_counts": {"success": len(trajectory.spans) - bad, "error": bad}}
        summary["turns"] = trajectory.turns
        usage, requests = payload.total_usage(trajectory), trajectory.turns
    else:
        summary = {"status_counts": {"success": int(not failed), "error": int(failed)}}
        usage, requests = (payload.usage(span), 1) if span.role == "llm" else (None, 0)
    if usage is not None:
        model = payload.model_name(trajectory, span)
        summary["usage"] = {model: {**_counts(usage), "requests": requests}}
    return summary


def _exception(span: Span, error: str) -> str:
    stack = text(span.error[2]) if span.error is not None else ""
    return f"{error}\n\n{stack}" if stack else error


CALL_BYTES = 3_000_000
BASE64_CHARS = 8 * 1024
CONTENT = ("inputs", "output", "attributes", "exception")
"""Parts of a call that may be cut."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}\Z")
_LONG_BASE64 = re.compile(rb'"[A-Za-z0-9+/]{%d,}={0,2}"' % (BASE64_CHARS - 2))
"""Matches a long base64 text in JSON, where no character of the text is escaped; the last two may be ``=``."""


def encoded(call: dict[str, Any]) -> bytes:
    """Encode ``call`` as JSON, without a text that the server would take for a file."""
    data = msgspec.json.encode(call)
    if len(data) < BASE64_CHARS or _LONG_BASE64.search(data) is None:
        return data
    return msgspec.json.encode(no_base64(call))


def fitted(data: bytes, limit: int = CALL_BYTES) -> bytes:
    """Fit the call ``data`` into ``limit`` bytes.

    The largest texts of a larger call lose their middle, and ``attributes.autotrace_cut`` names each text and its
    original number of characters. If even that is not enough (a million small values), whole parts are left out.
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
    """Yield ``(path, container, key)`` of every text in the parts that may be cut."""
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
    """Add a blank after every text in ``value`` that the server would take for a file: ``aaaa...`` counts as base64."""
    if isinstance(value, str):
        return value + " " if len(value) >= BASE64_CHARS and _BASE64.match(value) else value
    if isinstance(value, dict):
        return {name: no_base64(item) for name, item in value.items()}
    if isinstance(value, list):
        return [no_base64(item) for item in value]
    return value
