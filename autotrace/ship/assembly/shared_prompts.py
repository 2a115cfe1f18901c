"""Share prompts that begin a conversation: the rollouts of a group have the same prompt, so text, signs and messages
are computed once and kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from autotrace.redact.redactor import Redactor
from autotrace.ship.assembly.tokenizer import Decode
from autotrace.trajectory.markup import Message, matters, prompt_messages
from autotrace.trajectory.model import packed_ids

MAX_CHARACTERS = 4 << 20
"""Maximum characters of all kept prompts."""
SHORT = 64
"""Maximum tokens of a prompt that is decoded as quickly as looked up."""


@dataclass(frozen=True, slots=True)
class SharedPrompt:
    """Hold a shared prompt."""

    text: str
    """Decoded text, not redacted."""
    signs: frozenset[str] | None
    """See ``Redactor.signs``."""
    messages: list[Message]
    """Messages of the prompt, which callers must not change."""
    tail: str
    """See ``markup.matters``."""


class SharedPrompts:
    """Decode prompts with ``decode`` and keep the latest prompts."""

    def __init__(self, decode: Decode, redactor: Redactor) -> None:
        self._decode = decode
        self._redactor = redactor
        self._prompts: OrderedDict[bytes, SharedPrompt] = OrderedDict()
        self._characters = 0

    def of(self, ids: Sequence[int]) -> SharedPrompt:
        """Return the prompt of these tokens. Raises errors of the tokenizer."""
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
