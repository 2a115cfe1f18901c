"""Read how a rollout went on: calls that an answer requests, calls that are executed, history that is kept. Mask the
numbers, ids and quoted names of texts, which differ from rollout to rollout."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from autotrace.insight.evidence import MARKERS, Evidence, LLMCall, is_chat, marked
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.model import Span
from autotrace.trajectory.span_text import answer, answered_words, asked_messages, thoughts
from autotrace.trajectory.tool_calls import ToolCall, arguments_text

LOOKED_AT, SKELETON, DIGESTED = 400, 100, 1000
"""Limit the characters of a text: read for masking, kept after masking, and read by the digest at each end."""
_TOKEN, _DIGIT, _QUOTED = re.compile(r"[\w.:/@-]+"), re.compile(r"\d"), re.compile(r"(?<!\w)'[^'\n]{1,80}'(?!\w)")
_WORD, _NUMBER = re.compile(r"\w{3,}"), re.compile(r"-?\d{1,9}(?:\.\d{1,9})?")
NUMBERS = 32
"""Keep so many numbers of a prompt."""


def masked(text: str, given: str = "") -> str:
    """Replace numbers, ids, quoted names and the words of ``given`` in ``text``, and cut to ``SKELETON`` characters."""
    return _masked(text[:LOOKED_AT], given[:LOOKED_AT])


@functools.lru_cache(maxsize=2048)
def _masked(text: str, given: str) -> str:
    words = {word.lower() for word in _WORD.findall(given)}
    text = _QUOTED.sub("'…'", _TOKEN.sub(lambda found: "#" if _DIGIT.search(found[0]) else found[0], text))
    if words:
        text = _WORD.sub(lambda found: "…" if found[0].lower() in words else found[0], text)
    return _cut(" ".join(text.split()), SKELETON)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def content_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def first_prompt(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the messages of the first prompt, or the messages that the rollout was given; empty: neither is known."""
    asked = asked_messages(evidence.turns[0].span, whole=True) if evidence.turns else []
    given = (value for span in (evidence.root, evidence.agent) if span is not None for value in span.inputs.values())
    return asked or next(filter(is_chat, given), [])


def prompt_words(evidence: Evidence) -> tuple[str, str]:
    """Return a digest of the first prompt without numbers and ids, and the last numbers of the prompt; empty: the words
    are not known."""
    said = [text for message in first_prompt(evidence)[:12] if (text := content_of(message))]
    whole = "".join(digest_of(text, 8) for text in said)
    numbers = [number for text in said for number in numbers_of(text)]
    return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest() if said else "", " ".join(numbers[-NUMBERS:])


@functools.lru_cache(maxsize=512)
def numbers_of(text: str) -> tuple[str, ...]:
    """Return the numbers at the end of ``text``; ``#`` for an id, a time or another word with digits."""
    words = [word.rstrip(".:") for word in _TOKEN.findall(text[-DIGESTED:]) if _DIGIT.search(word)]
    return tuple(word if _NUMBER.fullmatch(word) else "#" for word in words[-NUMBERS:])


@functools.lru_cache(maxsize=512)
def digest_of(text: str, size: int) -> str:
    """Return a digest of the beginning and the end of ``text`` without numbers and ids."""
    ends = text if len(text) <= 2 * DIGESTED else text[:DIGESTED] + text[-DIGESTED:]
    hidden = _TOKEN.sub(lambda found: "#" if _DIGIT.search(found[0]) else found[0], ends)
    return hashlib.blake2b(hidden.encode("utf-8", "replace"), digest_size=size).hexdigest()


# -- how a rollout went on --------------------------------------------------------------------------------------------


def tool_name(offered: Any) -> str:
    inner = offered.get("function", offered) if isinstance(offered, dict) else {}
    return str(inner.get("name") or "") if isinstance(inner, dict) else ""


def text_call(span: Span) -> str | None:
    """Return the beginning of a tool call in the text or the thinking of an answer that has no parsed calls."""
    reply = answer(span)
    if reply is None or reply.get("tool_calls"):
        return None
    for said in (content_of(reply), thoughts(span) or ""):
        if any(marker in said for marker in MARKERS) and (found := marked(said, 0)) is not None:
            return found
    return None


def called(span: Span) -> list[dict[str, Any]]:
    """Return the tool calls of an answer."""
    made = (answer(span) or {}).get("tool_calls")
    return [one for one in made if isinstance(one, dict)] if isinstance(made, list) else []


def requested(evidence: Evidence, call: LLMCall) -> list[str]:
    """Return the names of the tools that an answer calls, in its message or in its text as a parser read the text."""
    return [tool_name(one) for one in called(call.span) or evidence.parsed.get(call.number, [])]


