"""What the turns of a trajectory said in messages: which turn's messages go on from which."""

from __future__ import annotations

from collections.abc import Sequence

from autotrace.trajectory.model import Span
from autotrace.trajectory.span_text import answer, asked_messages, message_text, one_line

COMPARED = 512
"""Turns, the latest ones, that a turn is compared with."""
SUMMARY = 16
"""Characters of the shortest summary that is recognised."""
_SYSTEM, _OF_TOOLS = ("system", "developer"), ("tool", "function")


class Said:
    """What turns said in messages, where these were recorded or decoded whole."""

    def __init__(self, turns: Sequence[Span]) -> None:
        self._turns = turns
        self._digests: dict[int, list[int]] = {}
        """Turn -> of its messages, up to each of them."""

    def _asked(self, turn: int) -> list[dict[str, object]]:
        return asked_messages(self._turns[turn - 1], whole=True)

    def _role(self, turn: int) -> object:
        asked = self._asked(turn)
        return asked[0].get("role") if asked else None

    def is_whole(self, turn: int) -> bool:
        """Its messages are a whole prompt, as far as one can tell."""
        span = self._turns[turn - 1]
        role = self._role(turn)
        if role is None or role in _OF_TOOLS or span.inputs.get("previous_response_id"):
            return False
        return role in _SYSTEM or span.new_prompt_text is None or not span.prompt_keep

    def system(self, turn: int) -> str:
        """The system prompt; empty: it has no such message."""
        asked = self._asked(turn)
        return _text(asked[0]) if asked and asked[0].get("role") in _SYSTEM else ""

    def is_another(self, turn: int, main: int) -> bool:
        """Another system prompt, or other tools, than the turn ``main`` has."""
        offered = [_names(self._turns[one - 1].inputs.get("tools")) for one in (main, turn)]
        if None not in offered and offered[0] != offered[1]:
            return True
        return self.is_whole(main) and self.is_whole(turn) and self.system(turn) != self.system(main)

    def has_history(self, turn: int) -> bool:
        """Its prompt has an answer of the model."""
        return any(message.get("role") == "assistant" for message in self._asked(turn))

    def goes_otherwise(self, turn: int, end: int) -> bool:
        """It does not go on from the answer of ``end``, but has none, or other words in its place."""
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
        """The last turn whose messages and answer its messages begin with, and the last one that has the same messages;
        0: no such turn."""
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

    def _goes_on(self, following: Sequence[dict[str, object]], number: int) -> bool:
        """The messages after those of an earlier turn begin with its answer, or leave the answer out."""
        if not following or following[0].get("role") != "assistant":
            return bool(following)
        return _alike(_text(following[0]), _reply(self._turns[number - 1]))

    def is_summary(self, earlier: int, turn: int) -> bool:
        """Its messages have the answer of the earlier turn in them."""
        said = _pressed(_reply(self._turns[earlier - 1]) or "")
        return len(said) >= SUMMARY and any(said in _pressed(_text(message)) for message in self._asked(turn))

    def _digest(self, turn: int) -> list[int]:
        if turn not in self._digests:
            digest, made = 0, []
            for message in self._asked(turn):
                digest = hash((digest, message.get("role"), message_text(message)))
                made.append(digest)
            self._digests[turn] = made
        return self._digests[turn]


def turns_before(turn: int) -> range:
    """The turns that one is compared with, the latest first."""
    return range(turn - 1, max(0, turn - 1 - COMPARED), -1)


def _text(message: dict[str, object]) -> str:
    content = message.get("content")
    return "" if content is None else one_line(content)


def _reply(span: Span) -> str | None:
    said = answer(span)
    return (None if said is None else _text(said)) or None


def _pressed(text: str) -> str:
    return "".join(text.split())


def _alike(resent: str, said: str | None) -> bool:
    """One has the other in it: clients leave out thoughts, and spaces."""
    one, other = _pressed(resent), _pressed(said or "")
    return one in other or other in one


def _names(tools: object) -> set[str] | None:
    if not isinstance(tools, list):
        return None
    functions = [tool.get("function", tool) for tool in tools if isinstance(tool, dict)]
    return {str(function.get("name")) for function in functions if isinstance(function, dict)}
