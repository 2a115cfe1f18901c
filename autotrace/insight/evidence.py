"""Read one trajectory for detectors: turns, tools and rewards, each with the values that belong to it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.deferred import cached
from autotrace.trajectory.durations import figures, finish_reason
from autotrace.trajectory.jsonable import integer
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.receipt import answered_path, whole_response
from autotrace.trajectory.token_ids import WIDTH, tokens, unpacked
from autotrace.trajectory.tool_calls import ToolCall, tool_calls

CUT = frozenset({"length", "max_tokens", "max_length"})
"""List the finish reasons of a response that was cut at a limit."""
AS_ASKED = "max_tokens asked"
"""Name the finish reason of a response that is as long as the agent requested in this call."""


@dataclass
class LLMCall:
    """Hold a turn."""

    number: int
    """Count from 1."""
    span: Span
    figures: Mapping[str, Any]
    """Hold ``Trajectory.figures``."""

    @cached
    def finish(self) -> str | None:
        """Return why the turn ended: ``stop``, ``length``, ...; ``AS_ASKED``."""
        asked = whole(self.sampling.get("max_tokens", self.sampling.get("max_new_tokens")))
        if asked and self.span.response_tokens == asked:
            return AS_ASKED
        return finish_reason(self.figures)

    @cached
    def ids(self) -> bytes | None:
        """Return the response, four bytes a token; None: not recorded."""
        return self.span.packed_response

    @cached
    def last(self) -> int | None:
        """Return the last token of the response; None: no response."""
        ids = self.ids
        return unpacked(ids[-WIDTH:])[0] if ids else None

    @property
    def total(self) -> int | None:
        """Count the tokens of prompt and response."""
        prompt, response = self.span.prompt_tokens, self.span.response_tokens
        return None if prompt is None or response is None else prompt + response

    @property
    def sampling(self) -> Mapping[str, Any]:
        """Return the sampling parameters."""
        given = self.span.inputs.get("sampling_params")
        return given if isinstance(given, dict) else {}


class Evidence:
    """Read one trajectory without changing the trajectory."""

    def __init__(self, trajectory: Trajectory, settings: TrainerSettings) -> None:
        self.trajectory = trajectory
        self.settings = settings
        self.by_id = trajectory.by_id
        self.turns = [
            LLMCall(number, span, figures(trajectory, span)) for number, span in enumerate(trajectory.llm_spans, 1)
        ]
        self.shown: dict[str, list[tuple[str, float | None]]] = {}
        """Maps the name of a trait that proves a finding to sentences with turns (``traits.shown``)."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts that were known when the trajectory was complete. Later facts are for detectors of steps."""
        return self.trajectory.facts

    @property
    def root(self) -> Span:
        """Return the trajectory's own call."""
        return self.trajectory.root

    @cached
    def agent(self) -> Span | None:
        """Return the call that has the whole response with its mask."""
        return whole_response(self.trajectory.spans)

    @cached
    def final(self) -> list[LLMCall]:
        """Return the turns of the chain whose answers the agent returned: all turns, in a trajectory of one chain."""
        return [self.turns[turn - 1] for turn in answered_path(self.trajectory, self.agent)]

    @cached
    def tools(self) -> list[ToolCall]:
        """Return the calls of tools, in order."""
        return tool_calls(self.trajectory)

    @cached
    def rewards(self) -> list[Span]:
        """Return the calls of rewards, the outermost first."""
        return [span for span in self.trajectory.spans if span.role == "reward"]

    @property
    def out_of_turns(self) -> bool:
        """Return whether the trajectory made as many turns as allowed."""
        limits = (self.settings.max_assistant_turns, self.settings.max_user_turns)
        return any(limit is not None and len(self.final) >= limit for limit in limits)

    @cached
    def unparsed(self) -> str | None:
        """Return the beginning of a tool call that the last answer has and no parser found; None: no such call, or no
        parser."""
        parsers = [span.output for span in self.trajectory.spans if span.role == "parser"]
        if not parsers:
            return None
        read = [output for output in parsers if isinstance(output, list) and len(output) > 1]
        said = next((output[0] for output in reversed(read[-1:]) if isinstance(output[0], str)), "")
        calls = [len(output[1]) if isinstance(output[1], list) else 0 for output in read]
        # a parser may remove text that the parser could not read: the judged text has it
        last, names = calls[-1] if calls else 0, {call.name for call in self.tools}
        for text, parsed in ((said, last), ("".join(self.judged[:1]), sum(calls))):
            if (asked := marked(text, parsed, names)) is not None:
                return asked
        return None if not calls or last else bare(said)

    @cached
    def parsed(self) -> dict[int, list[dict[str, Any]]]:
        """Map turn -> the tool calls that a parser found in the answer."""
        found: dict[int, list[dict[str, Any]]] = {}
        for span in self.trajectory.spans:
            if span.role == "parser" and isinstance(span.output, list):
                calls = next((part for part in span.output[1:2] if isinstance(part, list)), [])
                turn = self.turn_at(span.start_ns)
                found[turn] = max(found.get(turn, []), [one for one in calls if isinstance(one, dict)], key=len)
        return found

    @cached
    def judged(self) -> list[str]:
        """Return the texts that rewards judged, as far as known."""
        texts = (span.inputs.get("solution_str") or judged_answer(span.inputs) for span in self.rewards)
        return [text for text in texts if isinstance(text, str)]

    def turn_at(self, at_ns: int) -> int:
        """Return the last turn that had begun; 0: none."""
        return sum(call.span.start_ns <= at_ns for call in self.turns)


