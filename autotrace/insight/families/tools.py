"""Find faults of tools and environments: the failures, and the model's reaction."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

from autotrace.insight.conduct import masked, text_call
from autotrace.insight.evidence import Evidence, is_timeout
from autotrace.insight.families.ending import truncated
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.step_records import History, Hit, Record, Step, grouped
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.jsonable import loaded
from autotrace.trajectory.tool_calls import ToolCall, text_of

RATE = 0.02
"""Ignore rarer failures, as a share of a tool's calls."""
ALIKE = 0.5
"""Require such a share of one class of message among a tool's error texts: other errors are the tool's daily work."""
REPEATED, IN_A_ROW = 3, 2
"""Report the same call with the same answer so many times, or so many times in consecutive turns if the call did not
fail."""
SLOW_TIMES, SLOW_SECONDS = 10, 1.0
CODES = Code.each({
    "AT-TOOL-RAISES": 0.5, "AT-TOOL-TIMEOUT": 0.6, "AT-TOOL-ERROR-TEXT": 0.5, "AT-TOOL-UNKNOWN": 0.3,
    "AT-TOOL-ARGUMENTS": 0.3, "AT-CALL-NOT-PARSED": 0.7, "AT-CALL-REPEATED": 0.4, "AT-TOOL-SLOW": 0.2,
    "AT-CALL-NOT-EXECUTED": 0.5, "AT-TOOL-ONE-ANSWER": 0.6,
})  # fmt: skip

_EXECUTES = re.compile(r"python|code|bash|shell|exec|compil|run|test|sandbox|terminal|sql", re.IGNORECASE)
"""Match tools whose errors are the task."""
_BAD_CALL = re.compile(r"(?:missing|unexpected|positional|required).*argument|JSONDecodeError|ValidationError")
_HEADINGS = {
    "AT-TOOL-UNKNOWN": r"(?:error:?\s*)?(?:(?:unknown|no such|undefined) (?:function|tool)"
                       r"|tool \S+ (?:not found|does not))",
    "AT-TOOL-ARGUMENTS": r"(?:error:?\s*)?(?:invalid (?:json|arguments?|parameters?)|\d+ validation errors? for"
                         r"|missing (?:\d+ )?(?:required )?(?:arguments?|parameters?))",
    "AT-TOOL-ERROR-TEXT": r"(?:(?:\w+ ){0,3}|[\w.]+)(?:error|exception|failed|failure|timeout)(?: occurred\b| \w+ing \w"
                          r"| code\W*\d|\W*$|[:!(\[]+\s*(?![-+\d.]+\s*m?s?\W*$)\S)|traceback \(most"
                          r"|(?:permission|access|connection) (?:was )?(?:denied|refused|reset)\b"
                          r"|http\S* (?:error )?[45]\d\d\b(?!.{0,40} is )",
}  # fmt: skip
"""Match the heading of an answer that is an error for any reader. Any other wording of a failure is found because
different questions get the same answer (``one_answer``)."""
_IS_HEADING = {code: re.compile(rf"\W*(?:{form})", re.IGNORECASE) for code, form in _HEADINGS.items()}
SHORT = 300
"""Limit the characters of an answer whose heading is an error."""
_FAILED = re.compile(r"[45]\d\d|.*(?:error|fail|failed|failure|timeout|denied)", re.IGNORECASE)


def _settled(evidence: Evidence) -> list[ToolCall]:
    """Return the tool calls without failures that the agent itself tried again in the same turn: the last try
    counts."""
    last = {(call.turn, call.name, call.arguments): call for call in evidence.tools}
    return [one for one in evidence.tools if one.failed is None or last[one.turn, one.name, one.arguments] is one]


def outcomes(evidence: Evidence) -> Iterator[Mark]:
    """Find each tool call that went wrong."""
    for call in _settled(evidence):
        if (code := _outcome(call)) is not None:
            words = call.answer if call.failed is None else call.failed.error_text or ""
            note, kind = f"{call.name}: {words.strip()[:160]}", f"{call.name}: {masked(words)}"
            yield Mark(code, call.turn or None, None, note, kind)


