"""Hold the objects behind table rows: a trajectory, a call, a fact. Each derived value is computed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import dumps, loads
from typing import Any

import msgspec

from autotrace.insight.profile import Profile, decode
from autotrace.trajectory.chains import Chain, tree_of
from autotrace.trajectory.deferred import cached
from autotrace.trajectory.durations import Times, figures, finish_reason, times
from autotrace.trajectory.jsonable import integer, jsonable, word
from autotrace.trajectory.model import TRAINERS, Span, Trajectory, group_of, own_calls
from autotrace.trajectory.receipt import Receipt, of_row, own_pieces, receipt, whole_response

ROLES = ("trajectory", "agent", "span")
"""Roles of a root that make a trace a trajectory. A lone engine request and the trainer's own calls are not
trajectories: both have turns and spans only."""
GROUP_FINDINGS = "group_findings"
"""Name of the fact with the findings of the trajectory's group and step: a list of ``insight.profile.Mark``."""

_WORDED = frozenset({
    "_prompt_ids", "_new_prompt_ids", "_response_ids", "_logprobs", "_prompt_text", "new_prompt_text",
    "response_text", "response_parts", "messages", "response_mask",
})  # fmt: skip
"""Fields of a ``Span`` instance for which the call gets a row in ``turns``."""
_TRAINED = frozenset(TRAINERS)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def json(value: Any) -> str | None:
    """Encode ``value`` as JSON; None for None and for an empty mapping or list."""
    if not value and (value is None or value == {} or value == []):
        return None
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, RecursionError):  # not plain, or text that is not Unicode
        return msgspec.json.encode(jsonable(value)).decode()


def exact(value: Any) -> str | None:
    """Encode ``value`` as JSON, from which ``exactly`` restores a plain value; None for None alone."""
    if value is None:
        return None
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # integers of any size stay exact
        return dumps(jsonable(value), ensure_ascii=False)


def exactly(text: str | None) -> Any:
    """Decode the value that ``exact`` encoded."""
    if text is None:
        return None
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return loads(text)


