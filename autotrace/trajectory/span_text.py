"""Show the input and output of a call as people read them, and find which turn's messages continue which. The text of a
turn follows a single rule:

the decoded tokens; else the recorded messages; else the arguments, or the result, as recorded. Token ids without any
text are shown as ids (``asked_ids``, ``answered_ids``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Span, Trajectory

PROMPTS = frozenset({"input", "prompt", "question", "query", "text", "message", "instruction"})
"""Arguments that may be the whole prompt as text."""
ANSWERS = ("content", "text")
"""Members of an agent's own result that may be the answer as text."""
PROMPT_LINE = 200
"""Characters of a prompt in a line of a list."""


def swallowed(span: Span) -> list[tuple[dict[str, Any], str]]:
    """Return the failures that were caught inside a call (``record.swallowed``), each with a line of words."""
    notes = span.attributes.get("swallowed")
    return [
        (note, f"{note.get('error')}: {note.get('message')} in {note.get('at')}, caught in {note.get('caught')}")
        for note in (notes if isinstance(notes, list) else ())
        if isinstance(note, dict)
    ]


def input_text(span: Span) -> str | None:
    """Return the input of a call: the new part of an LLM call's prompt in words, else the arguments; None: neither."""
    said = asked_words(span)
    if said is not None or not span.inputs:
        return said
    values = list(span.inputs.values())
    return one_line(values[0] if len(values) == 1 else span.inputs)


def output_text(span: Span) -> str | None:
    """Return the answer of a call in words, else the return value apart from token ids; None: not recorded."""
    said = answered_words(span)
    if said is not None or span.output is None or span.output == span.response_ids:
        return said
    return one_line(span.output)


def asked_words(span: Span, *, whole: bool = False) -> str | None:
    """Return the new part of a prompt (``whole``: all of the prompt): decoded, else from the messages, else the
    argument with the text; None if only token ids are known, or nothing."""
    texts = (span.prompt_text,) if whole else (span.new_prompt_text, span.prompt_text)
    decoded = next((text for text in texts if text), None)
    if decoded is not None:
        return decoded
    if not span.messages:
        name = asked_as(span.inputs)
        return None if name is None else str(span.inputs[name])
    asked = asked_messages(span, whole=whole)
    alone = len(asked) == 1 and asked[0].get("role") == "user"
    return "\n".join(message_text(message, named=not alone) for message in asked) or None


def answered_words(span: Span) -> str | None:
    """Return an answer: decoded, else the message, else the returned text; None if only token ids are known, or
    nothing."""
    if span.response_text is not None:
        return span.response_text
    if (reply := answer(span)) is not None:
        return message_text(reply, named=False)
    name = answered_as(span.output)
    return str(span.output[name]) if name is not None else span.output if isinstance(span.output, str) else None


def asked_ids(span: Span) -> list[int] | None:
    """Return the token ids that a prompt adds, if no text is known; None with a text or without ids."""
    return None if asked_words(span) is not None else span.new_prompt_ids or span.prompt_ids or None


def answered_ids(span: Span) -> list[int] | None:
    """Return the token ids of an answer, if no text is known; None with a text or without ids."""
    return None if answered_words(span) is not None else span.response_ids or None


def shown_answer(span: Span, most: int | None = None) -> str | None:
    """Return ``output_text``, or at most ``most`` token ids if only token ids are known."""
    ids = answered_ids(span)
    return output_text(span) if ids is None else ids_text(ids, most)


def ids_text(ids: Sequence[int], most: int | None = None) -> str:
    """Format at most ``most`` token ids for people: ``3 token ids: 1 2 3``."""
    shown = ids if most is None else ids[:most]
    rest = f" … {len(ids) - len(shown):,} more" if len(shown) < len(ids) else ""
    return f"{len(ids):,} token id{'' if len(ids) == 1 else 's'}: {' '.join(map(str, shown))}{rest}"


def asked_as(inputs: Mapping[str, Any]) -> str | None:
    """Return the argument that is the whole prompt as text; None without such an argument, or with several."""
    names = [name for name in inputs if name in PROMPTS and isinstance(inputs[name], str) and inputs[name]]
    return names[0] if len(names) == 1 else None


def answered_as(output: Any) -> str | None:
    """Return the member of an agent's own result that is the answer as text; None without such a member."""
    if not isinstance(output, dict):
        return None
    return next((name for name in ANSWERS if isinstance(output.get(name), str) and output[name]), None)


