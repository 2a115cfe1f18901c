"""Describe spans and trajectories as plain values: the shipper assembles trajectories, a sink receives trajectories.

A trajectory costs memory and time in proportion to its records, no matter who wrote the records: repeated prompt tokens
and the nesting of calls are limited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from autotrace.trajectory.deferred import DeferrableField, Packed, cached
from autotrace.trajectory.jsonable import integer, number, word
from autotrace.trajectory.token_ids import packed_ids as packed_ids

OK = "OK"
ERROR = "ERROR"
INTERRUPTED = "INTERRUPTED"
ENDED_BY_PROGRAM = "the program ended its process"
"""Attribute ``outcome`` of an ``INTERRUPTED`` span whose process did not crash."""
"""Status of a span whose process died while the span was open."""
OPEN = "OPEN"
"""Status of a running call (only shown, never delivered)."""


DETAILS = frozenset({"token_facts"})
"""Facts with many parts, which are not feedback: important parts are facts of their own."""
TRAINERS = (
    "old_logprobs", "trained_logprobs", "entropy", "ref_logprobs", "is_weights", "advantages", "loss_mask",
)  # fmt: skip
"""Fields of a span with values that the trainer computed for the span's tokens."""


def _packed(ids: Packed[int] | list[int] | None) -> bytes | None:
    return ids.data if isinstance(ids, Packed) else packed_ids(ids)


@dataclass
class Span:
    """Describe a call. Times are wall-clock nanoseconds since the epoch; a duration comes from a single monotonic
    clock."""

    span_id: str
    """16 lower-case hex digits."""
    parent_id: str | None
    name: str
    """Name of the called function: ``ToolAgentLoop.run``."""
    role: str
    """trajectory | agent | llm | tool | parser | env | reward | engine | trainer | span"""
    key: str
    """Target key of the plan."""
    start_ns: int
    end_ns: int | None = None
    status: str = OPEN
    inputs: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    error: tuple[str, str, str] | None = None
    """Exception type, message, formatted stack."""
    prompt_ids: DeferrableField[list[int]] = DeferrableField()  # noqa: RUF009 - a descriptor
    """Full prompt, rebuilt on each access; the length is ``prompt_tokens``."""
    new_prompt_ids: DeferrableField[list[int]] = DeferrableField()  # noqa: RUF009 - a descriptor
    """Tokens that this prompt adds to the trajectory's earlier tokens (tool results, user turns); as for
    ``response_ids`` and ``logprobs`` each access builds a list."""
    prompt_base: str | None = None
    """Span whose prompt + response this prompt begins with; None: no such span."""
    prompt_keep: int = 0
    """Number of tokens shared with ``prompt_base``: ``prompt_ids == (base.prompt_ids + base.response_ids)[:prompt_keep]
    + new_prompt_ids``."""
    prompt_tokens: int | None = None
    """Length of the prompt; set even if the ids are in another span (the engine's side) or were withheld."""
    response_tokens: int | None = None
    response_ids: DeferrableField[list[int]] = DeferrableField()  # noqa: RUF009 - a descriptor
    logprobs: DeferrableField[list[float]] = DeferrableField()  # noqa: RUF009 - a descriptor
    """Log-probability of each token of the response, as the engine reported."""
    old_logprobs: list[float] | None = None
    """Log-probabilities as the trainer computed before its update; known later, for some trajectories. This field and
    the next fields hold a number for each token of the response of an LLM call, or of the agent's call if its LLM calls
    are not pieces of the response. Shorter than the response if the trainer cut the response."""
    trained_logprobs: list[float] | None = None
    """Log-probabilities that the trainer was given as ``logprobs``."""
    entropy: list[float] | None = None
    ref_logprobs: list[float] | None = None
    """Log-probabilities of the reference model."""
    is_weights: list[float] | None = None
    """Importance weights."""
    advantages: list[float] | None = None
    """None if all tokens have the trajectory's advantage."""
    loss_mask: list[int] | None = None
    """1 where the trainer takes the loss: ``response_mask`` without rejected tokens."""
    response_mask: list[int] | None = None
    prompt_text: DeferrableField[str] = DeferrableField()  # noqa: RUF009 - a descriptor
    """Text of the prompt; for an LLM call built on each access."""
    new_prompt_text: str | None = None
    response_text: str | None = None
    response_parts: list[dict[str, str]] | None = None
    """``response_text`` split by ``response_mask``: ``{"model": ...}`` and ``{"tools": ...}`` in order; None if the
    response has only model parts or only tool parts."""
    messages: list[dict[str, Any]] | None = None
    """Role/content messages of this turn, if the text could be decoded."""
    host: str = ""
    pid: int = 0
    items: int = 0
    first_item_ns: int | None = None
    title: str | None = None
    """Displayed name: ``turn 2``, the tool's name; None: ``name``."""

    @classmethod
    def begun(
        cls, span_id: str, parent_id: str | None, name: str, role: str, key: str, start_ns: int,
        inputs: dict[str, Any], attributes: dict[str, Any], host: str, pid: int,
    ) -> Span:  # fmt: skip
        """Create a call whose other fields are unknown: as ``Span(...)``, in a quarter of the time. Unset fields fall
        back to class attributes."""
        span = cls.__new__(cls)
        span.__dict__ = {
            "span_id": span_id, "parent_id": parent_id, "name": name, "role": role, "key": key, "start_ns": start_ns,
            "inputs": inputs, "attributes": attributes, "host": host, "pid": pid,
        }  # fmt: skip
        return span

    @property
    def has_tokens(self) -> bool:
        """Return whether token ids of a prompt or response are known; the ids may not be integers that can be
        packed."""
        fields = self.__dict__
        return fields.get("_new_prompt_ids") is not None or fields.get("_response_ids") is not None

    @property
    def packed_prompt(self) -> bytes | None:
        """Return ``new_prompt_ids`` as the bytes of an array of ``int``, four bytes each; None without ids or if the
        ids are not such integers. Builds no list."""
        return _packed(self.__dict__.get("_new_prompt_ids"))

    @property
    def packed_response(self) -> bytes | None:
        """Return ``response_ids`` as ``packed_prompt`` returns ``new_prompt_ids``."""
        return _packed(self.__dict__.get("_response_ids"))

    @property
    def packed_logprobs(self) -> bytes | None:
        """Return ``logprobs`` as the bytes of an array of ``float``, four bytes each; None if not stored as bytes."""
        given = self.__dict__.get("_logprobs")
        return given.data if isinstance(given, Packed) else None

    @property
    def shown_name(self) -> str:
        """Return ``title``, else ``name``."""
        return self.title or self.name

    @property
    def error_text(self) -> str | None:
        """Return type and message of the error in one line, the type alone without a message; None without error."""
        return error_text(self.error)

    @property
    def duration_ns(self) -> int | None:
        return None if self.end_ns is None else self.end_ns - self.start_ns


