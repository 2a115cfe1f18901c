"""Tools and environments: what fails, how, and what the model does about it."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from statistics import median

from autotrace.insight import error_texts
from autotrace.insight.evidence import Evidence, ToolCall
from autotrace.insight.families.ending import truncated
from autotrace.insight.finding import Code
from autotrace.insight.messages import classed, is_timeout
from autotrace.insight.profile import Mark
from autotrace.insight.records import History, Hit, Step

RATE = 0.02
"""Of a tool's calls: what fails less often is noise."""
ALIKE = 0.5
"""Of the error texts of a tool: one class of message from which they are one fault and not the tool's daily work."""
REPEATED, IN_A_ROW = 3, 2
"""Times the same call with the same answer; in turns that follow each other, if it did not fail."""
SLOW_TIMES, SLOW_SECONDS = 10, 1.0
CODES = (
    Code(
        "AT-TOOL-RAISES", "a tool raises",
        "Calls of the tool raise an exception. The model reads an error message, or nothing.",
        "The tool itself, or the service behind it.",
        "See the grouped messages above; `autotrace show TRACE --full` has the stack trace.",
        "Tools that raise to say that an answer is wrong; a single failure.",
        0.5,
    ),
    Code(
        "AT-TOOL-TIMEOUT", "a tool times out",
        "Calls of the tool end in a timeout. If the error has no text (as that of `asyncio.wait_for`), the model "
        "reads an error without a reason.",
        "The service behind the tool is slow or overloaded, or its time limit is too short.",
        "Raise the time limit, or limit how many calls run at once. Raise an error that gives the model a reason.",
        "Slow tools that do answer.",
        0.6,
    ),
    Code(
        "AT-TOOL-ERROR-TEXT", "a tool returns error texts as results",
        "The tool returns the text of an error, so the call counts as successful.",
        "The tool catches the exception and returns it as text.",
        "Read the text and repair the cause. Raise the error instead of returning it, so that it is counted.",
        "Compilers, interpreters and test runners, whose errors are the task (a missing container is a fault); "
        "results that are about errors.",
        0.5,
    ),
    Code(
        "AT-TOOL-UNKNOWN", "the model calls tools that do not exist",
        "Calls name a tool that the agent does not have.",
        "The prompt does not list the tools as the model expects, or the model invents names.",
        "Compare the names in the prompt with the names in the calls.",
        "The first steps of training.",
        0.3,
    ),
    Code(
        "AT-TOOL-ARGUMENTS", "calls have wrong arguments",
        "Arguments are missing, unknown or not JSON, so the tool cannot be called.",
        "The schema in the prompt differs from the tool's signature, or the model does not follow it.",
        "Compare the schema with the signature. Accept harmless differences.",
        "The first steps of training.",
        0.3,
    ),
    Code(
        "AT-CALL-NOT-PARSED", "tool calls in the text were not recognised",
        "The answer contains the beginning of a tool call, but the parser did not recognise it. The conversation "
        "ended as if this were the final answer.",
        "Broken JSON, a missing end mark, or a parser for another format (`multi_turn.format`).",
        "Use the parser for the model's format. Tell the model what was wrong, and continue.",
        "Text about tools; truncated answers.",
        0.7,
    ),
    Code(
        "AT-CALL-REPEATED", "the same call is made again and again",
        "The model repeats a call with the same arguments and gets the same answer, twice in a row or three times.",
        "The tool's answer does not help the model and does not say why, or the reward pays for calls.",
        "Say in the tool's answer what to change. Stop after the second identical call.",
        "Tools that are polled until something happens; their answers change.",
        0.4,
    ),
    Code(
        "AT-TOOL-SLOW", "single calls of a tool take far longer than the others",
        "A call takes ten times as long as the tool's usual call, and its trajectory waits.",
        "A queue in front of the tool, a cold start, or a lost connection.",
        "Give the tool a time limit.",
        "Tools whose calls take different times by nature.",
        0.3,
    ),
)  # fmt: skip

_EXECUTES = re.compile(r"python|code|bash|shell|exec|compil|run|test|sandbox|terminal|sql", re.IGNORECASE)
"""Tools whose errors are the task."""
_SAID = {"error": "AT-TOOL-ERROR-TEXT", "unknown": "AT-TOOL-UNKNOWN", "arguments": "AT-TOOL-ARGUMENTS"}
"""What an answer says, and what that is."""
_BAD_CALL = re.compile(r"(?:missing|unexpected|positional|required).*argument|JSONDecodeError|ValidationError")


