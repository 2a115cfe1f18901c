"""Read LLM calls as turns with their messages. Several recorded calls may be the same turn or tool call: clients call
other clients, and nested toolsets (prefixes, approval, limits) pass a call on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from autotrace.ship.assembly import chat
from autotrace.spool.records import OF
from autotrace.trajectory.model import Span, ancestors
from autotrace.trajectory.tool_calls import BESIDE_NAME, named_tool

PASSED_ON = "passed_on"
"""Attribute: number of nested calls of the same target that only passed the call on."""


def join_passed_on(spans: list[Span]) -> list[Span]:
    """Remove passed-on tool calls from ``spans``: the only tool call inside a call of the same target, with the same
    name, arguments and end. Inner calls move below the outermost call, which counts the removed calls.

    A wrapper that tried twice, or made an error an answer, stays with its inner calls.
    """
    tools: dict[str, Span] = {}
    inside: list[tuple[Span, Span]] = []
    for span in spans:
        if span.role == "tool":
            outer = tools.get(span.parent_id or "")  # began before the inner call: no circle is possible
            if outer is not None:
                inside.append((outer, span))
            tools[span.span_id] = span
    alone = Counter(outer.span_id for outer, _ in inside)
    passed = {
        inner.span_id: outer.span_id for outer, inner in inside if alone[outer.span_id] == 1 and _is_same(outer, inner)
    }
    if not passed:
        return spans
    for inner in passed:
        outermost = tools[_passed_on_by(inner, passed)].attributes
        outermost[PASSED_ON] = outermost.get(PASSED_ON, 0) + 1
    left = [span for span in spans if span.span_id not in passed]
    for span in left:
        if span.parent_id in passed:
            span.parent_id = _passed_on_by(span.parent_id, passed)
    return left


def _passed_on_by(span_id: str, passed: dict[str, str]) -> str:
    while span_id in passed:
        span_id = passed[span_id]
    return span_id


def _is_same(outer: Span, inner: Span) -> bool:
    if (outer.key, outer.status) != (inner.key, inner.status):
        return False
    name = named_tool(outer)
    return name is not None and name == named_tool(inner) and _given(outer) == _given(inner)


def _given(span: Span) -> dict[str, Any]:
    """Return the tool's arguments, without arguments between toolsets (context, own tool)."""
    given = {name: value for name, value in span.inputs.items() if name in BESIDE_NAME}
    return given or span.inputs


def read_llm_calls(spans: Sequence[Span]) -> None:
    """Fill the chat of the LLM calls. Among nested LLM calls (a framework's call over its client's), the outermost is
    the turn, unless only the inner call has tokens; missing values come from the last inner call, and values of both
    calls are kept once."""
    calls = [span for span in spans if span.role == "llm"]
    for span in calls:
        chat.read(span)
    _count_by_engine(spans, calls)
    if len(calls) < 2:
        return
    by_id = {span.span_id: span for span in spans}
    _below_their_requests(calls, by_id)
    inside: list[tuple[Span, Span]] = []
    instead: dict[str, Span] = {}
    for span in calls:
        outer = _outermost(span, by_id) or _beside(span, by_id, instead)
        if outer is None:
            continue
        if _has_tokens(span) and not _has_tokens(outer):
            outer.role = "span"
            instead[outer.span_id] = span
            _inherit(span, outer)
            _say_once(span, outer)
        else:
            span.role = "engine"
            _inherit(outer, span)
            inside.append((outer, span))
    for outer, span in inside:
        _say_once(outer, span)


def _below_their_requests(calls: Sequence[Span], by_id: dict[str, Span]) -> None:
    """Move a call that was joined by its id (a server's side) below the agent's own call that the server answers, if
    any: with the same question, perhaps known from an inner call, and around the server's call in time."""
    told = {span.span_id: span for span in calls if span.messages}
    for span in [*told.values()]:
        for above in ancestors(span, by_id):
            told.setdefault(above.span_id, span)
    busy: dict[str, int] = {}
    """Agent's call -> end of the call's last request; a client may try again."""
    for served in (span for span in calls if OF in span.attributes and span.span_id in told):
        telling = told[served.span_id]
        question = _question(telling)
        asking = [
            span
            for span in calls
            if OF not in span.attributes and busy.get(span.span_id, 0) <= served.start_ns and _encloses(span, served)
            and _question(span) == question and not any(call is served for call in ancestors(span, by_id))
        ]  # fmt: skip
        if asking:  # among several calls with the same question: the same answer first, then the call that began last
            span = min(asking, key=lambda one: (_answer(one) != _answer(telling), -one.start_ns))
            served.parent_id = span.span_id
            busy[span.span_id] = served.end_ns or _NEVER


