"""What the model saw and what is trained on: prompts that do not continue the conversation, masks, ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autotrace.insight.evidence import ABORTED, AS_ASKED, CUT, Evidence, LLMCall, common, find, packed, piece, tokens
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.records import History, Hit, Step

TRIMMED = 2
"""Tokens at the end of an answer that a chat template may write otherwise: the end of the turn."""
REMOVED = 3
"""Tokens from which a missing beginning of an answer is thinking, not a space."""
PROBE = 8
"""Tokens by which a piece is recognised."""
RUN = 4
"""Tokens in a row that the mask may wrongly cover without anybody's fault."""
COMMON_END, USUAL_END = 0.05, 0.5
"""A last token of so many turns ends them on purpose: where end tokens are not known, and where they are (a stop
string)."""
ENOUGH = 16
"""Turns from which it can be told which tokens end them, where nobody says so."""

CODES = (
    Code(
        "AT-RETOKENIZED", "a turn's prompt does not continue the turn before",
        "The prompt of a turn does not begin with the tokens of the turn before and its answer, so the trainer learns "
        "from tokens that the model never saw in this place.",
        "The agent renders all messages anew each turn (`apply_chat_template` over text), strips or rewrites what was "
        "said, or decodes and encodes it again.",
        "Append the new messages' tokens to those of the turn before instead of rendering the whole conversation, or "
        "train on each turn as a sample of its own.",
        "Templates that write the end of a turn otherwise (one or two tokens); a conversation that begins anew; a "
        "second agent with a prompt of its own; the same prompt asked again.",
        1.0,
    ),
    Code(
        "AT-THINKING-STRIPPED", "what a turn said first is missing from the next turn's prompt",
        "The beginning of an answer (as a rule its thinking) is not in the prompts of later turns, so later turns were "
        "generated from another history than the one trained on.",
        "The chat template or the agent drops the thinking of earlier turns; Qwen3's template does so by design.",
        "Keep the thinking in the history (a template option of most models), or train on each turn as a sample of its "
        "own.",
        "Models whose template drops thinking by design are used this way on purpose by some; the trained tokens "
        "differ all the same.",
        0.5,
    ),
    Code(
        "AT-MASK-TOOL-TOKENS", "the loss mask covers tokens that no turn generated",
        "The response mask is 1 at tokens of tools or of the prompt, so the model is trained to write them.",
        "The agent builds its mask by hand, with ones for what a tool or the template wrote.",
        "Give 0 for every token that the engine did not generate.",
        "Up to three tokens in a row, which a template moves over the border of a turn.",
        1.0,
    ),
    Code(
        "AT-MASK-EMPTY", "the loss mask is zero everywhere",
        "No token of the trajectory is trained on: it costs a rollout and adds nothing.",
        "The agent returns a mask of zeros.",
        "Give 1 for each generated token.",
        "Rows that a trainer pads a batch with.",
        1.0,
    ),
    Code(
        "AT-MASK-INVALID", "the loss mask does not fit its response",
        "The mask is shorter or longer than the response, or shifted against the turns, so the wrong tokens are "
        "trained on.",
        "The agent cuts or pads mask and response differently, or shifts one of them.",
        "Build both in one place, piece by piece.",
        "Turns that are left out of the mask as a whole.",
        1.0,
    ),
    Code(
        "AT-RESPONSE-CHANGED", "the response that is trained on is not what the engine said",
        "The agent returned a response in which no answer of its turns occurs, so the trainer learns tokens that the "
        "model did not generate.",
        "The agent encodes text anew for its response, or returns another rollout's.",
        "Return the token ids that the engine gave.",
        "Agents that return only some of their turns.",
        1.0,
    ),
    Code(
        "AT-NO-EOS", "answers end without an end token",
        "The last turn ends with none of the tokens that end a turn, and no limit was reached: the model is not "
        "trained to stop.",
        "A stop string, `ignore_eos`, or a postprocessing that cuts the end token off.",
        "Keep the end token in the response; with stop strings include them.",
        "Answers that were cut or aborted; parsers that end a turn by tokens of their own.",
        0.4, share=0.01,
    ),
    Code(
        "AT-PROMPT-CUT", "the prompt lost its beginning",
        "The first prompt is exactly as long as prompts may be and does not begin as the others do: the system prompt "
        "and the tools were cut off at the left.",
        "`data.max_prompt_length` (`rollout.prompt_length`) is smaller than the prompt, and the trainer cuts at the "
        "left.",
        "Raise the limit, or filter such rows (`data.filter_overlong_prompts=True`).",
        "A prompt that fits exactly.",
        0.9,
    ),
)  # fmt: skip


# -- prompts that do not continue -------------------------------------------------------------------------------------


