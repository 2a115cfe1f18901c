"""Fill the texts of a trajectory's calls: every token is decoded once, and redacted as text.

A prompt that continues an earlier call shares the decoded pieces of text; the whole prompt is joined, and redacted, on
access.
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
"""Signs of secrets in a text (``Redactor.signs``)."""


@dataclass(slots=True)
class _Call:
    """Describe a call with tokens."""

    span: Span
    ids: Sequence[int] | None
    """New token ids of the prompt."""
    continues: bool
    """Whether the prompt continues another call."""
    answer: Sequence[int] | None
    new: str | None = None
    """New text of the prompt, if the prompt continues another call."""
    response: str | None = None
    """Text of the answer."""


@dataclass(slots=True)
class _DecodedCall:
    """Describe the prompt and answer of a call as the first of ``pieces``, which later calls continue."""

    pieces: list[str]
    prompt: int
    """Number of pieces in the prompt."""
    end: int
    """Number of pieces in prompt and response; equal to ``prompt`` without a response."""
    tail: str
    """End of the text, as much as decides in whose message the next text begins."""
    tokens: int
    answered: bool
    redacted: bool
    """Whether any part was redacted."""

    def text(self, count: int) -> str:
        return "".join(self.pieces[:count])


class ConversationDecoder:
    """Fill the texts of ``trajectory`` by decoding its tokens with ``decode``."""

    def __init__(
        self,
        trajectory: Trajectory,
        decode: Decode,
        redactor: Redactor,
        shared: SharedPrompts | None = None,
        calls: Sequence[Span] | None = None,
    ) -> None:
        """Take ``shared``, prompts of earlier trajectories with the same ``decode`` and ``redactor``, and ``calls``,
        whose tokens ``decode`` knows; None: all calls."""
        self._calls = trajectory.spans if calls is None else calls
        self._is_part = self._calls is not trajectory.spans
        self._shared = shared or SharedPrompts(decode, redactor)
        self._trajectory = trajectory
        self._decode = decode
        self._redactor = redactor
        self._said: dict[str, _DecodedCall] = {}
        """Span id -> prompt and answer, in order."""
        self._spans: dict[str, Span] = {}
        """Spans that were examined, by id."""
        self._withdrawn: list[tuple[Span, str]] = []
        """Fields with token ids that spell redacted text."""
        self._redacted: set[str] = set()
        self._is_whole = False
        """Whether an agent's call has the whole text, which was checked for secrets."""
        self._signs: list[Signs] = []
        """Signs of the texts."""
        self._prompts: dict[str, Signs] = {}
        """Prompt that begins a conversation -> signs."""

    def fill(self) -> None:
        """Fill the texts. Raises errors of the tokenizer; texts filled before the error are redacted."""
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
        """Detach prompts from earlier prompts. After redaction of a whole text its parts may contain the redacted
        text."""
        for id in self._said:
            span = self._spans[id]
            prompt = vars(span).get("_prompt_text")
            if isinstance(prompt, Continued):
                span.prompt_text = Deferred(prompt.make)

    def _asked(self, spans: Sequence[Span]) -> list[_Call]:
        """Return the calls in ``spans`` that have tokens."""
        asked = []
        for span in spans:
            self._spans[span.span_id] = span
            if span.has_tokens:
                ids = span.new_prompt_ids if (packed := _numbers(span.packed_prompt)) is None else packed
                answer = span.response_ids if (packed := _numbers(span.packed_response)) is None else packed
                asked.append(_Call(span, ids, ids is not None and span.prompt_base in self._spans, answer))
        return asked

    def _texts(self, sequences: list[Sequence[int]]) -> Iterator[str]:
        """Return the text of each of ``sequences``, decoded at once if possible. Raises errors of the tokenizer."""
        at_once = getattr(self._decode, "each", None)
        made = None if at_once is None or not all(isinstance(ids, array) for ids in sequences) else at_once(sequences)
        return map(self._decode, sequences) if made is None else iter(made)

    def _call(self, decoded: _Call, of_new: Signs, of_response: Signs) -> None:
        """Fill the texts of a call; ``of_new``, ``of_response``: signs of the texts."""
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

    def _prompt(self, decoded: _Call, ids: Sequence[int], shared: SharedPrompt | None) -> _DecodedCall:
        """Return the prompt of a call with the new tokens ``ids``: the continuation of a decoded earlier call, else
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
                if len(pieces) != base.end:  # another call continued the same base
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
        said = self._said[span.span_id] = _DecodedCall(pieces, count, count, "", tokens, response is not None, redacted)
        if response is not None:
            pieces.append(response)
            said.end, said.tokens = count + 1, tokens + len(decoded.answer or ())
        said.tail = matters(tail + (response or ""))
        make = _redacted_text(self._redactor, said)
        follows = shared is not None or continued is not None
        span.new_prompt_text, span.prompt_text = new, Continued(make, continued) if follows else Deferred(make)
        return said

    def _anew(self, span: Span) -> bool:
        """Return whether a part of the prompt or answer of the base was tokenised anew for ``span``."""
        base = self._spans.get(span.prompt_base or "")
        if base is None:
            return False
        new = len(base.packed_prompt or b"") + len(base.packed_response or b"")
        return span.prompt_keep < base.prompt_keep + new // 4

    def _redact(self, known: Signs, span: Span, name: str, ids: str) -> bool:
        """Redact a decoded text; also withdraw ids that spell redacted text. ``known``: signs of the text."""
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
        """Give the outermost agent call the first prompt and everything that followed, as in veRL's token2text."""
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
            prompt.make = lambda: cleaned  # checked for credentials once
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

    def _joined(self, first: _DecodedCall, last: _DecodedCall) -> tuple[str, Signs] | None:
        """Return the text between the prompt of ``first`` and the end of ``last``, and its signs, if the text is the
        joined text of its parts; ``last`` must continue ``first``, directly or over other calls."""
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


def _redacted_text(redactor: Redactor, said: _DecodedCall) -> Callable[[], str]:
    """Return the text function without a reference to the trajectory: a cycle would keep delivered trajectories until
    the next garbage collection."""
    return lambda: redactor.text(said.text(said.prompt))


def _parts(response: list[int], mask: list[int] | None, decode: Decode) -> list[dict[str, str]] | None:
    """Return the model's text (mask 1) and the tools' text (mask 0), in order."""
    if mask is None or len(mask) != len(response) or len(set(map(bool, mask))) < 2:
        return None
    pieces: list[dict[str, Any]] = []
    at = 0
    for model, run in itertools.groupby(map(bool, mask)):
        length = sum(1 for _ in run)
        pieces.append({"model" if model else "tools": decode(response[at : at + length])})
        at += length
    return pieces
