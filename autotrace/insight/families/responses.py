"""Compare the response and the mask that the agent returned with the engine's answers in each turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotrace.insight.evidence import Evidence, LLMCall
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.trajectory.receipt import pieces
from autotrace.trajectory.token_ids import PROBE, TRIMMED, find, packed_ids, piece, tokens

RUN = 4
"""Allow the mask to cover so many wrong tokens in a row."""
REWRITTEN = ("AT-RETOKENIZED", "AT-THINKING-STRIPPED")
"""List the marks of an agent that renders answers again."""

CODES = Code.each({
    "AT-MASK-TOOL-TOKENS": 1.0, "AT-MASK-EMPTY": 1.0, "AT-MASK-INVALID": 1.0, "AT-RESPONSE-CHANGED": 1.0,
})  # fmt: skip


def masks(evidence: Evidence) -> Iterator[Mark]:
    """Compare the agent's mask with the response and the turns."""
    agent = evidence.agent
    if agent is None or agent.response_mask is None or not (ids := agent.response_ids):
        return
    mask = agent.response_mask
    if not mask:
        return  # ``trainer`` finds the consequence
    if len(mask) != len(ids):
        yield Mark("AT-MASK-INVALID", None, None, f"{len(mask)} values for {len(ids)} tokens")
        return
    if not any(mask):
        yield Mark("AT-MASK-EMPTY", None, None, f"{len(mask)} tokens")
        return
    response = packed_ids(ids) or b""
    turns = _returned(evidence, response)
    if not turns or any(not call.ids for call in turns):
        return
    in_order = pieces([call.span for call in turns], agent)
    if in_order is not None:
        places = [(start, start + length) for start, length in in_order.values()]
        yield from _covered(turns, places, bytes(mask))
        return
    answers = [call.ids for call in turns]
    if all(tokens(answer or b"") >= PROBE and find(response, piece(answer or b"", 0, PROBE)) < 0 for answer in answers):
        yield Mark("AT-RESPONSE-CHANGED", turns[0].number, 0, f"{len(ids)} tokens were returned")
        return
    found = _places(turns, response)
    if found is not None:
        yield from _covered(turns, found, bytes(mask))
    else:
        yield from _changed(turns, response, bytes(mask))


def _returned(evidence: Evidence, response: bytes) -> list[LLMCall]:
    """Return the turns of the chain that the agent returned; all turns if the response joins all chains."""
    own = [call.number for call in evidence.final]
    others = [call.ids or b"" for call in evidence.turns if call.number not in own]
    is_whole = all(said and find(response, piece(said, 0, max(1, tokens(said) - TRIMMED))) >= 0 for said in others)
    return evidence.turns if is_whole else evidence.final


def _covered(turns: Sequence[LLMCall], places: list[tuple[int, int]], mask: bytes) -> Iterator[Mark]:
    numbers = [call.number for call in turns]
    gaps = [(0, 0)] + [(end, turn) for turn, (_, end) in zip(numbers, places, strict=False)]
    starts = [start for start, _ in places] + [len(mask)]
    for (begin, turn), end in zip(gaps, starts, strict=True):
        at = mask.find(b"\x01" * RUN, begin, end)
        if at >= 0:
            what = "what followed" if turn else "the prompt before"
            turn = turn or numbers[0]
            yield Mark("AT-MASK-TOOL-TOKENS", turn, at, f"{mask.count(1, begin, end)} tokens of {what} turn {turn}")
            return
    for turn, (begin, end) in zip(numbers, places, strict=False):
        inside = mask[begin:end]
        if 0 < inside.count(0) < len(inside) and (inside[0] == 0) != (inside[-1] == 0):
            beyond = mask[end : end + 1] if inside[0] == 0 else mask[begin - 1 : begin] if begin else b""
            if beyond == b"\x01":
                shifted = begin if inside[0] == 0 else begin + inside.find(0)
                yield Mark("AT-MASK-INVALID", turn, shifted, "the mask is shifted against the turns")
                return


def _changed(turns: Sequence[LLMCall], response: bytes, mask: bytes) -> Iterator[Mark]:
    """Find an answer that is no piece of the response: the mask covers other tokens between the answers around."""
    at, missing = 0, 0
    for number, ids in [*((call.number, call.ids or b"") for call in turns), (0, b"")]:  # 0: the end of the response
        length = tokens(ids)
        if number and length < PROBE + TRIMMED:
            continue
        begin = _begin(response, ids, at, TRIMMED) if number else tokens(response)
        if begin < 0:
            missing = missing or number
            continue
        learnt = mask.find(b"\x01" * RUN, at, begin) if missing else -1
        if learnt >= 0:
            yield Mark("AT-RESPONSE-CHANGED", missing, learnt, f"what the engine said in turn {missing} is not there")
            return
        at, missing = begin + length, 0


def rendered_anew(evidence: Evidence, marks: Sequence[Mark]) -> Iterator[Mark]:
    """Find each AT-RESPONSE-CHANGED in ``marks`` that repeats another mark: the tokens in the response at the place of
    the answer are also in the prompt of a later turn. The agent rendered the answer so in both."""
    agent = evidence.agent
    if agent is None or not any(mark.code in REWRITTEN for mark in marks):
        return
    for changed in marks:
        if changed.code == "AT-RESPONSE-CHANGED":
            at = changed.token or 0
            anew = piece(packed_ids(agent.response_ids) or b"", at, at + PROBE)
            later = (packed_ids(call.span.prompt_ids) for call in evidence.turns if call.number > (changed.turn or 0))
            if anew and any(find(prompt or b"", anew) >= 0 for prompt in later):
                yield changed


def _places(turns: Sequence[LLMCall], response: bytes) -> list[tuple[int, int]] | None:
    """Return where each turn's answer is in the response; None: the answers are not pieces of the response."""
    places: list[tuple[int, int]] = []
    at, length = 0, tokens(response)
    for call in turns:
        begin = _begin(response, call.ids or b"", at)
        if begin < 0:
            return places if places and at >= length else None  # the response was cut before this turn
        at = min(length, begin + tokens(call.ids or b""))
        places.append((begin, at))
    return places or None


def _begin(response: bytes, ids: bytes, at: int, trimmed: int = 0) -> int:
    """Return where an answer begins in the response from ``at`` on: whole except for the last ``trimmed`` tokens, or
    cut at the end of the response; -1: nowhere."""
    begin = find(response, piece(ids, 0, tokens(ids) - trimmed), at)
    head = find(response, piece(ids, 0, PROBE), at) if begin < 0 else -1
    return head if head >= 0 and ids.startswith(piece(response, head)) else begin


def end_lost(evidence: Evidence) -> Iterator[Mark]:
    """Find a last turn that the engine ended, if the trained response has the whole turn except the end token."""
    agent, settings = evidence.agent, evidence.settings
    if agent is None or not evidence.turns or not (ids := agent.response_ids):
        return
    last = evidence.final[-1]
    said = tokens(last.ids or b"")
    if said <= PROBE or last.last not in settings.end_tokens or ids[-1] in settings.end_tokens:
        return
    if settings.response_length is not None and len(ids) >= settings.response_length:
        return
    if (packed_ids(ids[1 - said :]) or b"") == piece(last.ids or b"", 0, said - 1):
        yield Mark("AT-NO-EOS", last.number, said - 1, f"token {last.last} is not in the response that is trained on")


OF_TRAJECTORY = (masks, end_lost)