class Rollout:
    """Hold a trace: a row in ``trajectories`` and the columns that all rows of the trace share."""

    def __init__(self, trajectory: Trajectory) -> None:
        attributes = trajectory.attributes
        validate = attributes.get("validate")
        self.trajectory = trajectory
        self.root = trajectory.root
        self.attributes: Mapping[str, Any] = attributes
        self.facts: Mapping[str, Any] = trajectory.facts
        self.run_id = trajectory.run_id
        self.trace_id = trajectory.trace_id
        self.version = trajectory.version
        self.step = integer(attributes.get("step"))
        self.uid = word(attributes.get("uid"))
        self.rollout_n = integer(attributes.get("rollout_n", attributes.get("session_id")))
        self.validate = validate if isinstance(validate, bool) else None

    @cached
    def spans(self) -> list[Call]:
        """Return all calls, in the trajectory's order."""
        found = [
            Call(self, span, position, figures(self.trajectory, span))
            for position, span in enumerate(self.trajectory.spans)
        ]
        calls = {call.span.span_id: call for call in found if call.span.role == "llm"}
        for turn, span in enumerate(self.trajectory.llm_spans, 1):
            calls[span.span_id].turn = turn
        return found

    @cached
    def turns(self) -> list[Call]:
        """Return the agent's calls of models."""
        calls = {call.span.span_id: call for call in self.spans if call.turn is not None}
        return [calls[span.span_id] for span in self.trajectory.llm_spans]

    @cached
    def profile(self) -> Profile | None:
        """Return the observations of the detectors; None: the trajectory was not examined."""
        return decode(self.trajectory.profile)

    @cached
    def generated(self) -> list[int | None]:
        """Return the tokens that each turn generated, from the calls, or from the profile if the trajectory has no
        calls."""
        calls, known = self.trajectory.llm_spans, self.profile
        of_calls = [span.response_tokens for span in calls]
        return of_calls if of_calls or known is None else [turn.response for turn in known.turns]

    @cached
    def tree(self) -> Sequence[Chain]:
        """Return the chains of the turns, from the calls or from the profile."""
        if self.trajectory.llm_spans or self.profile is None or not self.generated:
            return tree_of(self.trajectory).chains
        return self.profile.chains or [Chain(0, turns=[*range(1, len(self.generated) + 1)])]

    @cached
    def receipt(self) -> Receipt | None:
        """Return the training rows that received the tokens."""
        return receipt(self.tree, self.generated, self.facts)

    def chains(self) -> Iterator[OwnChain]:
        """Yield the chains; only a trajectory has chains."""
        if self.is_trajectory:
            yield from (OwnChain(self, chain) for chain in self.tree)

    def release(self) -> None:
        """Drop the calls, which refer back to this object: the memory is then freed at once, without the cycle
        collector. The object must not be used afterwards."""
        self.spans, self.turns, self.worded = [], [], []

    @property
    def is_trajectory(self) -> bool:
        """Return whether the trace has a row in ``trajectories``."""
        return self.root.role in ROLES

    @property
    def group_id(self) -> str:
        """Return ``model.group_of``; a trajectory without a prompt forms its own group."""
        return group_of(self.attributes) or self.trace_id

    @cached
    def times(self) -> Times:
        """Return the parts of the duration."""
        return times(self.trajectory)

    @cached
    def tool_calls(self) -> int:
        """Return the number of tool calls; a tool's own method below the agent's tool call is the same call."""
        return len({span.span_id for span in own_calls(self.trajectory.spans, "tool")})

    @cached
    def failed(self) -> Span | None:
        """Return the root if the root failed, else the first failed call that was not cancelled on purpose."""
        return next((span for span in self.trajectory.spans if span.error and not self._dropped(span)), None)

    def _dropped(self, span: Span) -> bool:
        return span.status == "CANCELLED" and (self.root.status == "OK" or not (span.error and span.error[1]))

    @cached
    def finish_reasons(self) -> list[str | None]:
        """Return the reason why each turn ended."""
        return [finish_reason(call.figures) for call in self.turns]

    @cached
    def weight_versions(self) -> list[int]:
        """Return the weight versions that answered."""
        versions = (integer(call.figures.get("weight_version")) for call in self.turns)
        return [version for version in versions if version is not None]

    @cached
    def answer(self) -> Span | None:
        """Return the agent's call with the whole conversation."""
        return whole_response(self.trajectory.spans)

    @cached
    def untold(self) -> Span | None:
        """Return ``answer`` if no turn has tokens or text."""
        if any(call.span.packed_response is not None or call.span.response_text is not None for call in self.turns):
            return None
        return self.answer

    @cached
    def masks(self) -> dict[str, list[int]] | None:
        """Return span id of each turn -> the turn's part of the agent's response mask; None if the turns are not pieces
        of a single response (the agent began anew, or left out a turn)."""
        whole = self.answer
        mask = None if whole is None else whole.response_mask
        places = own_pieces(self.trajectory, whole) if mask else None
        if places is None or mask is None:
            return None
        return {span_id: mask[start : start + count] for span_id, (start, count) in places.items()}

    @cached
    def worded(self) -> list[Call]:
        """Return the calls that have tokens, texts, messages or a mask."""
        return [call for call in self.spans if _has(call, _WORDED)]

    @cached
    def followed(self) -> frozenset[str]:
        """Return span ids of the calls whose prompt follows from an earlier call plus new tokens."""
        ends: dict[str, int] = {}
        followed = set()
        for call in self.worded:
            span = call.span
            given = vars(span).get("_prompt_ids")
            new, base, answered = span.packed_prompt, span.prompt_base, len(span.packed_response or b"") // 4
            if given is None:
                continue
            prompt = span.prompt_keep + len(new or b"") // 4
            begun = span.prompt_keep <= (0 if base is None else ends.get(base, -1))
            if new is not None and begun and span.prompt_tokens in (None, prompt):
                followed.add(span.span_id)
            else:
                prompt = len(span.prompt_ids or ())
            ends[span.span_id] = prompt + answered
        return frozenset(followed)

    @cached
    def joined_ids(self) -> bytes:
        """Join the tokens of the turns: the response of the first turn, then the new prompt tokens and the response of
        each later turn. Empty if some tokens are not known."""
        return b"".join(self._joined("packed_prompt", "packed_response"))

    @cached
    def joined_text(self) -> str:
        """Join the texts of the turns, as ``joined_ids`` joins the tokens."""
        return "".join(self._joined("new_prompt_text", "response_text"))

    def _joined(self, *fields: str) -> list[Any]:
        parts = [getattr(call.span, field) for call in self.turns for field in fields][1:]
        return [] if None in parts else parts

    @property
    def computed(self) -> list[Call]:
        """Return the calls for whose tokens the trainer's values were recorded."""
        return [call for call in self.spans if _has(call, _TRAINED)]

    def known(self) -> Iterator[Known]:
        """Yield the facts of the trajectory."""
        yield from (Known(self, name, value) for name, value in self.facts.items())
        if self.profile is not None and self.profile.found:
            yield Known(self, GROUP_FINDINGS, msgspec.to_builtins(self.profile.found))


