"""Describe the tables whose rows are calls: ``turns``, ``spans`` and ``tokens``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

from autotrace.spool.records import MEASURED
from autotrace.tables.columns import OF_ROLLOUT, Column, Table, duration, of_span
from autotrace.tables.rollout import Call, exact, json
from autotrace.trajectory.deferred import Continued
from autotrace.trajectory.durations import finish_reason
from autotrace.trajectory.jsonable import integer, number, word
from autotrace.trajectory.model import error_text
from autotrace.trajectory.span_text import answered_words, asked_words
from autotrace.trajectory.tool_calls import tool_name


def _figure(name: str, kind: str, meaning: str, convert: Callable[[Any], Any]) -> Column:
    return Column(
        name, kind, meaning, lambda call: None if (value := call.figures.get(name)) is None else convert(value)
    )


TRAINED = {
    "old_log_probs": "old_logprobs", "rollout_log_probs": "trained_logprobs", "entropy": "entropy",
    "ref_log_prob": "ref_logprobs", "rollout_is_weights": "is_weights", "advantages": "advantages",
    "loss_mask": "loss_mask",
}  # fmt: skip
"""Column of values that the trainer computed for tokens (the trainer's name) -> field of ``Span``."""


def _trained(name: str, kind: str, meaning: str) -> Column:
    return of_span(name, kind, meaning, TRAINED[name])


def _tool_name(call: Call) -> str | None:
    span = call.span
    return span.title or tool_name(span) if span.role == "tool" else word(span.attributes.get("tool_name"))


def _duration(call: Call) -> float | None:
    span = call.span
    return duration(span.start_ns, span.end_ns)


def _model(call: Call) -> str | None:
    inputs = call.span.inputs.get("model")
    return word(call.figures.get("model")) or (inputs if isinstance(inputs, str) else None)


def _mask(call: Call) -> list[int] | None:
    own, masks = call.span.response_mask, call.rollout.masks
    return masks.get(call.span.span_id) if own is None and masks is not None else own


def _mask_of(call: Call) -> str | None:
    whole, masks = call.rollout.answer, call.rollout.masks
    derived = call.span.response_mask is None and masks is not None and call.span.span_id in masks
    return whole.span_id if derived and whole is not None else None


def _is_whole(call: Call) -> bool:
    return not call.turn and not _has_words(call) and bool(call.rollout.turns)


def _joined_ids(call: Call) -> int | None:
    ids = call.span.packed_response if _is_whole(call) else None
    return len(ids) // 4 if ids and call.rollout.joined_ids.startswith(ids) else None


def _joined_text(call: Call) -> int | None:
    text = call.span.response_text if _is_whole(call) else None
    return len(text) if text and call.rollout.joined_text.startswith(text) else None


def _prompt_of(call: Call) -> str | None:
    """Return the span id of the first turn if a call with the whole conversation has the prompt of the first turn."""
    text = call.span.prompt_text if _is_whole(call) else None
    first = call.rollout.turns[0].span if text is not None else None
    return None if first is None or first.prompt_text != text else first.span_id


def _own_response(name: str) -> Callable[[Call], Any]:
    return lambda call: None if _joined_ids(call) is not None else getattr(call.span, name)


def _prompt_ids(call: Call) -> list[int] | None:
    return None if call.span.span_id in call.rollout.followed else call.span.prompt_ids


def _text_base(call: Call) -> str | None:
    prompt = vars(call.span).get("_prompt_text")
    return (prompt.base or "") if isinstance(prompt, Continued) and call.span.new_prompt_text is not None else None


def _prompt_text(call: Call) -> str | None:
    return None if _text_base(call) is not None or _prompt_of(call) is not None else call.span.prompt_text


def _asked(call: Call) -> str | None:
    span = call.span
    if span.new_prompt_text is not None or not _has_words(call):
        return span.new_prompt_text
    return asked_words(span)


def _answered(call: Call) -> str | None:
    span = call.span
    if span.response_text is not None or not _has_words(call):
        return None if _joined_text(call) is not None else span.response_text
    return answered_words(span)


def _has_words(call: Call) -> bool:
    """Return whether recorded messages may be shown as the text of the call."""
    return call.span.role in ("llm", "engine")


def _parts(call: Call) -> str | None:
    """Return the lengths of the parts where the parts add up to the response text; else the parts themselves."""
    parts, text = call.span.response_parts, call.span.response_text
    words = [*chain.from_iterable(map(dict.items, parts or ()))]
    if parts is None or len(words) != len(parts) or "".join(part for _, part in words) != text:
        return exact(parts)
    return exact([[kind, len(part)] for kind, part in words])


TURNS = Table("turns", "an LLM call of the agent", (
    *OF_ROLLOUT,
    Column("turn", "int64", "1, 2, ... in the trajectory", lambda call: call.turn or None),
    Column("chain", "int64", "the row in `chains`: 0, or a branch", attrgetter("chain")),
    Column("own", "bool", "the agent made the call; false: a call by an engine, a judge or a tool, or the call that"
           " has the whole conversation", lambda call: bool(call.turn)),
    of_span("span_id", "string", "the row in `spans`"),
    of_span("name", "string", "the function that was called"),
    of_span("status", "string", "as in `spans`"),
    of_span("error", "string", "type and message of the error", made=error_text),
    of_span("prompt_tokens", "int64", "tokens of the whole prompt"),
    of_span("response_tokens", "int64", "tokens generated"),
    _figure("cached_tokens", "int64", "prompt tokens that the engine found in its prefix cache", integer),
    Column("new_prompt_ids", "list<int32>", "token ids that this prompt adds to the trajectory",
           attrgetter("span.new_prompt_ids"), packed=attrgetter("span.packed_prompt")),
    of_span("prompt_base", "string", "the `span_id` with whose prompt and response this prompt begins"),
    of_span("prompt_keep", "int64", "number of tokens taken from `prompt_base`; `new_prompt_ids` follow"),
    Column("prompt_ids", "list<int32>", "the whole prompt, unless `prompt_base`, `prompt_keep` and"
           " `new_prompt_ids` give the prompt", _prompt_ids),
    Column("prompt_known", "bool", "the token ids of the whole prompt are known",
           lambda call: vars(call.span).get("_prompt_ids") is not None),
    Column("response_ids", "list<int32>", "token ids of the response", _own_response("response_ids"),
           packed=_own_response("packed_response")),
    Column("joined_ids", "int64", "only for the call with the whole conversation: number of tokens that the response"
           " takes from the joined turns (first response, then later prompts and responses); `response_ids` is empty",
           _joined_ids),
    Column("rollout_log_probs", "list<float32>", "log-probability of each token of the response",
           attrgetter("span.logprobs"), packed=attrgetter("span.packed_logprobs")),
    Column("response_mask", "list<int8>", "1 for a token that the trainer learns from; shorter than a response"
           " that the trainer cut", _mask),
    Column("mask_of", "string", "the call whose recorded `response_mask` contains this mask",
           _mask_of),
    Column("prompt_text", "string", "the new part of the prompt as text: decoded, else as recorded",
           _asked, text=True),
    Column("prompt_decoded", "bool", "`prompt_text` was decoded from `new_prompt_ids`",
           lambda call: call.span.new_prompt_text is not None, text=True),
    Column("response_text", "string", "the response as text: decoded, else as recorded",
           _answered, text=True),
    Column("response_decoded", "bool", "`response_text` was decoded from token ids",
           lambda call: call.span.response_text is not None, text=True),
    of_span("messages", "json", "the messages of this turn, if known", made=exact, text=True),
    Column("text_base", "string", "the call (`span_id`) whose prompt and answer precede `prompt_text` in the whole"
           " prompt; empty text: `prompt_text` is the whole prompt", _text_base, text=True),
    Column("whole_prompt_text", "string", "the whole prompt as text, if `text_base` and `prompt_of` are null",
           _prompt_text, text=True),
    Column("prompt_of", "string", "the call with the same whole prompt, as text", _prompt_of, text=True),
    Column("joined_text", "int64", "as `joined_ids`, in characters", _joined_text, text=True),
    Column("response_parts", "json", "the response of the whole conversation, divided into the model's parts and the"
           " tools', or the lengths of the parts in characters", _parts, text=True),
    Column("finish_reason", "string", "why the response ended: `stop`, `length`, ...",
           lambda call: finish_reason(call.figures)),
    _figure("weight_version", "int64", "the weights that answered (veRL: the step)", integer),
    _figure("weight_versions", "json", "which weights made which tokens, if the engine reports weights", json),
    Column("model", "string", "name of the model", _model),
    _figure("request_id", "string", "the request's id in the engine", word),
    of_span("start_ns", "int64", "start, ns since 1970 (UTC)"),
    of_span("end_ns", "int64", "end, ns since 1970 (UTC)"),
    Column("duration_s", "float64", "s from start to end", _duration),
    _figure("ttft_s", "float64", "s to the first token", number),
    _figure("dispatch_s", "float64", "s until the scheduler had the request", number),
    _figure("queue_s", "float64", "s in the scheduler's queue", number),
    _figure("prefill_s", "float64", "s of prefill", number),
    _figure("decode_s", "float64", "s from the first token to the last", number),
    Column("preemptions", "int64", "how often the scheduler removed the request from the batch",
           lambda call: integer(call.figures.get("preemptions", call.figures.get("num_preempted")))),
    _figure("preempted_s", "float64", "s of `decode_s` spent waiting to be resumed", number),
    _figure("itl_mean_ms", "float64", "mean ms between two outputs", number),
    _figure("itl_max_ms", "float64", "longest ms between two outputs", number),
    of_span("host", "string", "the machine that made the call"),
), attrgetter("worded"))  # fmt: skip

SPANS = Table("spans", "a call: of the agent, a model, a tool, an engine, the reward, the trainer", (
    *OF_ROLLOUT,
    of_span("span_id", "string", "id of the call in every backend"),
    Column("position", "int64", "0: the root call; other calls by start", attrgetter("position")),
    of_span("parent_id", "string", "the calling call"),
    of_span("name", "string", "the function that was called"),
    of_span("title", "string", "a readable name, if different: `turn 2`, the tool"),
    of_span("role", "string", "`trajectory`, `agent`, `llm`, `tool`, `parser`, `env`, `reward`, `engine`, `trainer`"
           " or `span`"),
    of_span("key", "string", "the entry of the spec that names the function"),
    Column("tool_name", "string", "the tool", _tool_name),
    of_span("status", "string", "`OK`, `ERROR`, `TIMEOUT`, `CANCELLED`, `INTERRUPTED` or, until the end, `OPEN`"),
    of_span("error_type", "string", "type of the exception", "error", itemgetter(0)),
    of_span("error_message", "string", "message of the exception", "error", lambda error: error[1] or None),
    of_span("error_stack", "string", "where the exception was raised", "error", lambda error: error[2] or None),
    of_span("start_ns", "int64", "start, ns since 1970 (UTC)"),
    of_span("end_ns", "int64", "end, ns since 1970 (UTC)"),
    Column("duration_s", "float64", "s from start to end", _duration),
    of_span("first_item_ns", "int64", "when a stream yielded its first item"),
    *(of_span(name, "int64", f"measured: {name.replace('_', ' ')}") for name in MEASURED),
    of_span("prompt_tokens", "int64", "of a request to a model: tokens of the whole prompt"),
    of_span("response_tokens", "int64", "tokens generated"),
    of_span("inputs", "json", "the recorded arguments", made=json),
    of_span("output", "json", "the returned value", made=exact),
    of_span("attributes", "json", "values named in the spec, and values added by adapters", made=json),
    of_span("host", "string", "the machine"),
    of_span("pid", "int64", "the process"),
), attrgetter("spans"))  # fmt: skip

TOKENS = Table("tokens", "an LLM call with values of the trainer for each token; not every trajectory has rows", (
    *OF_ROLLOUT,
    Column("turn", "int64", "the row in `turns`; empty: the whole response, if the calls do not add up",
           lambda call: call.turn or None),
    of_span("span_id", "string", "the row in `spans`"),
    _trained("old_log_probs", "list<float32>", "log-probability of each token of the response, computed by the trainer"
             " before the update; like all lists here, shorter if the trainer cut the response"),
    _trained("rollout_log_probs", "list<float32>", "log-probability from the engine, as received by the trainer"),
    _trained("entropy", "list<float32>", "entropy of the trainer's distribution"),
    _trained("ref_log_prob", "list<float32>", "log-probability from the reference model"),
    _trained("rollout_is_weights", "list<float32>", "importance weights"),
    _trained("advantages", "list<float32>", "only if tokens differ"),
    _trained("loss_mask", "list<int8>", "1 for a token in the loss"),
), attrgetter("computed"))  # fmt: skip
