"""Read how a rollout went on: calls that an answer asks for, calls that are executed, history that is kept."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from autotrace.insight.evidence import MARKERS, Evidence, marked
from autotrace.insight.skeletons import content_of
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.model import Span
from autotrace.trajectory.span_text import answer, asked_messages, thoughts


def tool_name(offered: Any) -> str:
    inner = offered.get("function", offered) if isinstance(offered, dict) else {}
    return str(inner.get("name") or "") if isinstance(inner, dict) else ""


def text_call(span: Span) -> str | None:
    """The beginning of a tool call in the text or the thinking of an answer without calls of its own."""
    reply = answer(span)
    if reply is None or reply.get("tool_calls"):
        return None
    for said in (content_of(reply), thoughts(span) or ""):
        if any(marker in said for marker in MARKERS) and (found := marked(said, 0)) is not None:
            return found
    return None


def requested(span: Span) -> list[str]:
    """Names of the tools that an answer calls."""
    made = (answer(span) or {}).get("tool_calls")
    return [tool_name(one) for one in made] if isinstance(made, list) else []


def not_executed(evidence: Evidence) -> tuple[int, str] | None:
    """The first turn with calls that the next prompt does not answer, and how many; None if all calls are answered."""
    tree = tree_of(evidence.trajectory)
    for call, following in pairwise(evidence.turns):
        asked = requested(call.span)
        if len(asked) > 1 and tree.before[following.number] == call.number:
            messages = asked_messages(following.span, whole=True)
            places = [place for place, one in enumerate(messages) if one.get("role") == "assistant"]
            later = messages[places[-1] + 1 :] if places else []
            told = [one for one in later if one.get("role") in ("tool", "function")]
            executed = sum(tool.turn == call.number for tool in evidence.tools)
            if told and len(told) < len(asked) and executed < len(asked):
                return call.number, f"{len(told)} of {len(asked)} calls were executed: {', '.join(asked)}"
    return None


def history_lost(evidence: Evidence) -> tuple[int, str] | None:
    """The first turn whose messages lack what an earlier turn had, and what: ``thinking`` or ``messages``."""
    tree = tree_of(evidence.trajectory)
    for call, following in pairwise(evidence.turns):
        before = asked_messages(call.span, whole=True)
        after = asked_messages(following.span, whole=True)
        if not before or not after or tree.before[following.number] != call.number:
            continue
        roles = [one.get("role") for one in after]
        if len(after) <= len(before) or ("assistant" in roles and "assistant" not in roles[len(before) :]):
            if len(before) == 1:  # a prompt that is one text may hold the whole history
                continue
            return following.number, "messages"
        kept = next((one for one in after[len(before) :] if one.get("role") == "assistant"), None)
        if kept is not None and thoughts(call.span) and not _has_thoughts(kept):
            return following.number, "thinking"
    return None


def _has_thoughts(message: dict[str, Any]) -> bool:
    return any("reason" in name or "think" in name for name, part in message.items() if part) or "<think>" in str(
        message.get("content")
    )


def ended_on(evidence: Evidence) -> str | None:
    """``the answer of search`` where a tool ran after the last turn; ``a call of search`` that nothing answered; None:
    the model said something last."""
    last = evidence.final[-1]
    ran = [tool.name for tool in evidence.tools if tool.turn >= last.number]
    asked = requested(last.span)
    if ran and (asked or answer(last.span) is None):
        return f"the answer of {ran[-1]}"
    return f"a call of {asked[-1]}" if asked else None
