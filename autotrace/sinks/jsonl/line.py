"""A trajectory as one line of JSON: ``docs/backends.md`` says what it holds.

A line: ``trace_id``, ``run_id``, ``status``, ``attributes``, ``facts``, ``notes``, ``findings`` (if it has any),
and ``spans``. A span: ``span_id``, ``parent_id``, ``name``, ``role``, ``key``, ``host``, ``pid``, ``start_ns``,
``end_ns``, ``status``, ``inputs``, ``output``, ``attributes``, and ``error`` if it failed (type, message, stack).
A call that yielded items also ``items`` (how many) and ``first_item_ns``; LLM calls also ``messages``,
``new_prompt_text``, ``response_text``, ``new_prompt_ids``, ``response_ids``, ``logprobs`` (lists), ``prompt_tokens``,
``response_tokens`` (how many), for some trajectories what the trainer computed (``trajectory.model.TRAINERS``),
``prompt_base`` and ``prompt_keep`` as in ``trajectory.model.Span``; the agent's call
also ``prompt_text``, ``response_text``, ``response_mask`` and ``response_parts``.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from autotrace.insight.profile import codes, decode
from autotrace.sinks import payload
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import TRAINERS, Span, Trajectory

_encode = msgspec.json.Encoder().encode


def encoded(trajectory: Trajectory) -> bytes:
    """The line, with its end."""
    line = line_of(trajectory)
    try:
        return _encode(line) + b"\n"
    except (TypeError, ValueError, OverflowError):  # values that are not plain: not from our assembly
        return _encode(jsonable(line)) + b"\n"


def line_of(trajectory: Trajectory) -> dict[str, Any]:
    """The object on a trajectory's line."""
    return {
        "trace_id": trajectory.trace_id,
        "run_id": trajectory.run_id,
        "status": trajectory.status,
        "attributes": jsonable(trajectory.attributes),
        "facts": jsonable(trajectory.facts),
        "notes": trajectory.notes,
        **({"findings": found} if (found := codes(decode(trajectory.profile))) else {}),
        "spans": [_span(span) for span in trajectory.spans],
    }


_SOMETIMES = (
    "error", "new_prompt_ids", "prompt_base", "prompt_keep", "response_ids", "prompt_tokens", "response_tokens",
    "logprobs", *TRAINERS, "response_mask", "new_prompt_text", "response_text", "response_parts", "messages",
)  # fmt: skip
"""Left out where there is nothing in them."""
_DEFERRED = frozenset({"new_prompt_ids", "response_ids", "logprobs"})
_NUMBERS = frozenset({"logprobs", *TRAINERS})


def _span(span: Span) -> dict[str, Any]:
    """What is in a span is plain already, except for log probabilities of tokens that could not be drawn."""
    line = {
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "name": span.name,
        "role": span.role,
        "key": span.key,
        "host": span.host,
        "pid": span.pid,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "status": span.status,
        "inputs": span.inputs,
        "output": span.output,
        "attributes": span.attributes,
    }
    having = vars(span)  # without what has the class's default, in which there is nothing
    for name in _SOMETIMES:
        if value := getattr(span, name) if name in _DEFERRED else having.get(name):
            if name in _NUMBERS and not math.isfinite(sum(value)):
                value = jsonable(value)
            line[name] = value
    line.update(payload.measured(span))
    if span.first_item_ns:
        line["first_item_ns"] = span.first_item_ns
    if span.role != "llm" and (text := span.prompt_text) is not None:
        line["prompt_text"] = text
    return line


class _Id(msgspec.Struct):
    trace_id: str


_BEGIN = b'{"trace_id":"'


def trace_id_of(line: bytes) -> str:
    """The trace id on one line of the file."""
    end = line.find(b'"', len(_BEGIN), len(_BEGIN) + 64)
    if line.startswith(_BEGIN) and end > 0 and b"\\" not in line[:end]:
        return line[len(_BEGIN) : end].decode()
    return msgspec.json.decode(line, type=_Id).trace_id
