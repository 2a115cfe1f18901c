"""Find faulty prompts and ends: prompts that do not continue the conversation, or lost their beginning; missing
ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autotrace.insight.conduct import history_lost
from autotrace.insight.evidence import AS_ASKED, CUT, Evidence
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.step_records import History, Hit, Step
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.durations import ABORTED
from autotrace.trajectory.receipt import is_row
from autotrace.trajectory.token_ids import PROBE, TRIMMED, find, kept_of, packed_ids, piece, tokens

REMOVED = 3
"""Count a missing beginning of an answer as thinking, not as a space, from so many tokens."""
USUAL_END = 0.5
"""Count a last token of such a share of turns as an end on purpose, though no end token: a stop string."""
NEARLY_ALL, MANY = 0.9, 16
"""Infer the end token from such a share and number of stopped answers that end with one token."""

CODES = Code.each({
    "AT-RETOKENIZED": 1.0, "AT-THINKING-STRIPPED": 0.5, "AT-MESSAGES-DROPPED": 0.7, "AT-PROMPT-CUT": 0.9,
}) + Code.each({"AT-NO-EOS": 0.4}, share=0.01)  # fmt: skip


# -- prompts that do not continue -------------------------------------------------------------------------------------


def retokenised(evidence: Evidence) -> Iterator[Mark]:
    """Find turns whose prompt leaves the turn before. An agent that returns several samples may begin each so."""
    marks, tree = [], tree_of(evidence.trajectory)
    if not tree.changed:
        return
    for number in sorted(tree.changed):
        call, before = evidence.turns[number - 1], evidence.turns[tree.before[number] - 1]
        prompt, asked = packed_ids(call.span.prompt_ids), packed_ids(before.span.prompt_ids)
        if prompt is None or asked is None or before.ids is None or before.finish in ABORTED:
            continue
        mark = _left(evidence, call.number, asked + before.ids, tokens(asked), prompt)
        if mark is not None:
            marks.append(mark)
    returned = evidence.agent.output if evidence.agent is not None else None
    samples = len(returned) if isinstance(returned, list) else sum(map(is_row, evidence.trajectory.spans))
    if len(marks) >= (samples or 1):
        yield from marks


def _left(evidence: Evidence, turn: int, base: bytes, asked: int, prompt: bytes) -> Mark | None:
    length = tokens(base)
    kept = kept_of(base, prompt, asked, evidence.turns[0].span.prompt_tokens or 0)
    if kept is None or kept >= length - TRIMMED:
        return None
    removed = _removed(base, prompt, kept)
    began = [call for call in evidence.turns[:turn] if 0 <= kept - (call.span.prompt_tokens or 0) <= 1]
    if any(REMOVED <= removed < (call.span.response_tokens or 0) for call in began):
        return Mark("AT-THINKING-STRIPPED", turn, kept, f"{removed} tokens that an answer began with are missing")
    differs = f"only the first {kept} of {length} previous tokens match"
    return Mark("AT-RETOKENIZED", turn, kept, f"{removed} tokens are missing there" if removed else differs)


def _removed(base: bytes, prompt: bytes, kept: int) -> int:
    """Count the tokens of ``base`` that are left out at ``kept``; 0: the prompt goes on otherwise."""
    following = piece(prompt, kept, kept + PROBE)
    at = find(base, following, kept + 1)
    if at >= 0:
        return at - kept
    for length in range(1, min(PROBE, tokens(base) - kept)):  # only the end was left
        if piece(base, tokens(base) - length) == piece(following, 0, length):
            return tokens(base) - length - kept
    return 0


def history_cut(evidence: Evidence) -> Iterator[Mark]:
    """Find messages of a later turn that lack an earlier turn's thinking, where only messages are recorded."""
    lost = None if any(call.span.has_tokens for call in evidence.turns) else history_lost(evidence)
    if lost is not None:
        code = "AT-THINKING-STRIPPED" if lost[1] == "thinking" else "AT-MESSAGES-DROPPED"
        yield Mark(code, lost[0], None, f"its messages lack the {lost[1]} of the turn before")


# -- a step -----------------------------------------------------------------------------------------------------------


def no_end(step: Step, history: History) -> Iterator[Hit]:
    """Find last turns that end without an end token. If the end tokens are not known, the last token of nearly all
    stopped answers counts."""
    turns = [turn for record in step.records for turn in record.profile.turns]
    known = step.settings.end_tokens
    if not known:
        stopped = Counter(turn.last for turn in turns if turn.finish == "stop")
        ((token, count),) = stopped.most_common(1) or [(None, 0)]
        if token is None or count < max(MANY, NEARLY_ALL * stopped.total()):
            return
        known = frozenset({token})
    lasts: Counter[int | None] = Counter()
    for record in step.records:
        last = record.profile.turns[-1] if record.profile.turns else None
        if last is None or last.last is None or last.last in known or record.truncated or record.status != "OK":
            continue
        if (last.finish or "") in CUT | ABORTED | {AS_ASKED}:
            continue
        lasts = lasts or Counter(turn.last for turn in turns if turn.last is not None)
        if lasts[last.last] < max(2, USUAL_END * lasts.total()):
            yield Hit("AT-NO-EOS", record, len(record.profile.turns), (last.response or 1) - 1, f"token {last.last}")


def prompt_cut(step: Step, history: History) -> Iterator[Hit]:
    """Find first prompts of the greatest length that do not begin as the others do; nothing if that length is not
    known."""
    limit = step.settings.prompt_length
    having = [record for record in step.records if record.profile.head and record.profile.turns[0].prompt]
    if not having or limit is None:
        return
    heads = Counter(tuple(record.profile.head) for record in having)
    ((head, count),) = heads.most_common(1)
    usual = head if count * 2 > len(having) else None
    for record in having:
        if record.profile.turns[0].prompt == limit and tuple(record.profile.head) != usual:
            yield Hit("AT-PROMPT-CUT", record, 1, 0, f"{limit} tokens")


OF_TRAJECTORY = (retokenised, history_cut)
OF_STEP = (no_end, prompt_cut)
