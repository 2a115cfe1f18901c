"""Find how trajectories end: cut at which limit, out of turns, aborted, empty, failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotrace.insight.conduct import masked
from autotrace.insight.evidence import AS_ASKED, CUT, Evidence, LLMCall
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.step_records import History, Hit, Step, grouped
from autotrace.trajectory.durations import ABORTED
from autotrace.trajectory.model import ENDED_BY_PROGRAM
from autotrace.trajectory.span_text import answered_words
from autotrace.trajectory.token_ids import tokens

CODES = Code.each({
    "AT-TRUNCATED-CONTEXT": 0.8, "AT-TRUNCATED-RESPONSE": 0.8, "AT-TRUNCATED": 0.8, "AT-TRUNCATED-TOOL": 0.8,
    "AT-TURN-LIMIT": 0.5, "AT-TIMEOUT": 0.9, "AT-ROLLOUT-FAILED": 1.0, "AT-INTERRUPTED": 0.9, "AT-ABORTED": 0.8,
    "AT-EMPTY-ANSWER": 0.9,
}) + Code.each({"AT-ENDS-ON-TOOL": 0.7}, count=2)  # fmt: skip


def truncated(evidence: Evidence) -> Iterator[Mark]:
    """Find a cut last answer, or a cut response."""
    if not evidence.turns:
        return
    last = evidence.final[-1]
    if last.finish == AS_ASKED or last.finish in ABORTED or last.span.response_tokens == 0:
        return
    ends = evidence.settings.end_tokens
    ended = last.last in ends
    unknown = last.last is None or not ends
    code, limit = _limit(evidence, last) or ("AT-TRUNCATED", None)
    if last.finish in CUT or (limit and not ended and not unknown):
        note = _lengths(last) + (f", the limit is {limit:,}" if limit else "")
        yield Mark(code, last.number, last.span.response_tokens, note)
    elif _cut_by_agent(evidence, last):
        note = f"the agent returned {evidence.agent.response_tokens if evidence.agent else 0} tokens"
        yield Mark("AT-TRUNCATED-RESPONSE", last.number, None, note)


def _limit(evidence: Evidence, call: LLMCall) -> tuple[str, int] | None:
    """Return the limit that an answer reaches, with the code of the limit."""
    settings, total = evidence.settings, call.total
    if total is not None and settings.max_model_len is not None and total >= settings.max_model_len - 1:
        return "AT-TRUNCATED-CONTEXT", settings.max_model_len
    first, limit = evidence.final[0].span.prompt_tokens, settings.response_length
    over_turns = 0 if total is None or first is None else total - first
    if limit is not None and max(call.span.response_tokens or 0, over_turns) >= limit:
        return "AT-TRUNCATED-RESPONSE", limit
    both = (settings.prompt_length or 0) + (limit or 0)
    is_reached = settings.prompt_length and limit and total is not None and total >= both - 1
    return ("AT-TRUNCATED-CONTEXT", both) if is_reached else None


def _lengths(call: LLMCall) -> str:
    prompt, answer = (
        "?" if count is None else f"{count:,}" for count in (call.span.prompt_tokens, call.span.response_tokens)
    )
    return f"prompt {prompt} and answer {answer} tokens"


def _cut_by_agent(evidence: Evidence, last: LLMCall) -> bool:
    """Return whether the agent returned less than its turns said: the response ends within the last answer."""
    agent, limit = evidence.agent, evidence.settings.response_length
    returned = None if agent is None else agent.response_ids
    if limit is None or not returned or len(returned) < limit or last.last is None or last.total is None:
        return False
    said = last.total - (evidence.final[0].span.prompt_tokens or 0)
    return said > len(returned) or (returned[-1] != last.last and said == limit)


def unanswered(evidence: Evidence) -> Iterator[Mark]:
    """Find an agent that called a tool, or requested a call, and made no later turn."""
    if not evidence.turns or evidence.root.status != "OK":
        return
    last = evidence.final[-1]
    turn = last.number
    after = [tool for tool in evidence.tools if tool.turn == turn]
    if evidence.out_of_turns:
        if after or evidence.unparsed:
            yield Mark("AT-TURN-LIMIT", turn, None, f"{turn} turns")
        return
    limit = evidence.settings.response_length
    if limit is None or last.total is None or not after:
        return
    so_far = last.total - (evidence.final[0].span.prompt_tokens or 0)
    longest = sum(len(tool.answer) for tool in after)
    if so_far + longest >= limit:
        note = f"{so_far:,} tokens so far, and {longest:,} characters of {after[-1].name}"
        yield Mark("AT-TRUNCATED-TOOL", turn, None, note)


def broken_off(evidence: Evidence) -> Iterator[Mark]:
    """Find aborted, empty and failed turns and rollouts."""
    turns = evidence.turns
    for call in turns:
        count = call.span.response_tokens
        if call.span.error or call.span.status != "OK":
            continue
        if call.finish in ABORTED:
            yield Mark("AT-ABORTED", call.number, count, f"after {count or 0} tokens")
        elif (count == 0 and not answered_words(call.span)) or _ended_at_once(evidence, call):
            yield Mark("AT-EMPTY-ANSWER", call.number, 0, _lengths(call))
    root = evidence.root
    turn = len(turns) or None
    if root.status in ("TIMEOUT", "ERROR"):
        # an error of the reward belongs to the reward
        if not any(span.error and span.error[:2] == (root.error or ())[:2] for span in evidence.rewards):
            code = "AT-TIMEOUT" if root.status == "TIMEOUT" else "AT-ROLLOUT-FAILED"
            said = next((span.error_text for span in (root, *evidence.trajectory.spans) if span.error), None) or ""
            yield Mark(code, turn, None, said, masked(said))
    elif root.status == "INTERRUPTED" and not root.error and root.attributes.get("outcome") != ENDED_BY_PROGRAM:
        inside = next((span for span in reversed(evidence.trajectory.spans) if span.status == "INTERRUPTED"), root)
        yield Mark("AT-INTERRUPTED", turn, None, f"in {inside.shown_name}", inside.shown_name)


def _ended_at_once(evidence: Evidence, call: LLMCall) -> bool:
    """Return whether the first turn is only an end token."""
    return call.number == 1 and tokens(call.ids or b"") == 1 and call.last in evidence.settings.end_tokens


TERMINAL = 0.9
"""Limit the share of the rollouts with a tool that end with the tool: above this share the tool ends rollouts on
purpose."""


def ends_on_tool(step: Step, history: History) -> Iterator[Hit]:
    """Find rollouts that are reported as done without a look of the model at the last tool's answer, though the model
    usually gets the tool's answers."""
    ends = ((record, text) for record in step.records for text in record.traits("end"))
    ending = [(on[1], record) for record, text in ends if (on := _ON.match(text)) is not None]
    for tool, own in grouped(ending, lambda one: one[0]).items():
        records = [record for _, record in own]
        using = sum(any(used.name == tool for used in record.profile.tools) for record in step.records)
        if len(records) >= TERMINAL * using:
            continue
        for record in records:
            if record.status == "OK" and not record.truncated and not record.has("AT-TURN-LIMIT", "AT-TRUNCATED-TOOL"):
                turn = len(record.profile.turns) or None
                yield Hit("AT-ENDS-ON-TOOL", record, turn, note=f"nothing follows {tool}", kind=tool)


_ON = re.compile(r"the rollout ends on (?:the answer|a call) of (.+)")

OF_TRAJECTORY = (truncated, unanswered, broken_off)
OF_STEP = (ends_on_tool,)
