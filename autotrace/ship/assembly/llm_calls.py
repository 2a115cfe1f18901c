"""LLM calls as turns: what each one said, and one turn for a call that other libraries' calls are made of."""

from __future__ import annotations

from collections.abc import Sequence

from autotrace.ship.assembly import chat
from autotrace.trajectory.model import Span

_MAX_DEPTH = 1000


def read_llm_calls(spans: Sequence[Span]) -> None:
    """Fill the chat of the LLM calls. Of those inside of another (a framework's call over its client's), the outermost
    is the turn, unless only the inner one has tokens; what it does not tell is taken from the last one inside."""
    calls = [span for span in spans if span.role == "llm"]
    for span in calls:
        chat.read(span)
    if len(calls) < 2:
        return
    by_id = {span.span_id: span for span in spans}
    for span in calls:
        outer = _outermost(span, by_id)
        if outer is None:
            continue
        if _has_tokens(span) and not _has_tokens(outer):
            outer.role = "span"
        else:
            span.role = "engine"
            _inherit(outer, span)


def _has_tokens(span: Span) -> bool:
    return span.new_prompt_ids is not None or span.response_ids is not None


def _outermost(span: Span, by_id: dict[str, Span]) -> Span | None:
    """The highest LLM call above ``span`` with no tool or reward in between, which would be another's."""
    outer, depth = None, 0
    above = by_id.get(span.parent_id or "")
    while above is not None and above.role in ("llm", "engine", "span", "agent") and depth < _MAX_DEPTH:
        if above.role == "llm":
            outer = above
        above, depth = by_id.get(above.parent_id or ""), depth + 1
    return outer


def _inherit(outer: Span, inner: Span) -> None:
    if _has_tokens(outer):
        return
    if inner.messages is not None:
        reply = (inner.messages or [{}])[-1]
        if outer.messages is None:
            outer.messages = inner.messages
        elif outer.messages[-1].get("role") != "assistant" and reply.get("role") == "assistant":
            outer.messages.append(reply)
    for name in ("prompt_tokens", "response_tokens"):
        if getattr(outer, name) is None:
            setattr(outer, name, getattr(inner, name))
    for name in ("model", "finish_reason", "cached_tokens"):
        if name in inner.attributes:
            outer.attributes.setdefault(name, inner.attributes[name])
