"""The texts of one trajectory's calls: every token is decoded once, and redacted once it is text.

A prompt that goes on where an earlier call ended shares the pieces of text decoded so far; the whole of it is put
together, and redacted, when somebody asks for it.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotrace.redact.credentials import ORDINARY
from autotrace.redact.redactor import Redactor
from autotrace.ship.assembly.byte_level import REPLACED
from autotrace.ship.assembly.shared_prompts import SharedPrompt, SharedPrompts
from autotrace.ship.assembly.tokenizer import Decode
from autotrace.trajectory.deferred import Continued, Deferred
from autotrace.trajectory.markup import UNKNOWN, matters, prompt_messages, response_message
from autotrace.trajectory.model import Span, Trajectory

_OUTER_ROLES = ("agent", "trajectory")


Signs = frozenset[str] | None
"""What stands in a text that secrets have (``Redactor.signs``)."""


@dataclass(slots=True)
class _Call:
    """A call with tokens."""

    span: Span
    ids: Sequence[int] | None
    """What is new of its prompt."""
    continues: bool
    """It continues another call."""
    answer: Sequence[int] | None
    new: str | None = None
    """What is new of its prompt as text, where it continues another call."""
    response: str | None = None
    """Its answer as text."""


@dataclass(slots=True)
class _Said:
    """What one call read and answered, as the first of ``pieces``, which later calls continue."""

    pieces: list[str]
    prompt: int
    """So many of them are the prompt."""
    end: int
    """So many are prompt and response; the same where there is no response."""
    tail: str
    """Of their text, as much as says in whose message the next one begins."""
    tokens: int
    answered: bool
    redacted: bool
    """Something in it was."""

    def text(self, count: int) -> str:
        return "".join(self.pieces[:count])


class Conversation:
    """Fills the texts of ``trajectory`` with what ``decode`` makes of its tokens."""

    def __init__(
        self,
        trajectory: Trajectory,
        decode: Decode,
        redactor: Redactor,
        shared: SharedPrompts | None = None,
        calls: Sequence[Span] | None = None,
    ) -> None:
        """``shared``: prompts of earlier trajectories, of the same ``decode`` and ``redactor``. ``calls``: those whose
        tokens ``decode`` knows; None: all."""
        self._calls = trajectory.spans if calls is None else calls
        self._is_part = self._calls is not trajectory.spans
        self._shared = shared or SharedPrompts(decode, redactor)
        self._trajectory = trajectory
        self._decode = decode
        self._redactor = redactor
        self._said: dict[str, _Said] = {}
        """By span, in their order."""
        self._spans: dict[str, Span] = {}
        """Those that were looked at."""
        self._withdrawn: list[tuple[Span, str]] = []
        """Token ids that spell what was redacted."""
        self._redacted: set[str] = set()
        self._is_whole = False
        """An agent's call has all of the text, which was looked at for what is to be redacted."""
        self._signs: list[Signs] = []
        """Of the texts."""
        self._prompts: dict[str, Signs] = {}
        """Prompts that begin a conversation, and their signs."""

    def fill(self) -> None:
        """Fill them. Raises what the tokenizer raises; what was filled until then is redacted."""
        spans, decoded = self._calls, list[_Call]()
        try:
            try:
                asked = self._asked(spans)
                parts = [ids for call in asked for ids in (call.ids if call.continues else None, call.answer)]
                made = self._texts([ids for ids in parts if ids is not None])
                for call in asked:
                    call.new = next(made) if call.continues else None
                    call.response = None if call.answer is None else next(made)
                    decoded.append(call)
            finally:
                texts = [text for each in decoded for text in (each.new, each.response) if text is not None]
                self._signs = self._redactor.signs_of_each(texts)
                signs = iter(self._signs.copy())
                for each in decoded:
                    self._call(each, None if each.new is None else next(signs),
                               None if each.response is None else next(signs))  # fmt: skip
            self._whole()
        finally:
            for span, name in self._withdrawn:
                setattr(span, name, None)
            if self._redacted or not self._is_whole:
                self._texts_stand_alone()
            self._trajectory.notes += [
                f"redacted after decoding, token ids left out: {span.name}"
                for span in spans
                if span.span_id in self._redacted
            ]

    def _texts_stand_alone(self) -> None:
        """Of a text that was redacted as a whole its parts may not have everything redacted: prompts do not follow from
        those of earlier calls then."""
        for id in self._said:
            span = self._spans[id]
            prompt = vars(span).get("_prompt_text")
            if isinstance(prompt, Continued):
                span.prompt_text = Deferred(prompt.make)

    def _asked(self, spans: Sequence[Span]) -> list[_Call]:
        """Those of ``spans`` that have tokens."""
        asked = []
        for span in spans:
            self._spans[span.span_id] = span
            if span.has_tokens:
                ids = span.new_prompt_ids if (packed := _numbers(span.packed_prompt)) is None else packed
                answer = span.response_ids if (packed := _numbers(span.packed_response)) is None else packed
                asked.append(_Call(span, ids, ids is not None and span.prompt_base in self._spans, answer))
        return asked

    def _texts(self, sequences: list[Sequence[int]]) -> Iterator[str]:
        """Of each of ``sequences``; all at once where that can be done. Raises what the tokenizer raises."""
        at_once = getattr(self._decode, "each", None)
        made = None if at_once is None or not all(isinstance(ids, array) for ids in sequences) else at_once(sequences)
        return map(self._decode, sequences) if made is None else iter(made)

    def _call(self, decoded: _Call, of_new: Signs, of_response: Signs) -> None:
        """``of_new``, ``of_response``: the signs of its texts."""
        span, response, redacted, said = decoded.span, decoded.response, False, None
        if decoded.ids is not None:
            shared = self._shared.of(decoded.ids) if decoded.new is None else None
            said = self._prompt(decoded, decoded.ids, shared)
            if shared is not None:
                self._signs.append(of_new := shared.signs)
                self._prompts[shared.text] = of_new
            redacted = self._redact(of_new, span, "new_prompt_text", "new_prompt_ids") or said.redacted
        if response is not None:
            span.response_text = response
            redacted = self._redact(of_response, span, "response_text", "response_ids") or redacted
        if redacted:
            self._redacted.add(span.span_id)
            self._withdrawn.append((span, "prompt_ids"))
        if said is not None:
            said.redacted = redacted
        if redacted and span.messages is not None:
            span.messages = self._redactor.clean("messages", span.messages)

    def _prompt(self, decoded: _Call, ids: Sequence[int], shared: SharedPrompt | None) -> _Said:
        """What a call read, ``ids`` of it anew: the continuation of an earlier call where that is decoded, else
        ``shared``."""
        span, new, response, redacted, messages = decoded.span, decoded.new, decoded.response, False, None
        continued: str | None = None
        if shared is not None or new is None:
            assert shared is not None
            new, before, messages = shared.text, "", [{**message} for message in shared.messages]
            pieces, tail = [new], shared.tail
        else:
            base = self._said.get(span.prompt_base or "")
            if base is not None and base.answered and span.prompt_keep == base.tokens:
                pieces, redacted, before = base.pieces, base.redacted, base.tail
                if len(pieces) != base.end:  # another call went on from there
                    pieces = pieces[: base.end]
                pieces.append(new)
                continued = span.prompt_base
            else:
                ids_of_whole = span.prompt_ids
                whole = new if ids_of_whole is None else self._decode(ids_of_whole)
                pieces, redacted, before = [whole], self._redactor.text(whole) != whole, whole.removesuffix(new)
            tail = before + new
        if span.role == "llm" and span.messages is None:
            fallback = UNKNOWN if self._anew(span) else "user"
            span.messages = prompt_messages(new, before, fallback) if messages is None else messages
            if response is not None:
                span.messages.append(response_message(response))
        count = len(pieces)
        tokens = span.prompt_keep + len(ids)
        said = self._said[span.span_id] = _Said(pieces, count, count, "", tokens, response is not None, redacted)
        if response is not None:
            pieces.append(response)
            said.end, said.tokens = count + 1, tokens + len(decoded.answer or ())
        said.tail = matters(tail + (response or ""))
        make = _redacted_text(self._redactor, said)
        follows = shared is not None or continued is not None
        span.new_prompt_text, span.prompt_text = new, Continued(make, continued) if follows else Deferred(make)
        return said

    def _anew(self, span: Span) -> bool:
        """A part of what its base read and said was tokenised anew for ``span``."""
        base = self._spans.get(span.prompt_base or "")
        if base is None:
            return False
        new = len(base.packed_prompt or b"") + len(base.packed_response or b"")
        return span.prompt_keep < base.prompt_keep + new // 4

    def _redact(self, known: Signs, span: Span, name: str, ids: str) -> bool:
        """Redact a text now that tokens are text; ids that spell what was redacted go with it. ``known``: its signs."""
        if known == ORDINARY:
            return False
        decoded = getattr(span, name)
        cleaned = self._redactor.cleaned(decoded, known)
        if cleaned == decoded:
            return False
        setattr(span, name, cleaned)
        self._withdrawn.append((span, ids))
        return True

    def _whole(self) -> None:
        """The outermost agent call gets the first prompt and everything that followed it, as veRL's token2text has
        it."""
        spans = self._trajectory.spans
        calls = [span for span in self._trajectory.llm_spans if span.span_id in self._said]
        outer = next((span for role in _OUTER_ROLES for span in spans if span.role == role), None)
        if not calls or outer is None or (self._is_part and outer.prompt_text is not None):
            return
        first, last = calls[0], calls[-1]
        before = self._said[first.span_id]
        outer.prompt_text = text = before.text(before.prompt)
        known = self._prompts[text] if text in self._prompts else self._redactor.signs(text)
        redacted = self._redact(known, outer, "prompt_text", "prompt_ids")
        prompt, cleaned = vars(first).get("_prompt_text"), outer.prompt_text
        if isinstance(prompt, Deferred):
            prompt.make = lambda: cleaned  # which is looked through for credentials once
        returned, joined = outer.response_ids, None
        response = returned or []
        if returned is None:
            joined = self._joined(before, self._said[last.span_id])
            if joined is None or outer.response_mask is not None:
                beginning, everything = first.prompt_ids or [], [*(last.prompt_ids or []), *(last.response_ids or [])]
                if everything[: len(beginning)] != beginning:
                    self._mark(outer, redacted)
                    return
                response = everything[len(beginning) :]
        if outer.response_text is None:
            if joined is None:
                text = self._decode(response)
                joined = text, self._redactor.signs(text)
            outer.response_text, known = joined
            redacted = self._redact(known, outer, "response_text", "response_ids") or redacted
            self._is_whole = True
        pieces = _parts(response, outer.response_mask, self._decode)
        outer.response_parts = None if pieces is None else self._redactor.clean("response_parts", pieces)
        self._mark(outer, redacted)

    def _joined(self, first: _Said, last: _Said) -> tuple[str, Signs] | None:
        """The text of what follows the prompt of ``first`` up to the end of ``last``, where it is that of its parts,
        and its signs; then ``last`` goes on, over others, where ``first`` ended."""
        if last.pieces is not first.pieces or not getattr(self._decode, "joins", False):
            return None
        pieces = last.pieces[first.prompt : last.end]
        text = "".join(pieces)
        if REPLACED in text:  # a character may be split between two parts
            return None
        borders = [*itertools.accumulate(map(len, pieces))][:-1]
        return text, self._redactor.signs_of_whole(text, self._signs, borders)

    def _mark(self, span: Span, redacted: bool) -> None:
        if redacted:
            self._redacted.add(span.span_id)


def _numbers(packed: bytes | None) -> array[int] | None:
    return None if packed is None else array("i", packed)


def _redacted_text(redactor: Redactor, said: _Said) -> Callable[[], str]:
    """Knows nothing of the trajectory: a cycle would keep what was delivered until the next garbage collection."""
    return lambda: redactor.text(said.text(said.prompt))


def _parts(response: list[int], mask: list[int] | None, decode: Decode) -> list[dict[str, str]] | None:
    """The model's text (mask 1) and the tools' text (mask 0), in order."""
    if mask is None or len(mask) != len(response) or len(set(map(bool, mask))) < 2:
        return None
    pieces: list[dict[str, Any]] = []
    at = 0
    for model, run in itertools.groupby(map(bool, mask)):
        length = sum(1 for _ in run)
        pieces.append({"model" if model else "tools": decode(response[at : at + length])})
        at += length
    return pieces