def error_text(error: tuple[str, str, str] | None) -> str | None:
    """Format ``Span.error`` as ``Span.error_text``."""
    if error is None:
        return None
    kind, message, _ = error
    return f"{kind}: {message}" if message else kind


ANOTHERS = {"llm": frozenset({"llm", "tool", "env", "reward"}), "tool": frozenset({"tool", "reward"})}
"""Roles below which a call is not the agent's own: tools and rewards call models, too."""


DEPTH = 1000
"""Maximum number of enclosing calls that are examined; calls further out are ignored."""


def has_score(reward: Any) -> bool:
    """Return whether ``reward`` is a dict, as veRL's reward functions may return, with the reward as ``score``."""
    return isinstance(reward, dict) and number(reward.get("score")) is not None


def ancestors(span: Span, by_id: Mapping[str, Span]) -> Iterator[Span]:
    """Yield the calls around ``span``, the innermost first, at most ``DEPTH``: parents may form a circle."""
    above = by_id.get(span.parent_id or "")
    for _ in range(DEPTH):
        if above is None:
            return
        yield above
        above = by_id.get(above.parent_id or "")


def above(span: Span, by_id: Mapping[str, Span], roles: Collection[str]) -> Span | None:
    """Return the innermost call around ``span`` that has a role in ``roles``."""
    return next((call for call in ancestors(span, by_id) if call.role in roles), None)