def arguments_of(call: dict[str, Any]) -> str:
    """Return the arguments of a call in an answer, as ``ToolCall.arguments``."""
    function = call.get("function", call)
    return arguments_text(function.get("arguments", {}) if isinstance(function, dict) else {})


def is_of(tool: ToolCall, call: dict[str, Any]) -> bool:
    """Return whether an answer's ``call`` became this call of a tool, which may have more arguments than the model
    gives, and the name of its class in front."""
    given, parts = arguments_of(call).split(", "), tool.arguments.split(", ")
    is_named = tool_name(call) in (tool.name, tool.name.rpartition(".")[2])
    return is_named and {*given} <= {*parts}


def _exchanges(evidence: Evidence) -> Iterator[tuple[LLMCall, int, list[dict[str, Any]]]]:
    """Yield each turn whose answer has calls, with the next turn and the results in the next prompt."""
    tree = tree_of(evidence.trajectory)
    for call, following in pairwise(evidence.turns):
        if requested(evidence, call) and tree.before[following.number] == call.number:
            told = asked_messages(following.span)
            yield call, following.number, [one for one in told if one.get("role") in ("tool", "function")]


def not_executed(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yield a note and the turn, for each turn of whose calls only a part was executed."""
    for call, _, told in _exchanges(evidence):
        asked, ran = requested(evidence, call), sum(tool.turn == call.number for tool in evidence.tools)
        known = len(told) or (ran if call.number in evidence.parsed else 0)
        if known > 0 and max(known, ran) < len(asked):
            yield f"{known} of {len(asked)} calls were executed: {', '.join(asked)}", call.number


def misplaced_results(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yield results under the id of another call, of no call, or twice, with the turn whose prompt has the results."""
    for call, turn, told in _exchanges(evidence):
        ids = [one.get("id") for one in called(call.span)]
        given = {one["tool_call_id"]: content_of(one) for one in told if isinstance(one.get("tool_call_id"), str)}
        ran = [tool for tool in evidence.tools if tool.turn == call.number]
        right = [next((tool.told for tool in reversed(ran) if is_of(tool, one)), "") for one in called(call.span)]
        shown = [given.get(str(one)) for one in ids]
        swapped = [text for text, due in zip(shown, right, strict=True) if due and text != due and text in right]
        if len(given) < sum("tool_call_id" in one for one in told):
            yield "a result is sent twice under one tool_call_id", turn
        elif given and all(ids) and not given.keys() <= set(ids):
            yield "a result has the tool_call_id of no call", turn
        elif swapped:
            yield "a result has the tool_call_id of another call", turn


def others_answer(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yield an answer in a later prompt that no call of the rollout gave, with the turn of the prompt."""
    said = [text for call in evidence.turns if (text := "".join((answered_words(call.span) or "").split()))]
    for call, following in pairwise(evidence.turns):
        before, after = (asked_messages(one.span, whole=True) for one in (call, following))
        if before and after[: len(before)] == before and None not in map(answer, (call.span, following.span)):
            new = [content_of(one) for one in after[len(before) :] if one.get("role") == "assistant"]
            pressed = filter(None, ("".join(text.split()) for text in new))
            if not all(any(text in own or own in text for own in said) for text in pressed):
                yield "a later prompt has an answer that no call of this rollout gave", following.number
                return


def history_lost(evidence: Evidence) -> tuple[int, str] | None:
    """Find the first turn whose messages lack a part of an earlier turn, and name the part: ``thinking`` or
    ``messages``."""
    tree = tree_of(evidence.trajectory)
    for call, following in pairwise(evidence.turns):
        before = asked_messages(call.span, whole=True)
        after = asked_messages(following.span, whole=True)
        if not before or not after or tree.before[following.number] != call.number:
            continue
        if following.span.inputs.get("previous_response_id"):  # its messages are the new messages alone
            continue
        roles = [one.get("role") for one in after]
        if len(after) <= len(before) or ("assistant" in roles and "assistant" not in roles[len(before) :]):
            if len(before) == 1:  # a prompt of one text may hold the whole history
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
    """Return ``the answer of search`` if a tool ran after the last turn, ``a call of search`` if nothing answered the
    call; None: the rollout ends with the model's text."""
    last = evidence.final[-1]
    ran = [tool.name for tool in evidence.tools if tool.turn >= last.number]
    asked = [tool_name(one) for one in called(last.span)]
    if ran and (asked or answer(last.span) is None):
        return f"the answer of {ran[-1]}"
    return f"a call of {asked[-1]}" if asked else None