_CANCELLED = ("CancelledError", "trio.Cancelled")


def _outcome(call: ToolCall) -> str | None:
    failed = call.failed
    if failed is not None and failed.error is not None:
        if failed.status == "INTERRUPTED" or (failed.status == "CANCELLED" and failed.error[0].endswith(_CANCELLED)):
            return None
        if is_timeout(failed):
            return "AT-TOOL-TIMEOUT"
        wrong = failed.error[0] in ("TypeError", "JSONDecodeError", "ValidationError")
        return "AT-TOOL-ARGUMENTS" if wrong and _BAD_CALL.search(failed.error_text or "") else "AT-TOOL-RAISES"
    return None if _EXECUTES.search(call.name) else error_of(call.span.output)


def error_of(output: object) -> str | None:
    """Return the code of an answer that is an error: by the fields of an object, or by the heading of a short text."""
    value = output[0] if isinstance(output, (list, tuple)) and output else output
    answer = text_of(value).lstrip()
    read = loaded(answer) if answer.startswith("{") else None
    if any(isinstance(one, dict) and _is_error(one) for one in (value, read)):
        return "AT-TOOL-ERROR-TEXT"
    if isinstance(read, dict):
        return None
    return _heading(answer) if len(answer) <= SHORT else None


@functools.lru_cache(maxsize=1024)
def _heading(answer: str) -> str | None:
    return next((code for code, form in _IS_HEADING.items() if form.match(answer)), None)


def _is_error(value: dict[Any, Any]) -> bool:
    fields = {str(name).lower(): part for name, part in value.items()}
    named = [fields.get(name) for name in ("error", "errors", "exception", "iserror", "is_error")]
    if any(part is True or (part and isinstance(part, (str, dict, list))) for part in named):
        return True
    status = next((fields[name] for name in ("status", "statuscode", "status_code", "code") if name in fields), None)
    told = any(isinstance(fields.get(name), str) for name in ("message", "msg", "detail", "title"))
    is_bad = told and "id" not in fields and _FAILED.fullmatch(str(status)[:40]) is not None
    return is_bad or fields.get("success") is False or fields.get("ok") is False


def repeated(evidence: Evidence) -> Iterator[Mark]:
    """Find the same call with the same answer, where both were recorded."""
    if len(evidence.tools) < IN_A_ROW:
        return
    known = [call for call in _settled(evidence) if call.span.inputs and (call.failed or call.span.output is not None)]
    told = Counter((call.name, call.answer) for call in known)
    if not told or max(told.values()) < IN_A_ROW:
        return  # a quicker test than a comparison of the calls
    tree = tree_of(evidence.trajectory)
    made: Counter[tuple[int, str, str]] = Counter()
    last: tuple[object, int] = (None, 0)
    for call in known:
        key = (tree.of[call.turn], call.name, call.exchange)
        made[key] += 1
        follows = key == last[0] and call.turn and tree.before[call.turn] == last[1] and call.failed is None
        last = key, call.turn
        if made[key] == REPEATED or follows:
            times = f"{REPEATED} times or more" if made[key] == REPEATED else "twice in a row"
            yield Mark("AT-CALL-REPEATED", call.turn or None, None, f"{call.name}, {times}", call.name)
            return


def not_parsed(evidence: Evidence) -> Iterator[Mark]:
    """Find a last answer that requests a tool that was not called."""
    if not evidence.turns or evidence.root.status != "OK" or evidence.out_of_turns or any(truncated(evidence)):
        return
    last = evidence.final[-1]
    if any(call.turn >= last.number for call in evidence.tools):
        return
    if (asked := evidence.unparsed or text_call(last.span)) is not None:
        yield Mark("AT-CALL-NOT-PARSED", last.number, None, asked)


# -- a step -----------------------------------------------------------------------------------------------------------

