"""What the shipper assembles and a sink receives: spans and trajectories as plain values.

A trajectory costs memory and time in proportion to its records, whoever wrote them: so much its prompts may repeat, and
so deep its calls may stand within calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotrace.trajectory.deferred import DeferrableField, Packed, cached
from autotrace.trajectory.jsonable import integer, number, word
from autotrace.trajectory.token_ids import packed_ids as packed_ids

OK = "OK"
ERROR = "ERROR"
INTERRUPTED = "INTERRUPTED"
ENDED_BY_PROGRAM = "the program ended its process"
"""The attribute ``outcome`` of an ``INTERRUPTED`` span whose process did not die of itself."""
"""The process that had the span open died."""
OPEN = "OPEN"
"""Still running (only ever shown, never delivered)."""


DETAILS = frozenset({"token_facts"})
"""Facts with many parts, which are no feedback: what matters of them is a fact of its own."""
TRAINERS = (
    "old_logprobs", "trained_logprobs", "entropy", "ref_logprobs", "is_weights", "advantages", "loss_mask",
)  # fmt: skip
"""Fields of a span with what the trainer computed for its tokens."""


def _packed(ids: Packed[int] | list[int] | None) -> bytes | None:
    return ids.data if isinstance(ids, Packed) else packed_ids(ids)


@dataclass
class Span:
    """One call. Times are wall-clock nanoseconds since the epoch; a duration comes from one monotonic clock."""

    span_id: str
    """16 lower-case hex digits."""
    parent_id: str | None
    name: str
    """What was called: ``ToolAgentLoop.run``."""
    role: str
    """trajectory | agent | llm | tool | parser | env | reward | engine | trainer | span"""
    key: str
    """The plan's target key."""
    start_ns: int
    end_ns: int | None = None
    status: str = OPEN
    inputs: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    error: tuple[str, str, str] | None = None
    """Exception type, message, formatted stack."""
    prompt_ids: DeferrableField[list[int]] = DeferrableField()  # noqa: RUF009 - a descriptor
    """The full prompt, rebuilt each time it is asked for; its length is ``prompt_tokens``."""
    new_prompt_ids: DeferrableField[list[int]] = DeferrableField()  # noqa: RUF009 - a descriptor
    """What this prompt adds to the trajectory's earlier tokens (tool results, user turns); like ``response_ids`` and
    ``logprobs`` a list that is made each time it is asked for."""
    prompt_base: str | None = None
    """The span whose prompt + response this prompt begins with; None: with none."""
    prompt_keep: int = 0
    """How many tokens it shares with that: ``prompt_ids == (base.prompt_ids + base.response_ids)[:prompt_keep] +
    new_prompt_ids``."""
    prompt_tokens: int | None = None
    """Length of the prompt; set even where the ids are in another span (the engine's side) or were withheld."""
    response_tokens: int | None = None
    response_ids: DeferrableField[list[int]] = DeferrableField()  # noqa: RUF009 - a descriptor
    logprobs: DeferrableField[list[float]] = DeferrableField()  # noqa: RUF009 - a descriptor
    """Of each token of the response, as the engine reported it."""
    old_logprobs: list[float] | None = None
    """The same as the trainer computed it before its update; of some trajectories, and later. So is what follows, each
    a number for each token of the response; of an LLM call, or of the agent's where its calls are no pieces of the
    response. Shorter than the response where the trainer cut it."""
    trained_logprobs: list[float] | None = None
    """What the trainer was given as ``logprobs``."""
    entropy: list[float] | None = None
    ref_logprobs: list[float] | None = None
    """Of the reference model."""
    is_weights: list[float] | None = None
    """Importance weights."""
    advantages: list[float] | None = None
    """None where all tokens have the trajectory's advantage."""
    loss_mask: list[int] | None = None
    """1 where the trainer takes the loss: ``response_mask`` without what it rejected."""
    response_mask: list[int] | None = None
    prompt_text: DeferrableField[str] = DeferrableField()  # noqa: RUF009 - a descriptor
    """Of an LLM call put together each time it is asked for."""
    new_prompt_text: str | None = None
    response_text: str | None = None
    response_parts: list[dict[str, str]] | None = None
    """``response_text`` split by ``response_mask``: ``{"model": ...}`` and ``{"tools": ...}`` in order; None where the
    response has only one of them."""
    messages: list[dict[str, Any]] | None = None
    """Role/content messages of this turn, where its text could be decoded."""
    host: str = ""
    pid: int = 0
    items: int = 0
    first_item_ns: int | None = None
    title: str | None = None
    """What people call it: ``turn 2``, the tool's name; None: ``name``."""

    @classmethod
    def begun(
        cls, span_id: str, parent_id: str | None, name: str, role: str, key: str, start_ns: int,
        inputs: dict[str, Any], attributes: dict[str, Any], host: str, pid: int,
    ) -> Span:  # fmt: skip
        """A call of which no more is known yet: as ``Span(...)`` makes it, in a quarter of the time. What nobody sets
        is the class's default."""
        span = cls.__new__(cls)
        span.__dict__ = {
            "span_id": span_id, "parent_id": parent_id, "name": name, "role": role, "key": key, "start_ns": start_ns,
            "inputs": inputs, "attributes": attributes, "host": host, "pid": pid,
        }  # fmt: skip
        return span

    @property
    def has_tokens(self) -> bool:
        """Token ids of a prompt or of a response are known; they may be no integers that can be packed."""
        fields = self.__dict__
        return fields.get("_new_prompt_ids") is not None or fields.get("_response_ids") is not None

    @property
    def packed_prompt(self) -> bytes | None:
        """``new_prompt_ids`` as an array of ``int`` has them, four bytes each; None where there are none or they are no
        such integers. Without making the list, where it is not made."""
        return _packed(self.__dict__.get("_new_prompt_ids"))

    @property
    def packed_response(self) -> bytes | None:
        """The same of ``response_ids``."""
        return _packed(self.__dict__.get("_response_ids"))

    @property
    def packed_logprobs(self) -> bytes | None:
        """``logprobs`` as an array of ``float`` has them, four bytes each; None where they are no such bytes yet."""
        given = self.__dict__.get("_logprobs")
        return given.data if isinstance(given, Packed) else None

    @property
    def shown_name(self) -> str:
        """``title``, else ``name``."""
        return self.title or self.name

    @property
    def error_text(self) -> str | None:
        """Type and message of the error in one line, the type alone where it has no message; None without error."""
        return error_text(self.error)

    @property
    def duration_ns(self) -> int | None:
        return None if self.end_ns is None else self.end_ns - self.start_ns


