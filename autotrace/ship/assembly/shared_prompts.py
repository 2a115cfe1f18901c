"""Prompts that begin a conversation: the rollouts of a group have the same one, so what becomes of it is found out
once and kept for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from autotrace.redact.redactor import Redactor
from autotrace.ship.assembly.tokenizer import Decode
from autotrace.trajectory.markup import Message, matters, prompt_messages
from autotrace.trajectory.model import packed_ids

MAX_CHARACTERS = 4 << 20
"""Of all that are kept."""
SHORT = 64
"""Tokens of a prompt that is made anew as quickly as it is found."""


@dataclass(frozen=True, slots=True)
class SharedPrompt:
    """One of them."""

    text: str
    """As it was decoded, not redacted."""
    signs: frozenset[str] | None
    """See ``Redactor.signs``."""
    messages: list[Message]
    """Its messages, for whoever changes none of them."""
    tail: str
    """See ``markup.matters``."""


class SharedPrompts:
    """What ``decode`` makes of prompts, the latest ones kept."""

    def __init__(self, decode: Decode, redactor: Redactor) -> None:
        self._decode = decode
        self._redactor = redactor
        self._prompts: OrderedDict[bytes, SharedPrompt] = OrderedDict()
        self._characters = 0

    def of(self, ids: Sequence[int]) -> SharedPrompt:
        """The prompt of these tokens. Raises what the tokenizer raises."""
        key = packed_ids(ids) if len(ids) > SHORT else None
        known = None if key is None else self._prompts.get(key)
        if key is None or known is None:
            known = self._made(ids)
            if key is not None:
                self._keep(key, known)
        else:
            self._prompts.move_to_end(key)
        return known

    def _made(self, ids: Sequence[int]) -> SharedPrompt:
        text = self._decode(ids)
        return SharedPrompt(text, self._redactor.signs(text), prompt_messages(text), matters(text))

    def _keep(self, key: bytes, prompt: SharedPrompt) -> None:
        self._prompts[key] = prompt
        self._characters += len(prompt.text)
        while self._characters > MAX_CHARACTERS:
            _, oldest = self._prompts.popitem(last=False)
            self._characters -= len(oldest.text)