_TIMEOUT = re.compile(r"timed?out|deadline|timelimit", re.IGNORECASE)
"""Match the name of an exception's class."""


def is_timeout(span: Span) -> bool:
    """Return whether the call ended because time was up."""
    return span.status == "TIMEOUT" or bool(span.error and _TIMEOUT.search(span.error[0].rpartition(".")[2]))


def judged_answer(inputs: Mapping[str, Any]) -> str | None:
    """Return the last message of a conversation that a reward was given, if the message is an answer, else None."""
    chat = next((value for value in inputs.values() if is_chat(value)), None)
    if chat is None or chat[-1].get("role") != "assistant":
        return None
    content = chat[-1].get("content")
    return content if isinstance(content, str) else None


def is_chat(value: Any) -> bool:
    """Return whether ``value`` is a list of messages."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "role" in one for one in value)


def fingerprint(parts: Iterator[bytes]) -> str:
    """Return a digest of the model's tokens; empty below ``ALIKE`` tokens: short answers are alike by chance."""
    said = b"".join(parts)
    return hashlib.blake2b(said, digest_size=8).hexdigest() if tokens(said) >= ALIKE else ""


ALIKE = 32
"""Count equal answers as alike only from so many tokens."""


def whole(value: Any) -> int | None:
    """Convert ``value`` to a count."""
    number = integer(value)
    return number if number is not None and number >= 0 else None


MARKERS = (
    "<tool_call>", "<function=", "<|tool_call_begin|>", "<|tool_call|>", "[TOOL_CALLS]", "<|python_tag|>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5cDSML\uff5c", "<function_calls>", "<minimax:tool_call>",
    "<|START_ACTION|>", "<|channel|>commentary to=", "```tool_code", "```tool_call",
)  # fmt: skip
"""List the beginnings of tool calls in known formats; the first marker in the list that a text has counts."""
TAGGED = re.compile(
    r"[<&](?:lt;)?[|\uff5c]?(?:\w+:)?(?:\w+[_\u2581-])?(?:tool[_ \u2581-]?(?:calls?|use)|function[_ \u2581-]?calls?|"
    r"invoke|action[_-]?start|plugin)\b[^<>&\n]{0,60}(?:>|&gt;)(?=\s*(?:[\[{<&(]|\w+\s*[\n({]))|<(?:\w+:)?invoke name=",
    re.IGNORECASE,
)
OTHERS = re.compile(r"functools\[\{|\u273fFUNCTION\u273f|\"(?:tool_calls|function_call)\"\s*:\s*[\[{]")
"""Match the beginning of a call in any other format: a tag with a telling name, followed by something like a call."""
_CALLED = r'\s*(?:```(?:json)?\s*)?\[?\{\s*"name"\s*:\s*"[\w.-]+"\s*,\s*"(?:arguments|parameters)"\s*:'
BARE = re.compile(
    rf"\A{_CALLED}"
    rf"|^(?:<\|\w+\|>){{0,2}}{_CALLED}[^`]*[}}\]]\s*(?:```)?\s*(?:<\|\w+\|>)?\s*\Z"
    r"|^[ ]*\[[\w.]+\((?:\w+\s*=[^\n]*)?\)\]\s*(?:<\|\w+\|>)?\s*\Z"
    r"|^Action:[ ]*[\w.-]+[ ]*\nAction Input:",
    re.MULTILINE,
)
"""Match a last answer that ends in a tool call without any mark: Llama's JSON, also in a fence, Llama 4's call in
brackets, ReAct's two lines."""


def marked(text: str, parsed: int, names: Collection[str] = ()) -> str | None:
    """Return the last of more than ``parsed`` calls in ``text``, from its marker, or a tag that is named like one of
    the tools."""
    marker = next((marker for marker in MARKERS if marker in text), None)
    if marker is not None:
        return f"{marker}{text.rpartition(marker)[2][:120]}" if text.count(marker) > parsed else None
    if parsed:
        return None
    tag = TAGGED.search(text) or OTHERS.search(text)
    at = tag.start() if tag else next((at for name in names if (at := text.find(f"<{name}>")) >= 0), -1)
    return text[at : at + 120] if at >= 0 else None


def bare(text: str) -> str | None:
    """Return a call without a mark at the end of ``text``."""
    found = BARE.search(text)
    return text[found.start() :].strip()[:120] if found else None
