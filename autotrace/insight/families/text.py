"""What was said: loops, and text that is none."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from operator import eq

from autotrace.insight.evidence import Evidence, LLMCall, piece, tokens, unpacked
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark

WINDOW = 256
"""Tokens at the end of an answer that are looked at."""
PERIOD = 64
"""Tokens of the longest loop."""
COVERED, EXACT = 0.9, 0.99
"""Share of the window that one piece repeats; of an answer that ends by itself, which tables do, too."""
SHORTEST = 128
"""Tokens of the shortest answer that is looked at."""
LONG = 512
"""Tokens from which an answer that loops is one, though it ended."""
GARBLED, FEW = 0.02, 5
"""Share and number of characters that stand for what is no text."""

CODES = (
    Code(
        "AT-REPETITION", "answers end in a loop",
        "The same few tokens are said again and again until the answer is cut.",
        "The policy collapses, a penalty is missing, or the temperature is too low.",
        "Look at entropy and KL; mask such answers out or give them a reward below a wrong answer's.",
        "Tables, code and lists; an answer that repeats and ends by itself.",
        0.6,
    ),
    Code(
        "AT-GARBLED", "answers are no text",
        "Answers contain bytes that are no characters.",
        "Weights that were loaded wrongly, a numerical fault in the engine, or a collapsed policy.",
        "Compare with the answers of a step before; look at the weight update.",
        "A character that was cut at the end.",
        0.8,
    ),
)  # fmt: skip


def loops(evidence: Evidence) -> Iterator[Mark]:
    """Answers whose end is one piece over and over."""
    for call in evidence.turns:
        data, ended = call.ids or b"", _ended(evidence, call)
        length = tokens(data)
        if length < SHORTEST or (ended and length < LONG):
            continue
        end = length - 1 if ended else length
        period = _period(piece(data, max(0, end - WINDOW), end), EXACT if ended else COVERED)
        if period:
            begin = _begin(unpacked(data), period)
            yield Mark(
                "AT-REPETITION", call.number, begin, f"the same {period} tokens over and over, from token {begin}"
            )
            return


def _ended(evidence: Evidence, call: LLMCall) -> bool:
    return call.last in evidence.settings.end_tokens


def _period(data: bytes, covered: float) -> int:
    """The length of the piece that ``data``, four bytes a token, repeats; 0: none."""
    tail = data[-32:]
    at = data.rfind(tail, 0, len(data) - 4)
    while at >= 0 and at % 4:
        at = data.rfind(tail, 0, at + 31)
    period = (len(data) - 32 - at) // 4 if at >= 0 else 0
    if not 0 < period <= PERIOD:
        return 0
    window = array("i", data)
    same = sum(map(eq, window, window[period:]))
    return period if same >= covered * (len(window) - period) else 0


def _begin(ids: list[int], period: int) -> int:
    """The first token of the loop."""
    at = len(ids) - WINDOW if len(ids) > WINDOW else 0
    while at > 0 and ids[at - 1] == ids[at - 1 + period]:
        at -= 1
    while at + period < len(ids) and ids[at] != ids[at + period]:
        at += 1
    return at


def garbled(evidence: Evidence) -> Iterator[Mark]:
    """Texts with characters that are none."""
    texts = [span.inputs.get("solution_str") for span in evidence.rewards]
    texts += [call.span.response_text for call in evidence.turns]
    for text in texts:
        if isinstance(text, str) and (count := text.count("\ufffd")) >= max(FEW, GARBLED * len(text)):
            yield Mark("AT-GARBLED", len(evidence.turns) or None, None, f"{count} of {len(text)} characters")
            return


OF_TRAJECTORY = (loops, garbled)