def own_calls(spans: Sequence[Span], role: str = "llm") -> list[Span]:
    """Return the LLM calls of an agent, or the agent's tool calls, in the order of ``spans``: calls that no tool or
    reward made, and, for LLM calls, no environment or LLM call. A tool's own method below the agent's tool call is the
    same call."""
    others, by_id = ANOTHERS[role], {span.span_id: span for span in spans}
    own: dict[str | None, bool] = {}  # for the calls below a span: most have the same parent
    calls = []
    for span in spans:
        if span.role == role:
            if span.parent_id not in own:
                own[span.parent_id] = above(span, by_id, others) is None
            if own[span.parent_id]:
                calls.append(span)
    return calls


NAMES = ("uid", "sample_index", "data_source", "project_name", "experiment_name")
"""Attributes of a trajectory that are always texts. veRL's ``sample_index`` is ``extra_info.index`` of the dataset, a
number or a uuid, and a column has a single type."""


def with_names(attributes: dict[str, Any]) -> None:
    """Convert the ``NAMES`` among the attributes of a trajectory's own call to texts."""
    for name in NAMES:
        value = attributes.get(name)
        if value is not None and not isinstance(value, (str, dict, list)):
            attributes[name] = str(value)


def group_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the group id that the rollouts of a prompt in a step share, from their attributes; None: no prompt is
    known."""
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
    """Hold a trace: the root span and all spans below, with the facts reported later.

    ``attributes`` holds the identity under veRL's names: ``step``, ``sample_index``, ``rollout_n``, ``validate``,
    ``uid``, ``data_source``, ``experiment_name``, ``project_name``, and autotrace's own ``run_id`` and ``attempt``.
    ``facts`` holds ``reward``, ``reward_extra_info``, ``advantage``, ``trained_in_step``, ...
    """

    trace_id: str
    """32 lower-case hex digits."""
    run_id: str
    spans: list[Span]
    """Sorted by start; the root first if the root was recorded."""
    attributes: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Notes for the user about parts of this trajectory that were dropped, cut or torn."""
    profile: str = "{}"
    """Observations for findings, encoded (``insight.profile``); ``{}``: the trajectory was not examined."""
    settings: str = "{}"
    """Settings of the run that findings need, encoded (``insight.settings``)."""
    tokenizer: str | None = None
    """Path or name of the tokenizer that decoded the texts; None without texts."""
    late_spans: int = 0
    """Calls that began after the root had ended."""
    version: int = 1
    """Increases whenever more becomes known about a complete trajectory."""
    renderer: ClassVar[Callable[[Trajectory], str] | None] = None
    """Method that renders a trajectory as HTML; ``autotrace.cli.notebook`` sets the method."""

    @property
    def root(self) -> Span:
        return self.spans[0]

    @property
    def status(self) -> str:
        return self.root.status

    @cached
    def by_id(self) -> dict[str, Span]:
        """Return the spans by id; ``spans`` must not change after the first access."""
        return {span.span_id: span for span in self.spans}

    @cached
    def llm_spans(self) -> list[Span]:
        """Return the agent's own LLM calls in order; the engine's spans below these calls have the role ``engine``."""
        return own_calls(self.spans)

    @property
    def turns(self) -> int:
        """Return the number of the agent's LLM calls."""
        return len(self.llm_spans)

    def _repr_html_(self) -> str | None:
        """Return the HTML for a notebook; None: for plain text, ``autotrace.open`` was not used."""
        return None if self.renderer is None else self.renderer()


DEEPEST = 100
"""Maximum nesting of calls; programs stay far below, and every computation over a trajectory walks the tree."""
REPEATED = 32 << 20
"""Maximum tokens of whole prompts over all turns: a thousand turns that read 32,000 each."""
TOO_MANY = "some prompts have only the tokens that are new in them: whole, they would be too many"


class Allowance:
    """Count how many more tokens of a trajectory may be repeated."""

    def __init__(self, left: int = REPEATED) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Return whether ``count`` more tokens are allowed, and count the tokens if so."""
        if count > self._left:
            return False
        self._left -= count
        return True


def flattened(spans: Sequence[Span]) -> int:
    """Limit the nesting of ``spans`` (the root is the first) to ``DEEPEST``; break circles and replace missing parents.
    Moved calls hang from the call at that depth, or from the root. Returns the number of calls that were too deep."""
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