STEP_DECIDES = ("AT-TOOL-RAISES", "AT-TOOL-TIMEOUT", "AT-TOOL-ERROR-TEXT", "AT-TOOL-UNKNOWN", "AT-TOOL-ARGUMENTS")
"""List codes whose marks count by the rate of the tool."""


def rates(step: Step, history: History) -> Iterator[Hit]:
    """Find tools with more than a few calls that go wrong in the same way."""
    calls: Counter[str] = Counter()
    for record in step.records:
        for tool in record.profile.tools:
            calls[tool.name] += tool.calls
    for code in STEP_DECIDES:
        having = [(record, mark) for record in step.records for mark in record.profile.marks if mark.code == code]
        found = [Hit(code, record, mark.turn, mark.token, mark.note, mark.kind) for record, mark in having]
        for name, hits in grouped(found, lambda hit: hit.kind.partition(":")[0]).items():
            if len(hits) < RATE * calls[name]:
                continue
            classes = Counter(hit.kind for hit in hits)
            if code == "AT-TOOL-ERROR-TEXT" and classes.most_common(1)[0][1] < ALIKE * len(hits):
                continue
            yield from hits


def slow(step: Step, history: History) -> Iterator[Hit]:
    """Find calls that take far longer than the tool's usual call."""
    used = [(record, tool) for record in step.records for tool in record.profile.tools]
    by_name = grouped(used, lambda one: one[1].name)
    usually = {name: median(tool.longest for _, tool in own) for name, own in by_name.items() if len(own) >= 4}
    for record, tool in used:
        usual = usually.get(tool.name)
        if usual is not None and tool.longest > max(SLOW_SECONDS, SLOW_TIMES * usual):
            note = f"{tool.name}: {tool.longest:.1f} s, usually {usual:.2g} s"
            yield Hit("AT-TOOL-SLOW", record, None, None, note, tool.name, tool.longest - usual)


ONE_ANSWER, GROUPS, OTHERS, KEPT = 0.3, 4, 5, 8
"""Report a tool if such a share of the tool's rollouts, in so many groups, get the same answer while the tool has so
many other answers; compare so many answers of a step."""


def one_answer(step: Step, history: History) -> Iterator[Hit]:
    """Find a tool that answers different questions with the same text, though other rollouts get other answers."""
    answered: dict[str, dict[tuple[str, ...], list[Record]]] = {}
    for record in step.records:
        told = dict.fromkeys([*record.traits("tool_answers"), *record.traits("fixed_answers")])
        answers = [text for text in told if " answers " in text]
        for tool, said in grouped(answers, lambda text: text.partition(" answers ")[0]).items():
            answered.setdefault(tool, {}).setdefault((*said,), []).append(record)
    for tool, by_texts in answered.items():
        often = Counter({texts: len(records) for texts, records in by_texts.items()}).most_common(KEPT)
        known = history.up_to(-1 if step.number is None else step.number, ("answers", tool), often)
        using = sum(any(used.name == tool for used in record.profile.tools) for record in step.records)
        by_text: dict[str, list[Record]] = {}
        for texts, records in by_texts.items():
            for text in texts:
                by_text.setdefault(text, []).extend(records)
        for text, having in by_text.items():
            says = any(map(str.isalpha, text.partition(" answers ")[2]))  # a number alone may be any number
            is_rare = not using or len(having) < ONE_ANSWER * using or len({one.group for one in having}) < GROUPS
            if is_rare or not says:
                continue
            others = Counter[str]()  # a text with masked parts stands for as many answers as there are rollouts
            for texts, count in (each for _, counts in known for each in counts if text not in each[0]):
                others.update({other: count if "…" in other or "#" in other else 1 for other in texts})
            is_fixed = text in having[0].traits("fixed_answers")
            if is_fixed and others.total() > OTHERS and not any(record.has(*STEP_DECIDES) for record in having):
                yield from (Hit("AT-TOOL-ONE-ANSWER", record, None, note=text, kind=text) for record in having)


OF_TRAJECTORY = (outcomes, repeated, not_parsed)
OF_STEP = (rates, slow, one_answer)
