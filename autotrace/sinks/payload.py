"""Show every backend the same view of a trajectory: messages, token usage, and long lists as text.

Three rules keep the data small and comparable. A token goes out once: with the LLM turn that read or wrote the token. A
turn shows its new text; the agent's call shows the whole text, or both ends of a long text. No long list of numbers is
sent: interfaces show such a list as noise, and one interface compares the list leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import msgspec

from autotrace.redact.images import without_images
from autotrace.spool.records import MEASURED
from autotrace.trajectory import model, span_text
from autotrace.trajectory.jsonable import MAX_DEPTH, Conversion, text, word
from autotrace.trajectory.model import ENDED_BY_PROGRAM, Span, Trajectory

TOKEN_ROLES = ("llm", "engine")
"""Roles of spans that are one request to the model; an engine span repeats the tokens of the LLM call above."""
LONG_LIST = 32
"""Limits a list of numbers; a longer list becomes text."""
WHOLE_TEXT = 16_384
"""Characters of a conversation that are shown once more in one piece, beside its turns. Longer conversations make most
of a run's bytes (20 turns at 700 tokens: 55,000); the turns alone have the whole text."""
HEAD, TAIL = 400, 1_000
"""Characters shown of the two ends of a longer text."""
MARKER = "…"
"""Key under which ``record.snapshot`` describes a value that was not copied, or the amount left out."""
NOT_MEASURED = {field.name: field.default for field in fields(Span) if field.name in MEASURED}
"""Maps each measured field to the value in a call without measurements."""
_DETAILS = frozenset({"dtype", "shape", "device", "first", "mode"})


def packed(numbers: Iterable[int]) -> str:
    """Pack integers as decimal text with blanks between, which ``unpacked`` reads and nothing takes for base64."""
    numbers = numbers if isinstance(numbers, list) else list(numbers)
    try:
        encoded = msgspec.json.encode(numbers)  # a tenth of what a text a number costs
    except (TypeError, ValueError, OverflowError):
        return " ".join(map(str, numbers))
    if encoded.translate(None, b"0123456789,-") != b"[]":
        return " ".join(map(str, numbers))
    return encoded[1:-1].replace(b",", b" ").decode()


def unpacked(words: str) -> list[int]:
    """Parse the text that ``packed`` returned."""
    return [int(word) for word in words.split()]


def packed_floats(numbers: Iterable[float]) -> str:
    """Pack log probabilities as text, six significant digits (the record has float32)."""
    values = tuple(numbers)
    return ("%.6g " * len(values))[:-1] % values


def runs(mask: Iterable[int]) -> str:
    """Pack a mask as run lengths: ``[1, 1, 1, 0, 0]`` is ``3x1 2x0``."""
    return " ".join(f"{sum(1 for _ in group)}x{value}" for value, group in groupby(mask))


