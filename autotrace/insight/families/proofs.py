"""Find faults of conversations: traits that are faults by themselves, or beside other rollouts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from autotrace.insight import conduct
from autotrace.insight.conduct import content_of, first_prompt
from autotrace.insight.evidence import Evidence
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.step_records import Group, History, Hit, Record, Step
from autotrace.insight.traits import PROVES, Shown, Stage, shape, shown, trait
from autotrace.trajectory.span_text import answered_words, asked_words

FEW, USUAL = 8, 0.9
"""Compare the beginnings of a step's first prompts from so many prompts, with such a share of the same first token."""
CODES = Code.each({
    "AT-ROLE-PLAYED": 0.7, "AT-RESULT-SWAPPED": 0.8, "AT-PROMPT-HEADER": 0.6, "AT-TOOLS-MISSING": 0.9,
    "AT-ANSWER-FOREIGN": 1.0,
})  # fmt: skip


trait(Stage.PARSING, proves="AT-CALL-NOT-EXECUTED")(conduct.not_executed)
trait(Stage.HISTORY, proves="AT-RESULT-SWAPPED")(conduct.misplaced_results)
trait(Stage.HISTORY, proves="AT-ANSWER-FOREIGN")(conduct.others_answer)
_HEADER = re.compile(
    r"<\|im_start\|>(?P<a>\w+)|<\|start_header_id\|>(?P<b>\w+)<\|end_header_id\|>|<start_of_turn>(?P<c>\w+)"
)


@trait(Stage.PROMPT, proves="AT-PROMPT-HEADER")
def headers(evidence: Evidence) -> Iterator[Shown]:
    """Find faulty headers of the chat template: a header inside a header, or no header for the answer."""
    decoded = evidence.turns[0].span.prompt_text or "" if evidence.turns else ""
    found = [*_HEADER.finditer(decoded)]
    if any(not decoded[one.end() : other.start()].strip() for one, other in pairwise(found)):
        yield "the first prompt has a header inside a header", 1
    elif found and found[-1][found[-1].lastgroup or 0] not in ("assistant", "model"):
        yield "the first prompt lacks the header of the answer", 1
    elif not decoded and any(_HEADER.search(content_of(one)) for one in first_prompt(evidence)):
        yield "a message of the first prompt has a header in its text", 1


_OTHERS_PART = re.compile(
    r"(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>)(?:user|system|tool|ipython)"
    r"|^Action(?: Input)?:.*\n+Observation: *\S|\n(User|Human): ?\S", re.MULTILINE
)  # fmt: skip


@trait(Stage.ANSWER, proves="AT-ROLE-PLAYED")
def others_part(evidence: Evidence) -> Iterator[Shown]:
    """Find an answer that goes on with the part of the user or the environment. An answer may quote such lines of the
    prompt."""
    for call in evidence.turns:
        part = _OTHERS_PART.search(answered_words(call.span) or "")
        if part and not (part[1] and f"{part[1]}:" in (asked_words(call.span, whole=True) or "")):
            yield "an answer plays another role", call.number


@trait(Stage.PARSING, proves="AT-TOOL-ARGUMENTS")
def arguments_cut(evidence: Evidence) -> Iterator[Shown]:
    """Find a tool that is called without arguments, though the answer has arguments, or the tool requires some."""
    for call in evidence.tools:
        if call.turn and call.span.inputs and shape(call) == "no arguments":
            span = evidence.turns[call.turn - 1].span
            asked = [conduct.arguments_of(one) for one in conduct.called(span) if conduct.tool_name(one) == call.name]
            offered = span.inputs.get("tools")
            own = [one for one in offered if conduct.tool_name(one) == call.name] if isinstance(offered, list) else []
            raw = re.search(rf'"{re.escape(call.name)}"\W+(?:arguments|parameters)\W+\w', span.response_text or "")
            if raw or (asked and all(asked)) or '"required": ["' in json.dumps(own):
                yield f"{call.name}: its arguments are cut to nothing", call.turn


def proven(evidence: Evidence) -> Iterator[Mark]:
    """Find traits that prove a fault."""
    for name, code in PROVES.items():
        for words, turn in shown(evidence, name):
            yield Mark(code, None if turn is None else int(turn), None, words, words)


def _shown(record: Record, name: str, begins: str) -> str | None:
    return next((text for text in record.traits(name) if text.startswith(begins)), None)


def against_others(step: Step, history: History) -> Iterator[Hit]:
    """Find first prompts with two BOS tokens, and requests without the tools that most requests of the data source
    offer."""
    heads = [(record, record.profile.head) for record in step.records if len(record.profile.head) > 1]
    ((first, count),) = Counter(head[0] for _, head in heads).most_common(1) or [(0, 0)]
    for record, head in heads if len(heads) >= FEW and count >= USUAL * len(heads) else ():
        if head[:2] == [first, first] != head[1:3]:
            yield Hit("AT-PROMPT-HEADER", record, 1, 1, f"the prompt begins with token {first} twice", "two BOS tokens")
    offered = [(record, words) for record in step.records if (words := _shown(record, "tools_offered", "")) is not None]
    usual = Counter((record.data_source, words) for record, words in offered)
    total = Counter(record.data_source for record, _ in offered)
    for record, words in offered:
        if words.endswith("no tools") and 2 * usual[record.data_source, words] < total[record.data_source]:
            yield Hit("AT-TOOLS-MISSING", record, 1, note=words)


def unequal(group: Group, step: Step) -> Iterator[Hit]:
    """Find first prompts that begin with answers, and requests without tools, where other rollouts of the group have no
    answer there, or offer tools."""
    offered = [(record, _shown(record, "tools_offered", "") or "") for record in group.records]
    if any(words and not words.endswith("no tools") for _, words in offered):
        yield from (Hit("AT-TOOLS-MISSING", one, 1, note=words) for one, words in offered if words.endswith("no tools"))
    roles = [(record, _shown(record, "prompt", "the first prompt has the roles") or "") for record in group.records]
    if any(words and "assistant" not in words for _, words in roles):
        for record, words in roles:
            if "assistant" in words:
                yield Hit("AT-ANSWER-FOREIGN", record, 1, note=words, kind="in the first prompt")


OF_TRAJECTORY = (proven,)
OF_GROUP = (unequal,)
OF_STEP = (against_others,)