def _has(call: Call, names: frozenset[str]) -> bool:
    """Return whether a field in ``names`` has a value."""
    fields = vars(call.span)
    return not names.isdisjoint(fields) and any(fields.get(name) is not None for name in names)


class Call:
    """Hold a call of a trace: a row of ``spans``, and of ``turns`` for an LLM call."""

    __slots__ = ("figures", "position", "rollout", "span", "turn")

    def __init__(self, rollout: Rollout, span: Span, position: int, figures: Mapping[str, Any]) -> None:
        self.rollout = rollout
        self.span = span
        self.position = position
        """Position in the trajectory; 0 is the root."""
        self.turn = 0
        self.figures = figures
        """Attributes of the call and of the call's engine request."""

    @property
    def chain(self) -> int | None:
        """Return the chain of the turn; None: the agent did not make the call."""
        return tree_of(self.rollout.trajectory).of[self.turn] if self.turn else None


@dataclass(slots=True, eq=False)
class OwnChain:
    """Hold a chain of a trajectory: a row of ``chains``."""

    rollout: Rollout
    chain: Chain

    @property
    def tokens(self) -> int | None:
        """Return the tokens that the chain's own turns generated; None if no turn's number is known."""
        generated = self.rollout.generated
        counts = [count for turn in self.chain.turns if (count := generated[turn - 1]) is not None]
        return sum(counts) if counts else None

    @property
    def row(self) -> int | None:
        """Return the trainer's row that received the chain; None: no row, or not known."""
        told = self.rollout.receipt
        return None if told is None else told.row.get(self.chain.number)

    @property
    def in_rows(self) -> int | None:
        """Return how many of ``tokens`` are in a row; None: not known."""
        told = self.rollout.receipt
        return None if told is None or not (told.is_whole or told.inside(self.chain)) else told.inside(self.chain)

    def fact(self, name: str) -> Any:
        """Return a fact about the chain's row."""
        return None if self.row is None else of_row(self.rollout.facts, name, self.row)

    def count(self, name: str) -> int | None:
        """Return a number from the token facts of the chain's row."""
        told = self.fact("token_facts")
        return integer(told.get(name)) if isinstance(told, dict) else None

    @property
    def trained(self) -> int | None:
        """Return the tokens of the chain's row that the loss covers."""
        count = self.count("tokens")
        return None if count is None else count - (self.count("rejected") or 0)


@dataclass(slots=True, eq=False)
class Known:
    """Hold a fact about a trajectory: a row of ``facts``."""

    rollout: Rollout
    name: str
    value: Any