def error_text(error: tuple[str, str, str] | None) -> str | None:
    """``Span.error_text`` of ``Span.error``."""
    if error is None:
        return None
    kind, message, _ = error
    return f"{kind}: {message}" if message else kind


ANOTHERS = {"llm": frozenset({"llm", "tool", "env", "reward"}), "tool": frozenset({"tool", "reward"})}
"""Roles below which a call is not the agent's own: a tool or a reward asks a model, too."""


DEPTH = 1000
"""Calls that stand around another one, at most: of deeper ones the outermost are not looked at."""


def has_score(reward: Any) -> bool:
    """Whether it is a dict, as veRL's reward functions may return, which has the reward itself as ``score``."""
    return isinstance(reward, dict) and number(reward.get("score")) is not None


def ancestors(span: Span, by_id: Mapping[str, Span]) -> Iterator[Span]:
    """The calls around ``span``, the innermost first, at most ``DEPTH``: parents may form a circle."""
    above = by_id.get(span.parent_id or "")
    for _ in range(DEPTH):
        if above is None:
            return
        yield above
        above = by_id.get(above.parent_id or "")


def above(span: Span, by_id: Mapping[str, Span], roles: Collection[str]) -> Span | None:
    """The innermost call around ``span`` that has one of ``roles``."""
    return next((call for call in ancestors(span, by_id) if call.role in roles), None)


def own_calls(spans: Sequence[Span], role: str = "llm") -> list[Span]:
    """The LLM calls of an agent, or its calls of tools, in the order of ``spans``: those that no tool or reward made,
    and no environment or LLM call, where it is an LLM call. A tool's own method below the agent's call of it is the
    same call."""
    others, by_id = ANOTHERS[role], {span.span_id: span for span in spans}
    own: dict[str | None, bool] = {}  # of the calls below a span: most have the same parent
    calls = []
    for span in spans:
        if span.role == role:
            if span.parent_id not in own:
                own[span.parent_id] = above(span, by_id, others) is None
            if own[span.parent_id]:
                calls.append(span)
    return calls


NAMES = ("uid", "sample_index", "data_source", "project_name", "experiment_name")
"""Attributes of a trajectory that are texts everywhere. veRL's ``sample_index`` is ``extra_info.index`` of the dataset,
a number or a uuid, and a column has one type."""