def shared_prefix(evidence: Evidence, call: LLMCall) -> int:
    """Tokens that a prompt has in common with an earlier call's prompt and answer, as they were recorded."""
    return call.span.prompt_keep if call.span.prompt_base is not None else 0


def continues(evidence: Evidence, call: LLMCall, before: LLMCall) -> bool:
    """The prompt begins with a whole earlier call and its answer, or nothing tells that it does not."""
    span = call.span
    if span.packed_prompt is None or span.prompt_tokens is None:
        return True
    base = evidence.by_id.get(span.prompt_base or "")
    if base is None or base.prompt_tokens is None:
        return False
    return span.prompt_keep >= base.prompt_tokens + (base.response_tokens or 0) and not _rewritten(call, before)


def _rewritten(call: LLMCall, before: LLMCall) -> bool:
    """The prompt goes on where the turn before went on, too, and then has that turn's answer behind something else:
    what stood between was changed. (Without the answer it is another branch.)"""
    span, other = call.span, before.span
    if (span.prompt_base, span.prompt_keep) != (other.prompt_base, other.prompt_keep) or before.ids is None:
        return False
    asked, added = other.packed_prompt, span.packed_prompt
    if not asked or not added or added.startswith(asked):
        return False
    return find(added, asked[-PROBE // 2 * 4 :] + piece(before.ids, 0, PROBE)) >= 0


def retokenised(evidence: Evidence) -> Iterator[Mark]:
    """Turns whose prompt leaves the turn before."""
    for before, call in zip(evidence.turns, evidence.turns[1:], strict=False):
        if continues(evidence, call, before) or before.ids is None or (before.finish or "") in ABORTED:
            continue
        prompt, asked = packed(call.span.prompt_ids), packed(before.span.prompt_ids)
        if prompt is None or asked is None:
            continue
        mark = _left(evidence, call.number, asked + before.ids, tokens(asked), prompt)
        if mark is not None:
            yield mark


def _left(evidence: Evidence, turn: int, base: bytes, asked: int, prompt: bytes) -> Mark | None:
    kept, length = common(base, prompt), tokens(base)
    if kept >= length - TRIMMED or kept == tokens(prompt):
        return None
    if kept < asked and not _same_conversation(base, prompt, kept, asked):
        return None
    removed = _removed(base, prompt, kept)
    if removed >= REMOVED and any(0 <= kept - (call.span.prompt_tokens or 0) <= 1 for call in evidence.turns[:turn]):
        return Mark("AT-THINKING-STRIPPED", turn, kept, f"{removed} tokens that an answer began with are missing")
    note = f"{removed} tokens are missing there" if removed else f"of {length} tokens before, {kept} were kept"
    return Mark("AT-RETOKENIZED", turn, kept, note)


def _same_conversation(base: bytes, prompt: bytes, kept: int, asked: int) -> bool:
    """A prompt that leaves the one before early is the same conversation if it has grown and goes on with pieces of
    it; else the agent began anew, or another one speaks."""
    if tokens(prompt) < asked or kept * 2 < min(asked, tokens(base)):
        return False
    probes = range(max(kept + PROBE, asked - 4 * PROBE), tokens(base) - PROBE, PROBE)
    return any(find(prompt, piece(base, at, at + PROBE), kept) >= 0 for at in probes)


def _removed(base: bytes, prompt: bytes, kept: int) -> int:
    """How many tokens of ``base`` are left out at ``kept``; 0: it goes on otherwise."""
    following = piece(prompt, kept, kept + PROBE)
    at = find(base, following, kept + 1)
    if at >= 0:
        return at - kept
    for length in range(1, min(PROBE, tokens(base) - kept)):  # all that was left is the end
        if piece(base, tokens(base) - length) == piece(following, 0, length):
            return tokens(base) - length - kept
    return 0


# -- masks ------------------------------------------------------------------------------------------------------------


def masks(evidence: Evidence) -> Iterator[Mark]:
    """The agent's mask against its response and the turns."""
    agent = evidence.agent
    if agent is None or agent.response_mask is None or not (ids := agent.response_ids):
        return
    mask = agent.response_mask
    if not mask:
        return  # ``trainer`` knows what comes of that
    if len(mask) != len(ids):
        yield Mark("AT-MASK-INVALID", None, None, f"{len(mask)} values for {len(ids)} tokens")
        return
    if not any(mask):
        yield Mark("AT-MASK-EMPTY", None, None, f"{len(mask)} tokens")
        return
    if not evidence.turns or any(not call.ids for call in evidence.turns):
        return
    places = _in_order(evidence, ids)
    if places is not None:
        yield from _covered(places, bytes(mask))
        return
    response, answers = packed(ids) or b"", [call.ids for call in evidence.turns]
    if all(tokens(answer or b"") >= PROBE and find(response, piece(answer or b"", 0, PROBE)) < 0 for answer in answers):
        yield Mark("AT-RESPONSE-CHANGED", 1, 0, f"{len(ids)} tokens were returned")
        return
    places = _places(evidence, response)
    if places is not None:
        yield from _covered(places, bytes(mask))


def _covered(places: list[tuple[int, int]], mask: bytes) -> Iterator[Mark]:
    gaps = [(0, 0)] + [(end, turn) for turn, (_, end) in enumerate(places, 1)]
    starts = [start for start, _ in places] + [len(mask)]
    for (begin, turn), end in zip(gaps, starts, strict=True):
        at = mask.find(b"\x01" * RUN, begin, end)
        if at >= 0:
            what = "what followed" if turn else "the prompt before"
            yield Mark("AT-MASK-TOOL-TOKENS", turn or 1, at, f"{mask.count(1, begin, end)} tokens of {what} turn "
                       f"{turn or 1}")  # fmt: skip
            return
    for turn, (begin, end) in enumerate(places, 1):
        inside = mask[begin:end]
        if 0 < inside.count(0) < len(inside) and (inside[0] == 0) != (inside[-1] == 0):
            beyond = mask[end : end + 1] if inside[0] == 0 else mask[begin - 1 : begin] if begin else b""
            if beyond == b"\x01":
                shifted = begin if inside[0] == 0 else begin + inside.find(0)
                yield Mark("AT-MASK-INVALID", turn, shifted, "the mask is shifted against the turns")
                return


def _in_order(evidence: Evidence, ids: list[int]) -> list[tuple[int, int]] | None:
    """Where each turn's answer stands in the response, if each stands where its prompt says; the quick way."""
    first, places = evidence.turns[0].span.prompt_tokens or 0, []
    for call in evidence.turns:
        said = call.span.response_ids or []
        begin = (call.span.prompt_tokens or 0) - first
        if begin < 0 or ids[begin : begin + len(said)] != said:
            return None
        places.append((begin, begin + len(said)))
    return places


def _places(evidence: Evidence, response: bytes) -> list[tuple[int, int]] | None:
    """Where each turn's answer stands in the response; None: they are no pieces of it."""
    places, at, length = [], 0, tokens(response)
    for call in evidence.turns:
        ids = call.ids or b""
        begin = find(response, ids, at)
        if begin < 0:  # the response was cut within this turn, or before it
            head = piece(ids, 0, PROBE)
            begin = find(response, head, at)
            cut = piece(response, begin) if begin >= 0 else b""
            if begin >= 0 and ids[: len(cut)] == cut:
                places.append((begin, length))
                return places
            return places if places and at >= length else None
        at = begin + tokens(ids)
        places.append((begin, at))
    return places or None


# -- a step -----------------------------------------------------------------------------------------------------------


def no_end(step: Step, history: History) -> Iterator[Hit]:
    """Last turns that end with no token that others end with."""
    ends = set(step.settings.end_tokens)
    lasts = Counter(turn.last for record in step.records for turn in record.profile.turns if turn.last is not None)
    total = sum(lasts.values())
    if not ends and total < ENOUGH:
        return
    usual = USUAL_END if ends else COMMON_END
    ends |= {token for token, count in lasts.items() if count >= max(2, usual * total)}
    for record in step.records:
        last = record.profile.turns[-1] if record.profile.turns else None
        if last is None or last.last is None or last.last in ends or record.truncated or record.status != "OK":
            continue
        if (last.finish or "") in CUT | ABORTED | {AS_ASKED}:
            continue
        yield Hit("AT-NO-EOS", record, len(record.profile.turns), (last.response or 1) - 1, f"token {last.last}")


def prompt_cut(step: Step, history: History) -> Iterator[Hit]:
    """First prompts of the greatest length that do not begin as the others do."""
    having = [record for record in step.records if record.profile.head and record.profile.turns[0].prompt]
    if not having:
        return
    heads = Counter(tuple(record.profile.head) for record in having)
    ((head, count),) = heads.most_common(1)
    usual = head if count * 2 > len(having) else None
    if usual is None and step.settings.prompt_length is None:
        return  # neither how prompts begin nor how long they may be is known
    lengths = [record.profile.turns[0].prompt or 0 for record in having]
    limit = step.settings.prompt_length
    if limit is None:
        at_most = max(lengths)
        groups = {record.group for record, length in zip(having, lengths, strict=True) if length == at_most}
        limit = at_most if len(groups) > 2 else None
    for record, length in zip(having, lengths, strict=True):
        if length == limit and tuple(record.profile.head) != usual:
            yield Hit("AT-PROMPT-CUT", record, 1, 0, f"{length} tokens")


OF_TRAJECTORY = (retokenised, masks)
OF_STEP = (no_end, prompt_cut)
