"""Decoded prompts as role/content messages: chat templates leave markup that names the role of each part."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from autotrace.trajectory.jsonable import loaded


@dataclass(frozen=True)
class Markup:
    """How one family of chat templates writes a message: ``begin`` matches up to the content and names the ``role``."""

    begin: re.Pattern[str]
    opening: str
    """What each match of ``begin`` begins with."""
    end: str
    before: str = ""
    """Role of what stands before the first mark (DeepSeek's templates put the system prompt there)."""

    def last(self, text: str) -> re.Match[str] | None:
        """The last match of ``begin``. (It has no second ``opening`` within it, so it is found from the end.)"""
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
"""Any of their ``begin``: each begins with ``<``, and within a match of one none of another begins."""
_END = re.compile("|".join(re.escape(markup.end) for markup in MARKUPS))
_ROLES = {"model": "assistant", "observation": "tool", "ipython": "tool"}
"""What families call a role -> what everybody else does."""
_FIRST = re.compile(r"\A\s*(?:<[|｜]begin[^>]*>|<bos>|<s>|\[gMASK\]|<sop>)+")  # noqa: RUF001
_REPEATED = re.compile(r"(<[^<>\s]{1,40}>)\1{7,}")
_CALL, _ANSWER = (re.compile(f"<{name}>(.*?)</{name}>", re.DOTALL) for name in ("tool_call", "tool_response"))
"""Only for texts that end with the mark: a beginning without an end would be looked for in all that follows."""

Message = dict[str, Any]


UNKNOWN = "history"
"""Role of what may be anybody's: a part of the conversation that was tokenised anew, in a markup that is not known."""


def prompt_messages(text: str, before: str = "", fallback: str = "user") -> list[Message]:
    """The messages of a prompt; or of what a turn adds to it, and then ``before`` is the prompt up to there, which says
    in whose message ``text`` begins. One of role ``fallback`` without known markup.

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
"""Characters at the end of a text that may be the beginning of a mark."""


def matters(before: str) -> str:
    """The end of ``before`` that tells ``prompt_messages`` as much as all of it, whatever is appended to both."""
    begin = len(before) - _MARK
    if "<" in before:
        lasts = {match.lastgroup: match.start() for match in _BEGINS.finditer(before)}
        begin = min(begin, *lasts.values()) if lasts else begin
    return before[max(0, begin) :]


def _speaker(markup: Markup, before: str) -> str | None:
    """The role of the message that is not at its end where ``before`` ends; None: there is none."""
    last = markup.last(before)
    if last is None or markup.end in before[last.end() :]:
        return None
    role = last["role"].strip().lower()
    return _ROLES.get(role, role) or None


def response_message(text: str) -> Message:
    """The model's message; tool calls are parsed where they are written as ``<tool_call>{...}</tool_call>``."""
    if "<|message|>" not in text:  # Harmony ends a thought, not the answer, with the mark that ends an answer elsewhere
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