def _count_by_engine(spans: Sequence[Span], calls: Sequence[Span]) -> None:
    """Copy token counts from the only engine request below a call whose answer lacks usage (most streams)."""
    untold = [span for span in calls if span.prompt_tokens is None]
    requests = [span for span in spans if span.role == "engine" and span.prompt_tokens is not None] if untold else []
    if not requests:
        return
    by_id = {span.span_id: span for span in spans}
    below: dict[str, list[Span]] = {}
    for request in requests:
        outer = _outermost(request, by_id)
        if outer is not None:
            below.setdefault(outer.span_id, []).append(request)
    for span in untold:
        if len(served := below.get(span.span_id, [])) == 1:
            span.prompt_tokens, span.response_tokens = served[0].prompt_tokens, served[0].response_tokens


_NEVER = 1 << 63


def _encloses(outer: Span, inner: Span) -> bool:
    return outer.start_ns <= inner.start_ns and (outer.end_ns or _NEVER) >= (inner.end_ns or inner.start_ns)


def _question(span: Span) -> list[tuple[object, object]]:
    messages = span.messages or []
    asked = messages[:-1] if messages and messages[-1].get("role") == "assistant" else messages
    return [(message.get("role"), message.get("content") or None) for message in asked]


def _answer(span: Span) -> object:
    last = span.messages[-1] if span.messages else {}
    return last.get("content") if last.get("role") == "assistant" else None


def _has_tokens(span: Span) -> bool:
    return span.packed_prompt is not None or span.packed_response is not None


def _outermost(span: Span, by_id: dict[str, Span]) -> Span | None:
    """Return the highest LLM call above ``span`` without a tool or reward in between, which would make its own
    calls."""
    outer = None
    for above in _around(span, by_id):
        outer = above if above.role == "llm" else outer
    return outer


def _around(span: Span, by_id: dict[str, Span]) -> Iterator[Span]:
    return takewhile(lambda call: call.role in ("llm", "engine", "span", "agent"), ancestors(span, by_id))


def _beside(span: Span, by_id: dict[str, Span], instead: dict[str, Span]) -> Span | None:
    """Return the call that is the turn ``instead`` of a call above ``span``, if ``span`` was made during that call and
    asks the same."""
    if _has_tokens(span):
        return None
    turns = (instead[above.span_id] for above in _around(span, by_id) if above.span_id in instead)
    return next((turn for turn in turns if _encloses(turn, span) and _may_ask_the_same(turn, span)), None)


def _may_ask_the_same(one: Span, other: Span) -> bool:
    return not one.messages or not other.messages or _words(_question(one)) == _words(_question(other))


def _say_once(turn: Span, other: Span) -> None:
    """Remove messages from a call if the turn has the same messages; keep the call's own messages."""
    if turn.messages is None or other.messages is None:
        return
    asked, again = _question(turn), _question(other)
    if asked == again or _words(asked) == _words(again):
        other.messages = None


def _words(question: Sequence[tuple[object, object]]) -> str:
    """Return the words, independent of the division into messages: clients join messages of a role, and have other
    roles."""
    said = (content if isinstance(content, str) else str(content) for _, content in question if content is not None)
    return "".join("".join(said).split())


def _inherit(turn: Span, other: Span) -> None:
    """Copy missing values of the turn from another of its calls: a call may have the tokens and another call the
    words."""
    if other.messages is not None:
        reply = (other.messages or [{}])[-1]
        if turn.messages is None:
            turn.messages = other.messages
        elif turn.messages[-1].get("role") != "assistant" and reply.get("role") == "assistant":
            turn.messages.append(reply)
    for name in ("prompt_tokens", "response_tokens"):
        if getattr(turn, name) is None:
            setattr(turn, name, getattr(other, name))
    for name in ("model", "finish_reason", "cached_tokens"):
        if name in other.attributes:
            turn.attributes.setdefault(name, other.attributes[name])
