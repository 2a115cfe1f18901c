"""One trajectory as its detectors read it: turns, tools and rewards, each with what belongs to it."""

from __future__ import annotations

import bisect
import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec

from autotrace.insight.call_texts import bare, marked
from autotrace.insight.settings import Settings
from autotrace.trajectory.deferred import cached
from autotrace.trajectory.model import Span, Trajectory, packed_ids
from autotrace.trajectory.numbers import integer
from autotrace.trajectory.tool_names import tool_name

CUT = frozenset({"length", "max_tokens", "max_length"})
"""Finish reasons of a response that was cut at a limit."""
AS_ASKED = "max_tokens asked"
"""Finish reason of a response that is as long as the agent itself asked for in this call."""
ABORTED = frozenset({"abort", "aborted", "cancelled"})
JUDGED = ("reward", "reward_extra_info")
"""Facts that a look at one trajectory reads. The others, which a trainer reports of each of them later, change no
profile."""
_WIDTH = 4


@dataclass
class LLMCall:
    """One turn."""

    number: int
    """From 1."""
    span: Span
    figures: Mapping[str, Any]
    """Its attributes, and those of its request to the engine."""

    @cached
    def finish(self) -> str | None:
        """Why it ended: ``stop``, ``length``, ...; ``AS_ASKED``."""
        asked = whole(self.sampling.get("max_tokens", self.sampling.get("max_new_tokens")))
        if asked and self.span.response_tokens == asked:
            return AS_ASKED
        reason = self.figures.get("finish_reason") or self.figures.get("stop_reason")
        return reason if isinstance(reason, str) else None

    @cached
    def ids(self) -> bytes | None:
        """The response, four bytes a token; None: not recorded."""
        return self.span.packed_response

    @cached
    def last(self) -> int | None:
        """The last token of the response; None: there is none."""
        ids = self.ids
        return unpacked(ids[-_WIDTH:])[0] if ids else None

    @property
    def total(self) -> int | None:
        """Tokens of prompt and response."""
        prompt, response = self.span.prompt_tokens, self.span.response_tokens
        return None if prompt is None or response is None else prompt + response

    @property
    def sampling(self) -> Mapping[str, Any]:
        """Its sampling parameters."""
        given = self.span.inputs.get("sampling_params")
        return given if isinstance(given, dict) else {}


@dataclass
class ToolCall:
    """One call of a tool, as the agent made it, with what it called to get its answer."""

    span: Span
    turn: int
    """The turn before it; 0: none."""
    inner: list[Span] = field(default_factory=list)
    """Calls of the tool's own below it."""

    @cached
    def name(self) -> str:
        return self.span.title or tool_name(self.span)

    @cached
    def failed(self) -> Span | None:
        """The call that raised: this one, or the deepest below it."""
        if not self.inner:
            return self.span if self.span.error else None
        return next((span for span in (*reversed(self.inner), self.span) if span.error), None)

    @cached
    def answer(self) -> str:
        """What the agent was told, as text; empty: nothing that is text."""
        return text_of(self.span.output)

    @cached
    def arguments(self) -> bytes:
        """What it was asked, in one piece: to be compared, in whatever order it was said."""
        return _comparable(self.span.inputs)

    @cached
    def result(self) -> bytes:
        """What came of it, text or not, to be compared."""
        return _comparable(self.failed.error_text if self.failed is not None else self.span.output)