def question(trajectory: Trajectory) -> str:
    """Return the user's last message before the model first answered; else the input of the first turn, or of the
    function that is the trajectory. Empty: not known."""
    first = trajectory.llm_spans[:1]
    asked = [message for span in first for message in span.messages or () if message.get("role") == "user"]
    if asked:
        content = asked[-1].get("content")
        parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        texts = [text for text in parts if isinstance(text, str)]
        return "\n".join(texts) if texts else "" if content is None else one_line(content)
    told = [asked_words(span) for span in first]
    return next((text for text in told if text), None) or input_text(trajectory.root) or ""


def prompt_line(trajectory: Trajectory) -> str | None:
    """Return the first line of ``question`` that has text, at most ``PROMPT_LINE`` characters; None: not known."""
    lines = (line.strip() for line in question(trajectory).splitlines())
    return next((line[:PROMPT_LINE] for line in lines if line), None)


def thoughts(span: Span) -> str | None:
    """Return the model's reasoning before its answer, if the server separates the reasoning."""
    text = (answer(span) or {}).get("reasoning_content")
    return text if isinstance(text, str) else None


def answer(span: Span) -> dict[str, Any] | None:
    """Return the message that an LLM call answered with; None without an answer."""
    last = span.messages[-1] if span.messages else None
    return last if last is not None and last.get("role") == "assistant" else None


def asked_messages(span: Span, *, whole: bool = False) -> list[dict[str, Any]]:
    """Return the messages of a prompt after the model's last answer (``whole``: all); other messages are in an earlier
    call."""
    asked = (span.messages or [])[: None if answer(span) is None else -1]
    earlier = [number for number, message in enumerate(asked) if message.get("role") == "assistant"]
    return asked[earlier[-1] + 1 :] if earlier and not whole else asked


def message_text(message: dict[str, Any], *, named: bool = True) -> str:
    """Format a chat message: the text, and the tool calls as ``search({"q": "cats"})``. ``named``: with the role in
    front."""
    functions = [call.get("function") or {} for call in message.get("tool_calls") or () if isinstance(call, dict)]
    called = [f"{function.get('name')}({function.get('arguments')})" for function in functions]
    words = "\n".join(line for line in (_text(message), *called) if line)
    return f"{message.get('role')}: {words}" if named else words