class _Shown(Conversion):
    """Converts values to JSON that every backend can store and show.

    NaN and infinities become null (one stored NaN makes W&B's SQLite server fail on later queries), integers beyond 64
    bits text, long lists of numbers text, inline images type and size. Lone surrogates are replaced.
    """

    def __call__(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        kind = type(value)  # most values are of these three kinds
        if kind is str:
            return self.text(value)
        if kind is int:
            return self.integer(value)
        if kind is dict and depth > 0:
            return self.mapping(value, depth)
        return super().__call__(value, depth)

    def integer(self, value: int) -> Any:
        return value if -(1 << 63) <= value < 1 << 63 else str(value)

    def not_finite(self, value: float) -> Any:
        return None

    def text(self, value: str) -> str:
        return without_images(value if value.isascii() else text(value))

    def mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        if MARKER in value:
            return marked(value)
        return {
            key if type(key) is str and key.isascii() else text(str(key)): self(item, depth - 1)
            for key, item in value.items()
        }

    def sequence(self, value: Any, depth: int) -> Any:
        if len(value) > LONG_LIST and all(type(item) is int for item in value):
            return packed(value)
        if len(value) > LONG_LIST and all(type(item) in (int, float) for item in value):
            return packed_floats(value)
        return super().sequence(value, depth)


jsonable = _Shown()
"""Converts any value to JSON that every backend can store and show."""


def marked(value: Mapping[str, Any]) -> Any:
    """Describe ``record.snapshot``'s placeholder for a value that was not copied: ``tensor float32 [2, 3] on cuda:0``.

    A mapping that was only shortened keeps its members and a note.
    """
    rest = {name: item for name, item in value.items() if name != MARKER}
    if set(rest) - _DETAILS:
        return {**{text(str(name)): jsonable(item) for name, item in rest.items()}, MARKER: text(str(value[MARKER]))}
    words = [text(str(value[MARKER])), *(text(str(rest[name])) for name in ("dtype", "mode", "shape") if name in rest)]
    if rest.get("device") not in (None, "", "cpu"):
        words.append(f"on {text(str(rest['device']))}")
    if rest.get("first"):
        words.append("beginning " + ", ".join(text(str(number)) for number in rest["first"]))
    return " ".join(words)


@dataclass(frozen=True)
class TurnMessages:
    """Describes an LLM call as people read the call."""

    messages: list[dict[str, Any]]
    """Messages that were new to the model in this turn; empty without text."""
    reply: dict[str, Any] | None
    """Message of the assistant; None without text."""


def turn(span: Span) -> TurnMessages:
    """Return the messages of an LLM call: parsed from the prompt, else the decoded text under the role ``user``."""
    messages = [jsonable(message) for message in span.messages or []]
    reply: dict[str, Any] | None = None
    if messages and messages[-1].get("role") == "assistant":
        reply = messages.pop()
    new = span.new_prompt_text if span.new_prompt_text is not None else span.prompt_text
    if not messages and new is not None:
        messages = [{"role": "user", "content": jsonable(new)}]
    if reply is None and span.response_text is not None:
        reply = {"role": "assistant", "content": jsonable(span.response_text)}
    return TurnMessages(messages, reply)


def said(trajectory: Trajectory) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the last message of the user before the model's first answer, and the model's last answer, as messages;
    long texts are cut to both ends."""
    calls = trajectory.llm_spans
    asked = [message for span in calls[:1] for message in span.messages or [] if message.get("role") == "user"]
    answered = next((one for span in reversed(calls) if (one := span_text.answer(span))), None)
    if answered is None:
        words = next((words for span in reversed(calls) if (words := span_text.answered_words(span))), None)
        answered = {"role": "assistant", "content": words} if words else None
    return _short(asked[-1] if asked else None), _short(answered)


def _short(message: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if message is None:
        return None
    shown: dict[str, Any] = jsonable(message)
    content = shown.get("content")
    return {**shown, "content": _ends(content)} if isinstance(content, str) and len(content) > WHOLE_TEXT else shown


def usage(span: Span) -> tuple[int, int] | None:
    """Return ``(prompt tokens, completion tokens)`` of one LLM call, if either was recorded."""
    read, written = span.prompt_tokens, span.response_tokens
    if read is None and (prompt := span.prompt_ids) is not None:
        read = len(prompt)
    if written is None and (ids := span.packed_response) is not None:
        written = len(ids) // 4
    return None if read is None and written is None else (read or 0, written or 0)


def total_usage(trajectory: Trajectory) -> tuple[int, int] | None:
    """Sum the usage over the turns; a prompt that is repeated in every turn counts every time, as in the engine."""
    usages = [pair for span in trajectory.llm_spans if (pair := usage(span))]
    return (sum(pair[0] for pair in usages), sum(pair[1] for pair in usages)) if usages else None


def model_name(trajectory: Trajectory, span: Span | None = None) -> str:
    """Return the name of the model, or ``policy``: in training the weights have a version, not a name."""
    sources: list[Mapping[str, Any]] = [trajectory.attributes]
    if span is not None:
        sources = [span.attributes, span.inputs, *sources]
    for source in sources:
        for name in ("model", "model_name"):
            if isinstance(source.get(name), str) and source[name]:
                return text(source[name])
    return "policy"


def tokens(trajectory: Trajectory, span: Span) -> dict[str, str]:
    """Return the token fields to show with ``span``, as text: an LLM turn's, or the root's if no turn has tokens."""
    if span.role == "llm":
        return _tokens(span)
    turns_have = any(other.role == "llm" and other.packed_response is not None for other in trajectory.spans)
    if turns_have or span is not trajectory.root:
        return {}
    holder = next((other for other in trajectory.spans if other.packed_response is not None), None)
    return {} if holder is None else _tokens(holder)


def _tokens(span: Span) -> dict[str, str]:
    fields: dict[str, str] = {}
    if (new := span.new_prompt_ids) is not None:
        fields["new_prompt_ids"] = packed(new)
    elif (prompt := span.prompt_ids) is not None:
        fields["prompt_ids"] = packed(prompt)
    if (response := span.response_ids) is not None:
        fields["response_ids"] = packed(response)
    if (logprobs := span.logprobs) is not None:
        fields["response_logprobs"] = packed_floats(logprobs)
    return fields


def texts(trajectory: Trajectory, span: Span) -> dict[str, Any]:
    """Return ``prompt_text`` and ``response_text`` of a call that has the whole conversation, under veRL's names.

    ``response_parts`` splits the response into the model's and the tools' parts. A text of more than ``WHOLE_TEXT``
    characters that the turns already show is cut to both ends, with the number of characters between.
    """
    texts_of_span = {"prompt_text": span.prompt_text, "response_text": span.response_text}
    fields: dict[str, Any] = {name: jsonable(value) for name, value in texts_of_span.items() if value is not None}
    if sum(map(len, fields.values())) > WHOLE_TEXT and any(
        other.role == "llm" and other.response_text is not None for other in trajectory.spans
    ):
        return {name: _ends(value) for name, value in fields.items()}
    if span.response_parts:
        fields["response_parts"] = jsonable(span.response_parts)
    return fields


def _ends(value: str) -> str:
    left_out = len(value) - HEAD - TAIL
    if left_out <= 0:
        return value
    return f"{value[:HEAD]} {MARKER} {left_out:,} characters, all of them in the turns {MARKER} {value[-TAIL:]}"


def whole(trajectory: Trajectory) -> dict[str, Any]:
    """Return ``texts`` of the whole trajectory, and the ``response_mask``."""
    fields: dict[str, Any] = {}
    for span in trajectory.spans:
        if span.role in TOKEN_ROLES:
            continue
        fields = {**texts(trajectory, span), **fields}
        if span.response_mask is not None:
            fields.setdefault("response_mask", runs(span.response_mask))
    return fields


def measured(span: Span) -> dict[str, Any]:
    """Return the call's measured values, by the names of ``spool.records.MEASURED``.

    A field with the default of ``Span`` was not measured; a measured 0 differs from the default if the default is None.
    """
    return {name: value for name, default in NOT_MEASURED.items() if (value := getattr(span, name)) != default}


def failure(span: Span) -> str | None:
    """Explain in one line why ``span`` did not end well; None otherwise."""
    if span.error_text is not None:
        return text(span.error_text)
    if span.status in ("OK", "OPEN"):
        return None
    if span.attributes.get("outcome") == ENDED_BY_PROGRAM:
        return f"{span.status}: {ENDED_BY_PROGRAM} while the call was open"
    return {
        "CANCELLED": "CANCELLED: the call was cancelled",
        "TIMEOUT": "TIMEOUT: the call ran into a time limit",
        "INTERRUPTED": "INTERRUPTED: its process died while the call was open",
    }.get(span.status, span.status)


def end_of(trajectory: Trajectory, span: Span) -> int:
    """Return the end of ``span``; for an open span, the latest time in the trajectory (nanoseconds)."""
    if span.end_ns is not None:
        return span.end_ns
    return max([span.start_ns, *(other.end_ns or other.start_ns for other in trajectory.spans)])


def group_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the name of the GRPO group in a place with several runs; None: no prompt is known."""
    group, experiment = model.group_of(attributes), word(attributes.get("experiment_name"))
    return f"{experiment}/{group}" if experiment and group else group


def title(trajectory: Trajectory) -> str:
    """Return ``step 3 · sample 17 · rollout 2``, as far as recorded; else the root's name."""
    attributes = trajectory.attributes
    parts = [
        f"{label} {attributes[name]}"
        for label, name in (("step", "step"), ("sample", "sample_index"), ("rollout", "rollout_n"))
        if attributes.get(name) is not None
    ]
    if not parts:
        return text(trajectory.root.name)
    return text(" · ".join([*parts, "validation"] if attributes.get("validate") is True else parts))