class Evidence:
    """One trajectory. Reads it, changes nothing."""

    def __init__(self, trajectory: Trajectory, settings: Settings) -> None:
        self.trajectory = trajectory
        self.settings = settings
        self.by_id = {span.span_id: span for span in trajectory.spans}
        calls = trajectory.llm_spans
        below: dict[str, dict[str, Any]] = {}
        for span in trajectory.spans:
            if span.role == "engine" and (above := self._above(span, "llm")) is not None:
                known = {name: value for name, value in span.attributes.items() if value is not None}
                below.setdefault(above.span_id, {}).update({**known, "server": _server(span)})
        self.turns = [LLMCall(n, span, _figures(span, below.get(span.span_id))) for n, span in enumerate(calls, 1)]

    @property
    def facts(self) -> dict[str, Any]:
        """Those of ``JUDGED`` that are known."""
        return judged(self.trajectory.facts)

    @property
    def root(self) -> Span:
        """The trajectory's own call."""
        return self.trajectory.root

    @cached
    def agent(self) -> Span | None:
        """The call that has the whole response with its mask."""
        having = (span for span in self.trajectory.spans if span.role not in ("llm", "engine"))
        return next((span for span in having if span.response_mask is not None or span.response_ids), None)

    @cached
    def tools(self) -> list[ToolCall]:
        """Calls of tools, in order."""
        made: dict[str, ToolCall] = {}
        caller: str | None = ""
        above = judges = None
        for span in self.trajectory.spans:
            if span.role != "tool":
                continue
            if span.parent_id != caller:  # most of them have the same
                caller, above, judges = span.parent_id, self._above(span, "tool"), self._above(span, "reward")
            if above is not None and above.span_id in made:
                made[above.span_id].inner.append(span)
                made[span.span_id] = made[above.span_id]
            elif judges is None:
                made[span.span_id] = ToolCall(span, self.turn_at(span.start_ns))
        return list({id(call): call for call in made.values()}.values())

    @cached
    def rewards(self) -> list[Span]:
        """Calls of rewards, the outermost first."""
        return [span for span in self.trajectory.spans if span.role == "reward"]

    @property
    def out_of_turns(self) -> bool:
        """It made as many turns as it may."""
        limits = (self.settings.max_assistant_turns, self.settings.max_user_turns)
        return any(limit is not None and len(self.turns) >= limit for limit in limits)

    @cached
    def unparsed(self) -> str | None:
        """The beginning of a tool call that the last answer has and no parser found; None: there is none, or no
        parser."""
        parsers = [span.output for span in self.trajectory.spans if span.role == "parser"]
        if not parsers:
            return None
        read = [output for output in parsers if isinstance(output, list) and len(output) > 1]
        said = next((output[0] for output in reversed(read[-1:]) if isinstance(output[0], str)), "")
        calls = [len(output[1]) if isinstance(output[1], list) else 0 for output in read]
        # a parser may take out what it could not read: the text that was judged has it
        last, names = calls[-1] if calls else 0, {call.name for call in self.tools}
        for text, parsed in ((said, last), (self.judged, sum(calls))):
            if (asked := marked(text, parsed, names)) is not None:
                return asked
        return None if not calls or last else bare(said)

    @property
    def judged(self) -> str:
        """The text that a reward judged; empty: not known."""
        texts = (span.inputs.get("solution_str") for span in self.rewards)
        return next((text for text in texts if isinstance(text, str)), "")

    def turn_at(self, at_ns: int) -> int:
        """The last turn that had begun; 0: none."""
        return bisect.bisect_right(self._starts, at_ns)

    @cached
    def _starts(self) -> list[int]:
        return sorted(call.span.start_ns for call in self.turns)

    def _above(self, span: Span, role: str) -> Span | None:
        above, hops = self.by_id.get(span.parent_id or ""), 0
        while above is not None and hops < 1000:
            if above.role == role:
                return above
            above, hops = self.by_id.get(above.parent_id or ""), hops + 1
        return None


def _figures(span: Span, below: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if below is None:
        return span.attributes
    return {**below, **{name: value for name, value in span.attributes.items() if value is not None}}


def _server(span: Span) -> str:
    replica = span.attributes.get("replica")
    return f"{span.host}/{span.pid}" if replica is None else str(replica)


def judged(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of the facts about a trajectory those of ``JUDGED``."""
    return {name: facts[name] for name in JUDGED if name in facts}


def packed(ids: Sequence[int] | None) -> bytes | None:
    """Token ids, four bytes each; None for what are none."""
    return None if ids is None else packed_ids(ids)


def unpacked(ids: bytes) -> list[int]:
    """The inverse of ``packed``."""
    return array("i", ids).tolist()


def find(ids: bytes, part: bytes, start: int = 0) -> int:
    """The index of the token at which ``part`` begins in ``ids``, at ``start`` or behind; -1: nowhere."""
    at = ids.find(part, start * _WIDTH)
    while at >= 0 and at % _WIDTH:
        at = ids.find(part, at + 1)
    return at // _WIDTH if at >= 0 else -1


def tokens(ids: bytes) -> int:
    """How many there are."""
    return len(ids) // _WIDTH


def piece(ids: bytes, begin: int, end: int | None = None) -> bytes:
    """Tokens ``begin`` to ``end``."""
    return ids[begin * _WIDTH : None if end is None else end * _WIDTH]


def common(one: bytes, other: bytes) -> int:
    """How many tokens both begin with."""
    low, high = 0, min(len(one), len(other)) // _WIDTH
    if one[: high * _WIDTH] == other[: high * _WIDTH]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * _WIDTH : middle * _WIDTH] == other[low * _WIDTH : middle * _WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low


def fingerprint(parts: Iterator[bytes]) -> str:
    """A digest of what the model said; empty below ``ALIKE`` tokens: short answers are alike by chance."""
    said = b"".join(parts)
    return hashlib.blake2b(said, digest_size=8).hexdigest() if tokens(said) >= ALIKE else ""


ALIKE = 32
"""Tokens from which equal answers are no chance."""


def text_of(value: Any, depth: int = 0) -> str:
    """The text of what a tool returned: ``"4"``, ``{"text": "4"}``, ``[{"text": "4"}, 0.0, {}]``."""
    if isinstance(value, str):
        return value
    if depth > 3:
        return ""
    if isinstance(value, dict):
        for name in ("text", "content", "result", "output", "error"):
            if text := text_of(value.get(name), depth + 1):
                return text
        return ""
    if isinstance(value, list) and value:
        return text_of(value[0], depth + 1)
    return ""


def _comparable(value: Any) -> bytes:
    try:
        return msgspec.json.encode(_ordered(value))
    except (TypeError, ValueError, OverflowError):  # values that are not plain: not from our assembly
        return repr(value).encode("utf-8", "replace")


def _ordered(value: Any, depth: int = 0) -> Any:
    """``value`` with the names of its objects in order, also of those that are written as JSON."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    if isinstance(value, dict) and depth < 8:
        return [(name, _ordered(part, depth + 1)) for name, part in sorted(value.items(), key=itemgetter(0))]
    return value


def whole(value: Any) -> int | None:
    """``value`` as a count."""
    number = integer(value)
    return number if number is not None and number >= 0 else None
