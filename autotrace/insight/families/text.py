"""What was said: loops, and text that is none."""

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
"""Tokens at the end of an answer that are looked at."""
PERIOD, LONG_PERIOD = 64, 128
"""Tokens of the longest loop; of an answer of ``LONG`` tokens, of whose end twice the window is looked at."""
GRAM, NEW = 4, 0.15
"""Tokens of a piece, and the share of such pieces at the end of a cut answer that are not said twice: what has fewer
says the same few sentences in another order."""
COVERED, EXACT = 0.9, 0.99
"""Share of the window that one piece repeats; of an answer that ends by itself, which tables do, too."""
SOON, SOON_PERIOD = 96, 24
"""The same of an answer that was cut soon after its loop began: tokens at its end, all of them in the loop."""
SHORTEST = 128
"""Tokens of the shortest answer that is looked at."""
LONG = 512
"""Tokens from which an answer that loops is one, though it ended."""
STUCK = 16
"""Tokens of a loop that fills the whole window of a shorter answer that ended by itself: no list is so short-winded."""
NO_TEXT = re.compile(r"[\ufffd\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x80-\x9f\ue000-\uf8ff]")
"""Characters that stand for what is no text: none, control characters, those that nobody has given a meaning."""
GARBLED, FEW = 0.02, 5
"""Share and number of them."""
MIXED = re.compile(
    r"[\u0370-\u03ff\u1f00-\u1fff](?=[^\W\d_\u0370-\u03ff\u1f00-\u1fff])|[\u0400-\u04ff](?=[^\W\d_\u0400-\u04ff])|[\u0590-\u05ff](?=[^\W\d_\u0590-\u05ff])"
    r"|[\u0600-\u06ff](?=[^\W\d_\u0600-\u06ff])|[\u0900-\u097f](?=[^\W\d_\u0900-\u097f])|[\u0e00-\u0e7f](?=[^\W\d_\u0e00-\u0e7f])"
    r"|[\uac00-\ud7af](?=[^\W\d_\uac00-\ud7af])"
)
"""A letter that another script's letter follows within a word."""
SCRIPTS = 0.1
"""Share of such letters."""

CODES = Code.each({"AT-REPETITION": 0.6, "AT-GARBLED": 0.8})


def loops(evidence: Evidence) -> Iterator[Mark]:
    """Answers whose end is one piece over and over."""
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
        elif window > WINDOW:  # it was stuck at the end of something longer
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
    """By itself, as far as anything says so: neither does the engine say that it was cut, nor does it lack an end token
    where these are known."""
    ends = evidence.settings.end_tokens
    if call.last in ends:
        return True
    return not ends and (call.finish or "") not in CUT | ABORTED | {AS_ASKED}


def _period(data: bytes, covered: float, longest: int) -> int:
    """The length of the piece that ``data``, four bytes a token, repeats; 0: none."""
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
    """The first token of the loop that goes on at ``at``, or soon after it."""
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
    """Of how many tokens ``window`` is made, if nearly all of it is said twice; 0: it says something new, or is
    digits."""
    grams, words = _grams(window), len(set(window))
    return words if words >= 2 * GRAM and len(set(grams)) < NEW * len(grams) else 0


def _since(ids: list[int], at: int) -> int:
    """From where on nothing is said that is not said behind ``at``."""
    known = set(_grams(ids[at:]))
    while at > 0 and tuple(ids[at - 1 : at - 1 + GRAM]) in known:
        at -= 1
    return at


def garbled(evidence: Evidence) -> Iterator[Mark]:
    """Texts with characters that are none."""
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
    """What was said, as far as it is known as text, and in which turn: None where that is not known."""
    for call in evidence.turns:
        if isinstance(text := call.span.response_text, str):
            yield call.number, text
    for span in evidence.trajectory.spans:
        if span.role == "parser" and isinstance(span.output, list) and span.output and isinstance(span.output[0], str):
            yield evidence.turn_at(span.start_ns) or None, span.output[0]
    for text in evidence.judged:
        yield None, text


def _where(evidence: Evidence, share: float) -> int | None:
    """The turn at that share of the response, as many tokens as characters."""
    turns = evidence.final
    if not turns or (first := turns[0].span.prompt_tokens) is None or (total := turns[-1].total) is None:
        return turns[-1].number if turns else None
    ends = ((call.number, (call.total or 0) - first) for call in turns)
    return next((number for number, end in ends if share * (total - first) < end), turns[-1].number)


OF_TRAJECTORY = (loops, garbled)