def with_names(attributes: dict[str, Any]) -> None:
    """Make texts of the ``NAMES`` among the attributes of a trajectory's own call."""
    for name in NAMES:
        value = attributes.get(name)
        if value is not None and not isinstance(value, (str, dict, list)):
            attributes[name] = str(value)


def group_of(attributes: Mapping[str, Any]) -> str | None:
    """What the rollouts of one prompt in one step share, by their attributes; None: no prompt is known."""
    uid, sample, project, source = (
        word(attributes.get(name)) for name in ("uid", "sample_index", "project_name", "data_source")
    )
    step, validate = integer(attributes.get("step")), attributes.get("validate")
    if uid is not None or sample is None:
        return None if uid is None else f"{step}/{uid}"
    parts = (project, step, source, sample, validate if isinstance(validate, bool) else None)
    return "/".join("" if part is None else str(part) for part in parts)


@dataclass
class Trajectory:
    """One trace: the root span and everything below it, with the facts reported later.

    ``attributes`` holds the identity under veRL's names: ``step``, ``sample_index``, ``rollout_n``, ``validate``,
    ``uid``, ``data_source``, ``experiment_name``, ``project_name``, and autotrace's own ``run_id`` and ``attempt``.
    ``facts`` holds ``reward``, ``reward_extra_info``, ``advantage``, ``trained_in_step``, ...
    """

    trace_id: str
    """32 lower-case hex digits."""
    run_id: str
    spans: list[Span]
    """Sorted by start; the root first when it was recorded."""
    attributes: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What was dropped, cut or torn in this trajectory, in words for the user."""
    profile: str = "{}"
    """What findings know about it, encoded (``insight.profile``); ``{}``: it was not examined."""
    settings: str = "{}"
    """What is known about the run's configuration, as far as findings need it, encoded (``insight.settings``)."""
    tokenizer: str | None = None
    """Where the tokenizer was loaded from that made the texts; None without texts."""
    late_spans: int = 0
    """Calls that began after the root had ended."""
    version: int = 1
    """Counts up whenever more becomes known about a complete trajectory."""

    @property
    def root(self) -> Span:
        return self.spans[0]

    @property
    def status(self) -> str:
        return self.root.status

    @cached
    def by_id(self) -> dict[str, Span]:
        """Its spans by their ids; ``spans`` does not change once this was asked for."""
        return {span.span_id: span for span in self.spans}

    @cached
    def llm_spans(self) -> list[Span]:
        """The agent's own LLM calls in order; the engine's spans below them have the role ``engine``."""
        return own_calls(self.spans)

    @property
    def turns(self) -> int:
        """LLM calls the agent made."""
        return len(self.llm_spans)

    def _repr_html_(self) -> str:
        """What a notebook shows: what ``autotrace show`` prints."""
        from importlib import import_module  # which reads this module

        shown: str = import_module("autotrace.cli.show").as_html(self)
        return shown


DEEPEST = 100
"""Calls within calls; programs stay far below it, and all that is made of a trajectory walks up and down its tree."""
REPEATED = 32 << 20
"""Tokens of whole prompts over all turns: a thousand turns that read 32,000 each."""
TOO_MANY = "some prompts have only the tokens that are new in them: whole, they would be too many"


class Allowance:
    """How much more of one trajectory may be repeated."""

    def __init__(self, left: int = REPEATED) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Whether ``count`` more may be; then they count."""
        if count > self._left:
            return False
        self._left -= count
        return True


def flattened(spans: Sequence[Span]) -> int:
    """See that no call of ``spans`` (the root is the first) stands deeper than ``DEEPEST``, in a circle, or below one
    that is not there; those that did hang from the call at that depth, or from the root. How many were too deep."""
    parents = {span.span_id: span for span in spans}
    depths: dict[str, int] = {spans[0].span_id: 0} if spans else {}
    moved = 0
    for first in spans:
        path: list[Span] = []
        span: Span | None = first
        on_path = set()
        while span is not None and span.span_id not in depths and span.span_id not in on_path:
            path.append(span)
            on_path.add(span.span_id)
            span = parents.get(span.parent_id or "")
        for below in reversed(path):
            above = parents.get(below.parent_id or "")
            if above is None or above.span_id not in depths:
                above = spans[0]
                below.parent_id = above.span_id if below.parent_id is not None else None
            elif depths[above.span_id] >= DEEPEST:
                below.parent_id = above.parent_id
                moved += 1
            depths[below.span_id] = min(DEEPEST, depths[above.span_id] + 1)
    return moved
