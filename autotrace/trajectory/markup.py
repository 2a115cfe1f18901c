"""Parse decoded prompts into role/content messages: chat templates leave markup that names the role of each part."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from autotrace.trajectory.jsonable import loaded


@dataclass(frozen=True)
class Markup:
    """Describe how a family of chat templates writes a message: ``begin`` matches up to the content and captures
    ``role``."""

    begin: re.Pattern[str]
    opening: str
    """Text with which each match of ``begin`` begins."""
    end: str
    before: str = ""
    """Role of the text before the first mark (DeepSeek's templates put the system prompt there)."""

    def last(self, text: str) -> re.Match[str] | None:
        """Return the last match of ``begin``. (A match contains no second ``opening``, so the search runs from the
        end.)"""
        at = text.rfind(self.opening)
        while at >= 0:
            match = self.begin.match(text, at)
            if match is not None:
                return match
            at = text.rfind(self.opening, 0, at)
        return None


MARKUPS = (
    # ChatML: Qwen and many others
    Markup(re.compile(r"<\|im_start\|>(?P<role>[^\n<]*)\n?"), "<|im_start|>", "<|im_end|>"),
    # Llama 3
    Markup(
        re.compile(r"<\|start_header_id\|>(?P<role>[^<]*)<\|end_header_id\|>\n*"), "<|start_header_id|>", "<|eot_id|>"
    ),
    # Gemma
    Markup(re.compile(r"<start_of_turn>(?P<role>\w*)\n?"), "<start_of_turn>", "<end_of_turn>"),
    # DeepSeek
    Markup(re.compile(r"<｜(?P<role>User|Assistant)｜>"), "<｜", "<｜end▁of▁sentence｜>", "system"),  # noqa: RUF001
    # Phi, GLM
    Markup(re.compile(r"<\|(?P<role>system|user|assistant|tool|observation)\|>\n?"), "<|", "<|end|>"),
)
_BEGINS = re.compile(
    "<(?:" + "|".join(f"(?P<m{number}>{markup.begin.pattern[1:].replace('?P<role>', '?:')})"
                      for number, markup in enumerate(MARKUPS)) + ")"
)  # fmt: skip
"""Match the ``begin`` of any markup: each begins with ``<``, and no match contains the beginning of another match."""
_END = re.compile("|".join(re.escape(markup.end) for markup in MARKUPS))
_ROLES = {"model": "assistant", "observation": "tool", "ipython": "tool"}
"""Role name of a family -> usual role name."""
_FIRST = re.compile(r"\A\s*(?:<[|｜]begin[^>]*>|<bos>|<s>|\[gMASK\]|<sop>)+")  # noqa: RUF001
_REPEATED = re.compile(r"(<[^<>\s]{1,40}>)\1{7,}")
_CALL, _ANSWER = (re.compile(f"<{name}>(.*?)</{name}>", re.DOTALL) for name in ("tool_call", "tool_response"))
"""Matches tool calls and answers, only for texts that end with the mark: a beginning without an end would be searched
for in the whole rest."""

Message = dict[str, Any]


UNKNOWN = "history"
"""Role of text from an unknown speaker: a part of the conversation that was tokenised anew, in an unknown markup."""


def prompt_messages(text: str, before: str = "", fallback: str = "user") -> list[Message]:
    """Return the messages of a prompt, or of the part that a turn adds. ``before``: the prompt up to that part, which
    decides the message in which ``text`` begins. Text without known markup becomes a message of role ``fallback``.

    A token that is repeated for every patch of an image is shown once, with its count.
    """
    if text.count(">") > 7:
        text = _REPEATED.sub(lambda match: f"{match[1]}x{len(match[0]) // len(match[1])}", text)
    for markup in MARKUPS:
        parts = list(markup.begin.finditer(text)) if markup.opening in text else []
        speaker = _speaker(markup, before)
        if not parts and speaker is None:
            continue
        first = text[: parts[0].start()] if parts else text
        head = _FIRST.sub("", first.replace(markup.end, "")).strip()
        messages = _spoken(speaker or markup.before or fallback, head) if head else []
        for part, following in zip(parts, [*parts[1:], None][: len(parts)], strict=True):
            content = text[part.end() : following.start() if following else len(text)]
            content = content.split(markup.end, 1)[0]
            if following is None and not content.strip():
                break  # the template's invitation to answer
            role = part["role"].strip().lower() or fallback
            messages.extend(_spoken(_ROLES.get(role, role), content))
        return messages
    return [{"role": fallback, "content": text}] if text.strip() else []


_MARK = 64
"""Characters at the end of a text that may begin a mark."""


def matters(before: str) -> str:
    """Return the shortest end of ``before`` for which ``prompt_messages`` gives the same result, with any
    continuation."""
    begin = len(before) - _MARK
    if "<" in before:
        lasts = {match.lastgroup: match.start() for match in _BEGINS.finditer(before)}
        begin = min(begin, *lasts.values()) if lasts else begin
    return before[max(0, begin) :]


def _speaker(markup: Markup, before: str) -> str | None:
    """Return the role of the message that is still open at the end of ``before``; None: no open message."""
    last = markup.last(before)
    if last is None or markup.end in before[last.end() :]:
        return None
    role = last["role"].strip().lower()
    return _ROLES.get(role, role) or None


def response_message(text: str) -> Message:
    """Parse the model's message; tool calls are parsed if written as ``<tool_call>{...}</tool_call>``."""
    if "<|message|>" not in text:  # in Harmony that mark ends a thought, not the answer
        end = _END.search(text)
        text = text if end is None else text[: end.start()]
    return _spoken("assistant", text)[0]


def _spoken(role: str, content: str) -> list[Message]:
    marked = "<tool_" in content
    plain: list[Message] = [{"role": role, "content": content.strip("\n")}]
    whole = content.strip() if marked else ""
    if whole.startswith("<tool_response>") and whole.endswith("</tool_response>"):
        return [{"role": "tool", "content": answer.strip()} for answer in _ANSWER.findall(whole)]
    if role != "assistant" or not marked:
        return plain
    calls = []
    begun, end, rest = content.rpartition("</tool_call>")
    for number, written in enumerate(_CALL.findall(begun + end)):
        call = _call(written, number)
        if call is None:
            return plain
        calls.append(call)
    if not calls:
        return plain
    return [{"role": role, "content": (_CALL.sub("", begun + end) + rest).strip("\n"), "tool_calls": calls}]


def _call(written: str, number: int) -> Message | None:
    call = loaded(written)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": f"call_{number}", "type": "function", "function": {"name": call["name"], "arguments": text}}