def one_line(value: Any) -> str:
    """Format a captured value: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(jsonable(value), ensure_ascii=False)


COMPARED = 512
"""Number of latest turns that a turn is compared with."""
SUMMARY = 16
"""Characters of the shortest summary that is recognised."""
_SYSTEM, _OF_TOOLS = ("system", "developer"), ("tool", "function")


class Said:
    """Compare turns by their messages, if the messages were recorded or decoded completely."""

    def __init__(self, turns: Sequence[Span]) -> None:
        self._turns = turns
        self._digests: dict[int, list[int]] = {}
        """Turn -> digest of the messages up to each message."""

    def _asked(self, turn: int) -> list[dict[str, object]]:
        return asked_messages(self._turns[turn - 1], whole=True)

    def is_whole(self, turn: int) -> bool:
        """Return whether the messages are a whole prompt, as far as can be decided."""
        span, asked = self._turns[turn - 1], self._asked(turn)
        role = asked[0].get("role") if asked else None
        if role is None or role in _OF_TOOLS or span.inputs.get("previous_response_id"):
            return False
        return role in _SYSTEM or span.new_prompt_text is None or not span.prompt_keep

    def system(self, turn: int) -> str:
        """Return the system prompt; empty without a system message."""
        asked = self._asked(turn)
        return _text(asked[0]) if asked and asked[0].get("role") in _SYSTEM else ""

    def is_another(self, turn: int, main: int) -> bool:
        """Return whether the turn has another system prompt, or other tools, than the turn ``main``."""
        offered = [_names(self._turns[one - 1].inputs.get("tools")) for one in (main, turn)]
        if None not in offered and offered[0] != offered[1]:
            return True
        return self.is_whole(main) and self.is_whole(turn) and self.system(turn) != self.system(main)

    def has_history(self, turn: int) -> bool:
        """Return whether the prompt contains an answer of the model."""
        return any(message.get("role") == "assistant" for message in self._asked(turn))

    def has_whole_history(self, turn: int) -> bool:
        """Return whether all messages of the prompt are known, and an answer of the model is among the messages."""
        return self.is_whole(turn) and self.has_history(turn)

    def goes_otherwise(self, turn: int, end: int) -> bool:
        """Return whether the turn does not go on from the answer of ``end``: the turn has no answer, or other words
        instead."""
        if not self.is_whole(turn):
            return False
        if not self.has_history(turn):
            return True
        asked = self._asked(turn)
        place = len(self._asked(end))
        if not self.is_whole(end) or place >= len(asked) or asked[place].get("role") != "assistant":
            return False
        return not _alike(_text(asked[place]), _reply(self._turns[end - 1]))

    def continued(self, turn: int) -> tuple[int, int]:
        """Return the last turn whose messages and answer begin this turn's messages, and the last turn with the same
        messages; 0: no such turn."""
        asked, latest = self._asked(turn), self._asked(turn - 1)
        if latest and asked[: len(latest)] == latest and self._goes_on(asked[len(latest) :], turn - 1):
            return turn - 1, 0
        own = self._digest(turn)
        before, most, twin = 0, 0, 0
        for number in turns_before(turn):
            other = self._digest(number)
            if not most < len(other) <= len(own) or own[len(other) - 1] != other[-1]:
                continue
            if len(other) == len(own):
                twin = twin or number
                if _reply(self._turns[number - 1]) is None and answer(self._turns[number - 1]) is None:
                    return number, number
                continue
            if self._goes_on(asked[len(other) :], number):
                before, most = number, len(other)
        return before, twin

    def keeps(self, turn: int, before: int) -> bool:
        """Return whether an answer follows the messages of the turn ``before``."""
        following = self._asked(turn)[len(self._asked(before)) :]
        return bool(following) and following[0].get("role") == "assistant"

    def _goes_on(self, following: Sequence[dict[str, object]], number: int) -> bool:
        """Return whether the messages after an earlier turn's messages begin with the answer of that turn, or leave it
        out."""
        if not following or following[0].get("role") != "assistant":
            return bool(following)
        return _alike(_text(following[0]), _reply(self._turns[number - 1]))

    def summary(self, turn: int, earlier: Sequence[int], kept: bool = False) -> int:
        """Return the first of the ``earlier`` turns whose answer is contained in this turn's messages; 0: none.
        ``kept``: the prompt has answers, too. Then the answer must be missing among the answers of the prompt, and a
        new message of the user or system before an answer must contain the text."""
        asked = self._asked(turn)
        answers: list[dict[str, object]] = []
        if kept:
            answers = [message for message in asked if message.get("role") == "assistant"]
            last = max((at for at, message in enumerate(asked) if message.get("role") == "assistant"), default=0)
            before = next((one for one in earlier if self.system(one) == self.system(turn)), turn - 1)
            known = {_text(message) for message in self._asked(before)}
            others = [message for message in asked[:last] if message.get("role") not in ("assistant", *_OF_TOOLS)]
            asked = [message for message in others if _text(message) not in known]
        if not asked:
            return 0
        texts, still = ({_pressed(_text(message)) for message in messages} for messages in (asked, answers))
        for one in earlier:
            said = _pressed(_reply(self._turns[one - 1]) or "")
            if len(said) >= SUMMARY and said not in still and any(said in text for text in texts):
                return one
        return 0

    def _digest(self, turn: int) -> list[int]:
        if turn not in self._digests:
            digest, made = 0, []
            for message in self._asked(turn):
                digest = hash((digest, message.get("role"), message_text(message)))
                made.append(digest)
            self._digests[turn] = made
        return self._digests[turn]


def turns_before(turn: int) -> range:
    """Return the turns that a turn is compared with, the latest first."""
    return range(turn - 1, max(0, turn - 1 - COMPARED), -1)


def _text(message: dict[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list) and content:
        parts = [_part_text(part) for part in content]
        if None not in parts:
            return "\n".join(text for text in parts if text)
    return "" if content is None else one_line(content)


def _part_text(part: object) -> str | None:
    """Return the text of one part of a message, or the description of its image; None for any other part."""
    if not isinstance(part, dict):
        return part if isinstance(part, str) else None
    if isinstance(part.get("text"), str):
        return str(part["text"])
    for name in ("image_url", "image", "source", "data"):
        value = part.get(name)
        for text in (value, *value.values()) if isinstance(value, dict) else (value,):
            if isinstance(text, str) and text.startswith("<image"):
                return text
    return None


def _reply(span: Span) -> str | None:
    said = answer(span)
    return (None if said is None else _text(said)) or None


def _pressed(text: str) -> str:
    return "".join(text.split())


def _alike(resent: str, said: str | None) -> bool:
    """Return whether a text contains the other text: clients leave out thoughts, and spaces."""
    one, other = _pressed(resent), _pressed(said or "")
    return one in other or other in one


def _names(tools: object) -> set[str] | None:
    if not isinstance(tools, list):
        return None
    functions = [tool.get("function", tool) for tool in tools if isinstance(tool, dict)]
    return {str(function.get("name")) for function in functions if isinstance(function, dict)}


def counted(number: int, one: str, many: str | None = None) -> str:
    """Count: ``1 turn``, ``2 turns``, ``2 trajectories``; ``many`` is an irregular plural."""
    if number != 1:
        one = many or (f"{one[:-1]}ies" if one.endswith("y") else f"{one}s")
    return f"{number:,} {one}"
