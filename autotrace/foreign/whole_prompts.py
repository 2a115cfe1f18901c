"""Decide which turns of a stranger's conversation hold the whole prompt: each turn repeats all earlier messages, so the
prompts of a small file may take gigabytes."""

from __future__ import annotations

from collections.abc import Sequence

from autotrace.trajectory.markup import Message
from autotrace.trajectory.model import Allowance, Span
from autotrace.trajectory.span_text import one_line

REPEATED, CHARACTERS = 1_000_000, 128 << 20
"""Maximum messages, and characters, of whole prompts over all turns of a rollout."""
CUT = "some prompts have only the new messages: whole prompts would be too long"


class WholePrompts:
    """Count the messages of the turns of a rollout."""

    def __init__(self) -> None:
        self._messages, self._left = Allowance(REPEATED), CHARACTERS
        self._said: Sequence[Message] = ()
        """Holds the last prompt: most prompts only grow."""
        self._counted = self._size = 0
        """Number of counted messages of the last prompt, and the characters in all."""
        self._last: tuple[Span, Sequence[Message], int] | None = None

    def has_room(self, said: Sequence[Message]) -> bool:
        """Return whether a turn may hold all of ``said``. After too many characters no further turn may."""
        if self._left < 0 or not self._messages.take(len(said)):
            return False
        if self._said is not said:
            self._said, self._counted, self._size = said, 0, 0
        self._size += sum(len(one_line(message)) for message in said[self._counted :])
        self._counted = len(said)
        self._left -= self._size
        return self._left >= 0

    def cut(self, turn: Span, said: Sequence[Message], before: Span) -> None:
        """Mark a turn after the turn ``before`` that holds only the new messages of ``said``, as the calls of servers
        that keep the conversation are marked."""
        turn.inputs["previous_response_id"] = before.span_id
        self._last = turn, said, len(said)

    def finish(self) -> list[str]:
        """Give the last turn the whole prompt, if the turn was cut; return notes for people."""
        if self._last is None:
            return []
        turn, said, count = self._last
        turn.messages = list(said[:count])
        return [CUT]