def outcomes(evidence: Evidence) -> Iterator[Mark]:
    """Each tool call that went wrong."""
    for call in evidence.tools:
        code = _outcome(call)
        if code is not None:
            failed = call.failed
            words = (failed.error_text or "") if failed is not None else call.answer
            yield Mark(
                code, call.turn or None, None, f"{call.name}: {words.strip()[:160]}", f"{call.name}: {classed(words)}"
            )


def _outcome(call: ToolCall) -> str | None:
    failed = call.failed
    if failed is not None and failed.error is not None:
        if failed.status == "CANCELLED" and failed.error[0].rpartition(".")[2] == "CancelledError":
            return None
        if is_timeout(failed):
            return "AT-TOOL-TIMEOUT"
        wrong = failed.error[0] in ("TypeError", "JSONDecodeError", "ValidationError")
        return "AT-TOOL-ARGUMENTS" if wrong and _BAD_CALL.search(failed.error_text or "") else "AT-TOOL-RAISES"
    said = error_texts.kind(call.answer, _executes(call.name))
    return None if said is None else _SAID[said]


@functools.lru_cache(maxsize=256)
def _executes(name: str) -> bool:
    return _EXECUTES.search(name) is not None


def repeated(evidence: Evidence) -> Iterator[Mark]:
    """The same call with the same answer, where both were recorded."""
    known = [call for call in evidence.tools if call.span.inputs and (call.failed or call.span.output is not None)]
    told = Counter((call.name, call.answer) for call in known)
    if not told or max(told.values()) < IN_A_ROW:
        return  # which is quicker to see than what was asked
    made: Counter[tuple[str, bytes, bytes]] = Counter()
    last: tuple[object, int] = (None, 0)
    for call in known:
        key = (call.name, call.arguments, call.result)
        made[key] += 1
        follows = key == last[0] and call.turn == last[1] + 1 and call.failed is None
        last = key, call.turn
        if made[key] == REPEATED or follows:
            times = f"{REPEATED} times or more" if made[key] == REPEATED else "twice in a row"
            yield Mark("AT-CALL-REPEATED", call.turn or None, None, f"{call.name}, {times}", call.name)
            return


def not_parsed(evidence: Evidence) -> Iterator[Mark]:
    """The last answer asks for a tool and none was called."""
    if not evidence.turns or evidence.root.status != "OK" or evidence.out_of_turns or any(truncated(evidence)):
        return
    last = evidence.turns[-1].number
    asked = None if any(call.turn >= last for call in evidence.tools) else evidence.unparsed
    if asked is not None:
        yield Mark("AT-CALL-NOT-PARSED", last, None, asked)


# -- a step -----------------------------------------------------------------------------------------------------------

_OF_CALLS = ("AT-TOOL-RAISES", "AT-TOOL-TIMEOUT", "AT-TOOL-ERROR-TEXT", "AT-TOOL-UNKNOWN", "AT-TOOL-ARGUMENTS")


def rates(step: Step, history: History) -> Iterator[Hit]:
    """Tools of which more calls than a few go wrong in one way."""
    calls: Counter[str] = Counter()
    for record in step.records:
        for tool in record.profile.tools:
            calls[tool.name] += tool.calls
    for code in _OF_CALLS:
        by_tool: dict[str, list[Hit]] = {}
        for record in step.records:
            for mark in record.profile.marks:
                if mark.code == code:
                    hit = Hit(code, record, mark.turn, mark.token, mark.note, mark.kind)
                    by_tool.setdefault(mark.kind.partition(":")[0], []).append(hit)
        for name, hits in by_tool.items():
            if len(hits) < RATE * calls[name]:
                continue
            classes = Counter(hit.kind for hit in hits)
            if code == "AT-TOOL-ERROR-TEXT" and classes.most_common(1)[0][1] < ALIKE * len(hits):
                continue
            yield from hits


def slow(step: Step, history: History) -> Iterator[Hit]:
    """Calls that take far longer than the tool's usual one."""
    longest: dict[str, list[float]] = {}
    for record in step.records:
        for tool in record.profile.tools:
            longest.setdefault(tool.name, []).append(tool.longest)
    for record in step.records:
        for tool in record.profile.tools:
            usual = median(longest[tool.name])
            if len(longest[tool.name]) >= 4 and tool.longest > max(SLOW_SECONDS, SLOW_TIMES * usual):
                note = f"{tool.name}: {tool.longest:.1f} s, usually {usual:.2g} s"
                yield Hit("AT-TOOL-SLOW", record, None, None, note, tool.name, tool.longest - usual)


OF_TRAJECTORY = (outcomes, repeated, not_parsed)
OF_STEP = (rates, slow)
STEP_DECIDES = _OF_CALLS
"""Marks of these codes count by the rate of their tool."""
