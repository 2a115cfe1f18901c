"""Pack the tokens of a trajectory as arrays, each token with its text, for the page that colours tokens.

Parts follow turn by turn: the new part of a prompt, then the response.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from autotrace.insight.families.mismatch import by_token
from autotrace.tables.rollout import Rollout
from autotrace.trajectory.jsonable import integer
from autotrace.trajectory.model import Span, Trajectory
from autotrace.view.columns import MISSING, pack

Decode = Callable[[list[int]], "str | None"]
DecodeOf = Callable[[list[int], str], "str | None"]
"""Decode token ids, given the key of their target."""

PROMPT, MODEL, CONTEXT = 0, 1, 2
"""Origin of a token: the first prompt; the model; tools, users and templates later on."""
UNKNOWN = 255
"""Value in ``mask``: whether the trainer learns from this token is not known."""
_NO_NUMBER = 0x7F800000
"""Bits that are all set in NaN and infinities."""
REPLACED = "\ufffd"
LONGEST = 12
"""Maximum tokens of a single character."""


def packed(trajectory: Trajectory, decode: DecodeOf, *, short: bool = False) -> bytes:
    """Pack all tokens: arrays ``id``, ``mask``, ``logprob``, ``units`` (length of each text in UTF-16), of the same
    length, and the bytes of ``text``; ``parts`` has turn, span, kind, first token and count of each part. If the
    trainer's numbers were recorded, also ``mismatch``, ``entropy`` and ``advantages``. ``short``: numbers with three
    digits, which compress to half."""
    rollout = Rollout(trajectory)
    masks = rollout.masks or {}
    ids, mask, logprobs = array("i"), array("B"), array("f")
    trainers = {name: array("f") for name, of in _TRAINERS.items() if any(of(call.span) for call in rollout.spans)}
    parts: list[dict[str, Any]] = []
    pieces: list[str] = []

    @cache
    def of(key: str) -> Pieces:
        return Pieces(lambda ids: decode(ids, key))

    def add(kind: int, turn: int, span: Span, tokens: Sequence[int] | None, **more: Any) -> None:
        if not tokens:
            return
        parts.append(
            {"kind": kind, "turn": turn, "span": span.span_id, "first": len(ids), "count": len(tokens), **more}
        )
        ids.extend(tokens)
        pieces.extend(of(span.key).of(tokens))
        logprobs.extend(_filled(span.logprobs if kind == MODEL else None, len(tokens), MISSING))
        for name, values in trainers.items():
            values.extend(_filled(_TRAINERS[name](span) if kind == MODEL else None, len(tokens), MISSING))
        own = (span.loss_mask or masks.get(span.span_id) or span.response_mask or ()) if kind == MODEL else ()
        blank = 0 if kind != MODEL else UNKNOWN
        mask.extend(_filled([1 if value else 0 for value in own], len(tokens), blank))

    for call in rollout.turns:
        span = call.span
        version = integer(call.figures.get("weight_version"))
        add(PROMPT if call.turn == 1 else CONTEXT, call.turn, span, span.new_prompt_ids, keep=span.prompt_keep)
        add(MODEL, call.turn, span, span.response_ids, version=version)
    whole = rollout.untold
    if whole is not None and not parts:
        add(MODEL, 0, whole, whole.response_ids)
    text = "".join(pieces)
    units = array("H", (min(_units(piece), 65535) for piece in pieces))
    numbers = {"logprob": logprobs, **trainers}
    if short:
        numbers = {name: _rounded(values) for name, values in numbers.items()}
    arrays: dict[str, array[Any]] = {"id": ids, "mask": mask, "units": units, **numbers}
    arrays["text"] = array("B", text.encode("utf-8", "replace"))
    return pack({"parts": parts, "advantage": trajectory.facts.get("advantage")}, arrays)


def _rounded(values: array[float]) -> array[float]:
    """Round each number to the first 11 bits of its digits."""
    bits = array("I", values.tobytes())
    rounded = array("I", (each if each & _NO_NUMBER == _NO_NUMBER else each + 0x1000 & 0xFFFFE000 for each in bits))
    return array("f", rounded.tobytes())


_TRAINERS: dict[str, Callable[[Span], list[float] | None]] = {
    "mismatch": by_token,
    "entropy": lambda span: span.entropy,
    "advantages": lambda span: span.advantages,
}


def _filled(values: Sequence[Any] | None, count: int, blank: Any) -> list[Any]:
    """Return the first ``count`` of ``values``, with ``blank`` for missing values."""
    given = [blank if value is None else value for value in (values or ())[:count]]
    return given + [blank] * (count - len(given))


def _units(piece: str) -> int:
    """Return the length of a text as JavaScript counts."""
    return len(piece) if piece.isascii() else len(piece.encode("utf-16-le", "replace")) // 2


class Pieces:
    """Split text into the text of each token; the joined pieces are the whole text."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._piece = cache(self._alone)

    def of(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token. The first token of a character has the character, other tokens have no text.
        Without a decoder the token's number is shown."""
        pieces = [self._piece(id) for id in ids]
        at = 0
        while at < len(ids):
            if REPLACED not in pieces[at]:
                at += 1
                continue
            text, count = self._joined(ids, at)
            pieces[at : at + count] = [text, *[""] * (count - 1)]
            at += count
        return pieces

    def _alone(self, id: int) -> str:
        before = self._decode([id])
        twice = self._decode([id, id])
        if before is not None and twice and len(twice) > 2 * len(before):  # decoders that drop a leading space
            return twice[len(before) :]
        return f"⟨{id}⟩" if before is None else before

    def _joined(self, ids: Sequence[int], at: int) -> tuple[str, int]:
        """Return the text of the shortest sequence from ``at`` that consists of whole characters, and the sequence's
        length."""
        for count in range(2, min(LONGEST, len(ids) - at) + 1):
            text = self._decode(list(ids[at : at + count]))
            if text is not None and REPLACED not in text:
                return text, count
        return self._piece(ids[at]), 1
