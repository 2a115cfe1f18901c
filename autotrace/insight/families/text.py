"""Find faulty texts: loops, and characters that are not text."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from operator import eq

from autotrace.insight.evidence import AS_ASKED, CUT, Evidence, LLMCall
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.trajectory.durations import ABORTED
from autotrace.trajectory.token_ids import piece, tokens, unpacked

WINDOW = 256
"""Examine so many tokens at the end of an answer."""
PERIOD, LONG_PERIOD = 64, 128
"""Limit the tokens of a loop; the second number counts for an answer of ``LONG`` tokens, whose end is examined over
twice the window."""
GRAM, NEW = 4, 0.15
"""Set the tokens of a piece, and the share of new pieces at the end of a cut answer: fewer new pieces repeat the same
few sentences in another order."""
COVERED, EXACT = 0.9, 0.99
"""Set the share of the window that one piece repeats; the second number counts for an answer that ends by itself,
because tables repeat, too."""
SOON, SOON_PERIOD = 96, 24
"""Examine an answer that was cut soon after its loop began: so many tokens at its end, all in a loop of so many
tokens."""
SHORTEST = 128
"""Skip shorter answers."""
LONG = 512
"""Report a loop in an answer of so many tokens, though the answer ended."""
STUCK = 16
"""Limit the tokens of a loop that fills the whole window of a shorter answer that ended by itself: a list has longer
items."""
NO_TEXT = re.compile(r"[\ufffd\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x80-\x9f\ue000-\uf8ff]")
"""Match characters that are not text: the replacement character, control characters, private characters."""
GARBLED, FEW = 0.02, 5
"""Require such a share and number of the characters."""
MIXED = re.compile(
    r"[\u0370-\u03ff\u1f00-\u1fff](?=[^\W\d_\u0370-\u03ff\u1f00-\u1fff])|[\u0400-\u04ff](?=[^\W\d_\u0400-\u04ff])|[\u0590-\u05ff](?=[^\W\d_\u0590-\u05ff])"
    r"|[\u0600-\u06ff](?=[^\W\d_\u0600-\u06ff])|[\u0900-\u097f](?=[^\W\d_\u0900-\u097f])|[\u0e00-\u0e7f](?=[^\W\d_\u0e00-\u0e7f])"
    r"|[\uac00-\ud7af](?=[^\W\d_\uac00-\ud7af])"
)
"""Match a letter that another script's letter follows within a word."""
SCRIPTS = 0.1
"""Require such a share of mixed letters."""

CODES = Code.each({"AT-REPETITION": 0.6, "AT-GARBLED": 0.8})


def loops(evidence: Evidence) -> Iterator[Mark]:
    """Find answers whose end repeats one piece."""
    for call in evidence.turns:
        data, ended = call.ids or b"", _ended(evidence, call)
        length = tokens(data)
        end = length - 1 if ended else length
        if length < SHORTEST or (ended and end < WINDOW):
            continue
        window, longest = (2 * WINDOW, LONG_PERIOD) if length >= LONG else (WINDOW, STUCK if ended else PERIOD)
        looks = [(window, EXACT if ended else COVERED, longest)]
        if not ended:
            looks.append((SOON, EXACT, SOON_PERIOD))
        elif window > WINDOW:  # the end of a longer answer was stuck
            looks.append((WINDOW, EXACT, STUCK))
        for width, covered, longest in looks:
            start = max(0, end - width)
            if period := _period(piece(data, start, end), covered, longest):
                break
        if period:
            begin = _begin(unpacked(data), period, start)
            words = f"the same {period} tokens over and over"
        elif not ended and length >= LONG and (few := _few(unpacked(piece(data, end - window)))):
            begin, words = _since(unpacked(data), end - window), f"the same {few} tokens in ever other orders"
        else:
            continue
        yield Mark("AT-REPETITION", call.number, begin, f"{words}, from token {begin}")
        return


def _ended(evidence: Evidence, call: LLMCall) -> bool:
    """Return whether the answer ended by itself, as far as known: the engine does not report a cut, and the answer has
    an end token if end tokens are known."""
    ends = evidence.settings.end_tokens
    if call.last in ends:
        return True
    return not ends and (call.finish or "") not in CUT | ABORTED | {AS_ASKED}


def _period(data: bytes, covered: float, longest: int) -> int:
    """Return the length of the piece that ``data``, four bytes a token, repeats; 0: none."""
    tail = data[-32:]
    at = data.rfind(tail, 0, len(data) - 4)
    while at >= 0 and at % 4:
        at = data.rfind(tail, 0, at + 31)
    period = (len(data) - 32 - at) // 4 if at >= 0 else 0
    if not 0 < period <= longest:
        return 0
    window = array("i", data)
    same = sum(map(eq, window, window[period:]))
    return period if same >= covered * (len(window) - period) else 0


def _begin(ids: list[int], period: int, at: int) -> int:
    """Return the first token of the loop that goes on at ``at``, or soon after."""
    starts = range(at, len(ids) - 2 * period + 1)
    at = next((i for i in starts if ids[i : i + period] == ids[i + period : i + 2 * period]), at)
    while at > 0 and ids[at - 1] == ids[at - 1 + period]:
        at -= 1
    while at + period < len(ids) and ids[at] != ids[at + period]:
        at += 1
    return at


def _grams(ids: list[int]) -> list[tuple[int, ...]]:
    return list(zip(*(ids[at:] for at in range(GRAM)), strict=False))


def _few(window: list[int]) -> int:
    """Count the distinct tokens of ``window``, if nearly every piece occurs twice; 0: the window has new pieces, or
    digits."""
    grams, words = _grams(window), len(set(window))
    return words if words >= 2 * GRAM and len(set(grams)) < NEW * len(grams) else 0


def _since(ids: list[int], at: int) -> int:
    """Return the token after which every piece also occurs behind ``at``."""
    known = set(_grams(ids[at:]))
    while at > 0 and tuple(ids[at - 1 : at - 1 + GRAM]) in known:
        at -= 1
    return at


def garbled(evidence: Evidence) -> Iterator[Mark]:
    """Find texts with characters that are not text."""
    for turn, text in _texts(evidence):
        for pattern, share in ((NO_TEXT, GARBLED), (MIXED, SCRIPTS)):
            if pattern is MIXED and text.isascii():
                continue
            found = [match.start() for match in pattern.finditer(text)]
            if len(found) >= max(FEW, share * len(text)):
                where = _where(evidence, found[0] / len(text)) if turn is None else turn
                yield Mark("AT-GARBLED", where, None, f"{len(found)} of {len(text)} characters")
                return


def _texts(evidence: Evidence) -> Iterator[tuple[int | None, str]]:
    """Yield the known texts and their turns; None: the turn is not known."""
    for call in evidence.turns:
        if isinstance(text := call.span.response_text, str):
            yield call.number, text
    for span in evidence.trajectory.spans:
        if span.role == "parser" and isinstance(span.output, list) and span.output and isinstance(span.output[0], str):
            yield evidence.turn_at(span.start_ns) or None, span.output[0]
    for text in evidence.judged:
        yield None, text


def _where(evidence: Evidence, share: float) -> int | None:
    """Return the turn at that share of the response, counting tokens like characters."""
    turns = evidence.final
    if not turns or (first := turns[0].span.prompt_tokens) is None or (total := turns[-1].total) is None:
        return turns[-1].number if turns else None
    ends = ((call.number, (call.total or 0) - first) for call in turns)
    return next((number for number, end in ends if share * (total - first) < end), turns[-1].number)


OF_TRAJECTORY = (loops, garbled)
