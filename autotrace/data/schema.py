"""The tables: every column with its type, what it means, and where its value comes from. The one place for all of it.

Names are veRL's where veRL has one, else those of rLLM, slime or the GenAI conventions. ``docs/data.md`` is made of
this: ``python -m autotrace.data.schema`` prints its tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from autotrace.data.rollout import CUT, Call, Known, Rollout, json, word
from autotrace.insight.profile import codes, decode
from autotrace.spool.records import MEASURED
from autotrace.trajectory.numbers import integer, number

VERSION = 1
"""Counts up when a column changes its meaning or goes; new columns need no new version."""


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    type: str
    """``string`` | ``json`` (text) | ``bool`` | ``int64`` | ``int32`` | ``int8`` | ``float64`` | ``float32`` |
    ``list<...>`` of one of them."""
    meaning: str
    of: Callable[[Any], Any]
    """Its value in a row; None: not known."""
    text: bool = False
    """Needs the tokens decoded."""


@dataclass(frozen=True)
class Table:
    """One table."""

    name: str
    row: str
    """What a row is."""
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column | None:
        """The column called ``name``."""
        return next((column for column in self.columns if column.name == name), None)


def _attribute(name: str, convert: Callable[[Any], Any]) -> Callable[[Rollout], Any]:
    return lambda rollout: convert(rollout.attributes.get(name))


def _fact(name: str, convert: Callable[[Any], Any]) -> Callable[[Rollout], Any]:
    return lambda rollout: convert(rollout.facts.get(name))


def _figure(name: str, convert: Callable[[Any], Any]) -> Callable[[Call], Any]:
    return lambda call: convert(call.figures.get(name))


def _duration(start_ns: int, end_ns: int | None) -> float | None:
    return None if end_ns is None else (end_ns - start_ns) / 1e9


def _ground_truth(rollout: Rollout) -> str | None:
    model = rollout.root.inputs.get("reward_model")
    return word(model.get("ground_truth")) if isinstance(model, dict) else None


def _generated(rollout: Rollout) -> int | None:
    counts = [count for call in rollout.turns if (count := call.span.response_tokens) is not None]
    return sum(counts) if counts else None


def _first_prompt(rollout: Rollout) -> int | None:
    return next((count for call in rollout.turns if (count := call.span.prompt_tokens) is not None), None)


def _finish_reason(call: Call) -> str | None:
    figures = call.figures
    return word(figures.get("finish_reason")) or word(figures.get("stop_reason"))


def _truncated(rollout: Rollout) -> bool | None:
    reasons = [reason for call in rollout.turns if (reason := _finish_reason(call)) is not None]
    return reasons[-1] in CUT if reasons else None


def _tool_name(call: Call) -> str | None:
    named = word(call.span.attributes.get("tool_name"))
    return named if named is not None or call.span.role != "tool" else call.span.shown_name


def _model(call: Call) -> str | None:
    inputs = call.span.inputs.get("model")
    return word(call.figures.get("model")) or (inputs if isinstance(inputs, str) else None)


def _error(position: int) -> Callable[[Call], str | None]:
    return lambda call: call.span.error[position] or None if call.span.error else None


def _mask(call: Call) -> list[int] | None:
    masks = call.rollout.masks
    return call.span.response_mask if masks is None else masks.get(call.span.span_id)


def _measured(name: str) -> Callable[[Call], int | None]:
    return lambda call: integer(getattr(call.span, name))


_RUN = (
    Column("run_id", "string", "the run", attrgetter("run_id")),
    Column("trace_id", "string", "the trajectory: its id in every backend and command", attrgetter("trace_id")),
    Column("step", "int64", "training step", attrgetter("step")),
    Column("uid", "string", "the prompt in this step: the rollouts of a group share it", attrgetter("uid")),
    Column("rollout_n", "int64", "number of the rollout in its group", attrgetter("rollout_n")),
    Column("validate", "bool", "whether it is of a validation", attrgetter("validate")),
)
_OF_ROLLOUT = tuple(
    Column(column.name, column.type, column.meaning, attrgetter(f"rollout.{column.name}")) for column in _RUN
)

TRAJECTORIES = Table("trajectories", "a trajectory", (
    *_RUN,
    Column("project_name", "string", "veRL's `trainer.project_name`", _attribute("project_name", word)),
    Column("experiment_name", "string", "veRL's `trainer.experiment_name`", _attribute("experiment_name", word)),
    Column("sample_index", "string", "the row of the data set, as text: it may be a uuid",
           _attribute("sample_index", word)),
    Column("data_source", "string", "the data set", _attribute("data_source", word)),
    Column("agent_name", "string", "the agent loop", _attribute("agent_name", word)),
    Column("group_id", "string", "what the rollouts of one prompt in one step share, also without a `uid`",
           attrgetter("group_id")),
    Column("attempt", "int64", "1, or 2 when the same rollout began once more", _attribute("attempt", integer)),
    Column("name", "string", "the function that is the trajectory", lambda one: one.root.name),
    Column("role", "string", "`trajectory`; `agent` or `span` where the list marks no trajectories",
           lambda one: one.root.role),
    Column("status", "string", "`OK`, `ERROR`, `TIMEOUT`, `CANCELLED`, `INTERRUPTED` or, while it runs, `OPEN`",
           lambda one: one.root.status),
    Column("error", "string", "type and message of what failed: the trajectory, else its first call that did; 500"
           " characters", lambda one: (one.failed.error_text or "")[:500] if one.failed else None),
    Column("reward", "float64", "the reward", _fact("reward", number)),
    Column("reward_extra_info", "json", "the parts of the reward, by the reward function's own names",
           _fact("reward_extra_info", json)),
    Column("advantage", "float64", "the advantage; the mean, where it differs over the tokens",
           _fact("advantage", number)),
    Column("mismatch_mean", "float64", "mean over the trained tokens of abs(trainer's log-probability - engine's)",
           _fact("mismatch_mean", number)),
    Column("mismatch_max", "float64", "the largest of them", _fact("mismatch_max", number)),
    Column("entropy", "float64", "mean entropy of the trained tokens, as the trainer computed it",
           _fact("entropy", number)),
    Column("token_facts", "json", "more of what the trainer computed: [token facts](#token-facts)",
           _fact("token_facts", json)),
    Column("trained_in_step", "int64", "the step whose update used it", _fact("trained_in_step", integer)),
    Column("trained_in_steps", "json", "all of them, where there are several", _fact("trained_in_steps", json)),
    Column("dropped", "string", "why the trainer left it out", _fact("dropped", word)),
    Column("num_turns", "int64", "turns as the agent loop counts them (veRL: messages)", _fact("num_turns", integer)),
    Column("llm_calls", "int64", "rows in `turns`", lambda one: len(one.turns)),
    Column("tool_calls", "int64", "calls of tools", attrgetter("tool_calls")),
    Column("spans", "int64", "rows in `spans`", lambda one: len(one.spans)),
    Column("prompt_tokens", "int64", "tokens of the first prompt", _first_prompt),
    Column("response_tokens", "int64", "tokens generated over all turns", _generated),
    Column("finish_reasons", "list<string>", "why each turn ended: `stop`, `length`, ...",
           lambda one: [_finish_reason(call) for call in one.turns]),
    Column("truncated", "bool", "the last response was cut at a limit of tokens", _truncated),
    Column("min_global_steps", "int64", "the oldest weights that answered",
           lambda one: min(one.weight_versions) if one.weight_versions
           else integer(one.attributes.get("min_global_steps"))),
    Column("max_global_steps", "int64", "the newest weights that answered",
           lambda one: max(one.weight_versions) if one.weight_versions
           else integer(one.attributes.get("max_global_steps"))),
    Column("start_ns", "int64", "start, ns since 1970 (UTC)", lambda one: one.root.start_ns),
    Column("end_ns", "int64", "end, ns since 1970 (UTC)", lambda one: one.root.end_ns),
    Column("duration_s", "float64", "s from start to end", lambda one: _duration(one.root.start_ns, one.root.end_ns)),
    Column("queue_s", "float64", "s in which its requests waited in the engine", attrgetter("times.queue_s")),
    Column("prefill_s", "float64", "s of prefill", attrgetter("times.prefill_s")),
    Column("decode_s", "float64", "s of decoding", attrgetter("times.decode_s")),
    Column("way_s", "float64", "s of LLM calls beside the engine's part: router, Ray, HTTP", attrgetter("times.way_s")),
    Column("llm_s", "float64", "s of LLM calls of which no engine reported anything", attrgetter("times.llm_s")),
    Column("tool_s", "float64", "s in tools and environments", attrgetter("times.tool_s")),
    Column("reward_s", "float64", "s in the reward function", attrgetter("times.reward_s")),
    Column("other_s", "float64", "s in none of these", attrgetter("times.other_s")),
    Column("ground_truth", "string", "the answer that the reward function was given", _ground_truth),
    Column("response_mask", "list<int8>", "1 for a token of the model, 0 for one of a tool, over the whole response,"
           " where the turns are no pieces of it",
           lambda one: one.answer.response_mask if one.answer and one.masks is None else None),
    Column("prompt_ids", "list<int32>", "token ids of the prompt, where no turn has any",
           lambda one: one.untold.prompt_ids if one.untold else None),
    Column("response_ids", "list<int32>", "token ids of the whole response, where no turn has any",
           lambda one: one.untold.response_ids if one.untold else None),
    Column("prompt_text", "string", "the prompt, where no turn has text",
           lambda one: one.untold.prompt_text if one.untold else None, text=True),
    Column("response_text", "string", "the whole response, where no turn has text",
           lambda one: one.untold.response_text if one.untold else None, text=True),
    Column("tokenizer", "string", "what decoded the texts", lambda one: one.trajectory.tokenizer, text=True),
    Column("findings", "list<string>", "[findings](findings.md) of it: `AT-RETOKENIZED`, ...",
           lambda one: codes(decode(one.trajectory.profile))),
    Column("settings", "json", "what is known of the run's configuration and `autotrace diagnose` needs",
           lambda one: None if one.trajectory.settings == "{}" else one.trajectory.settings),
    Column("profile", "json", "what `autotrace diagnose` reads of it, in a form of its own",
           lambda one: None if one.trajectory.profile == "{}" else one.trajectory.profile),
    Column("notes", "list<string>", "what was dropped, cut or torn, in words", lambda one: one.trajectory.notes),
    Column("attributes", "json", "everything that was reported about it at its start",
           lambda one: json(one.attributes)),
))  # fmt: skip

TURNS = Table("turns", "an LLM call of the agent", (
    *_OF_ROLLOUT,
    Column("turn", "int64", "1, 2, ... in the trajectory", attrgetter("turn")),
    Column("span_id", "string", "its row in `spans`", attrgetter("span.span_id")),
    Column("name", "string", "the function that was called", attrgetter("span.name")),
    Column("status", "string", "as in `spans`", attrgetter("span.status")),
    Column("error", "string", "type and message of what failed", attrgetter("span.error_text")),
    Column("prompt_tokens", "int64", "tokens of the whole prompt", attrgetter("span.prompt_tokens")),
    Column("response_tokens", "int64", "tokens generated", attrgetter("span.response_tokens")),
    Column("cached_tokens", "int64", "prompt tokens that the engine found in its prefix cache",
           _figure("cached_tokens", integer)),
    Column("new_prompt_ids", "list<int32>", "token ids that this prompt adds to the trajectory",
           attrgetter("span.new_prompt_ids")),
    Column("prompt_base", "string", "the `span_id` with whose prompt and response this prompt begins",
           attrgetter("span.prompt_base")),
    Column("prompt_keep", "int64", "how many tokens of them; then come `new_prompt_ids`",
           attrgetter("span.prompt_keep")),
    Column("response_ids", "list<int32>", "token ids of the response", attrgetter("span.response_ids")),
    Column("rollout_log_probs", "list<float32>", "log-probability of each token of the response",
           attrgetter("span.logprobs")),
    Column("response_mask", "list<int8>", "1 for a token that the trainer learns from; shorter than the response"
           " where the trainer cut it", _mask),
    Column("prompt_text", "string", "the new part of the prompt, as text",
           lambda call: call.span.new_prompt_text if call.span.new_prompt_text is not None else call.span.prompt_text,
           text=True),
    Column("response_text", "string", "the response, as text", attrgetter("span.response_text"), text=True),
    Column("messages", "json", "the messages of this turn, where they are known",
           lambda call: json(call.span.messages), text=True),
    Column("finish_reason", "string", "why the response ended: `stop`, `length`, ...", _finish_reason),
    Column("weight_version", "int64", "the weights that answered (veRL: the step)",
           _figure("weight_version", integer)),
    Column("weight_versions", "json", "which weights made which tokens, where the engine says so",
           _figure("weight_versions", json)),
    Column("model", "string", "name of the model", _model),
    Column("request_id", "string", "the request's id in the engine", _figure("request_id", word)),
    Column("start_ns", "int64", "start, ns since 1970 (UTC)", attrgetter("span.start_ns")),
    Column("end_ns", "int64", "end, ns since 1970 (UTC)", attrgetter("span.end_ns")),
    Column("duration_s", "float64", "s from start to end",
           lambda call: _duration(call.span.start_ns, call.span.end_ns)),
    Column("ttft_s", "float64", "s to the first token", _figure("ttft_s", number)),
    Column("dispatch_s", "float64", "s until the scheduler had the request", _figure("dispatch_s", number)),
    Column("queue_s", "float64", "s in the scheduler's queue", _figure("queue_s", number)),
    Column("prefill_s", "float64", "s of prefill", _figure("prefill_s", number)),
    Column("decode_s", "float64", "s from the first token to the last", _figure("decode_s", number)),
    Column("preemptions", "int64", "how often it was removed from the batch",
           lambda call: integer(call.figures.get("preemptions", call.figures.get("num_preempted")))),
    Column("preempted_s", "float64", "s of `decode_s` in which it waited to be resumed",
           _figure("preempted_s", number)),
    Column("itl_mean_ms", "float64", "mean ms between two outputs", _figure("itl_mean_ms", number)),
    Column("itl_max_ms", "float64", "longest ms between two outputs", _figure("itl_max_ms", number)),
    Column("host", "string", "the machine that made the call", attrgetter("span.host")),
))  # fmt: skip

SPANS = Table("spans", "a call: of the agent, a model, a tool, an engine, the reward, the trainer", (
    *_OF_ROLLOUT,
    Column("span_id", "string", "its id in every backend", attrgetter("span.span_id")),
    Column("parent_id", "string", "the call that made it", attrgetter("span.parent_id")),
    Column("name", "string", "the function that was called", attrgetter("span.name")),
    Column("role", "string", "`trajectory`, `agent`, `llm`, `tool`, `parser`, `env`, `reward`, `engine`, `trainer`"
           " or `span`", attrgetter("span.role")),
    Column("key", "string", "the entry of the list that names it", attrgetter("span.key")),
    Column("tool_name", "string", "the tool", _tool_name),
    Column("status", "string", "`OK`, `ERROR`, `TIMEOUT`, `CANCELLED`, `INTERRUPTED` or, while it runs, `OPEN`",
           attrgetter("span.status")),
    Column("error_type", "string", "type of the exception", _error(0)),
    Column("error_message", "string", "its message", _error(1)),
    Column("error_stack", "string", "where it was raised", _error(2)),
    Column("start_ns", "int64", "start, ns since 1970 (UTC)", attrgetter("span.start_ns")),
    Column("end_ns", "int64", "end, ns since 1970 (UTC)", attrgetter("span.end_ns")),
    Column("duration_s", "float64", "s from start to end",
           lambda call: _duration(call.span.start_ns, call.span.end_ns)),
    Column("first_item_ns", "int64", "when a stream yielded its first item", attrgetter("span.first_item_ns")),
    *(Column(name, "int64", f"measured: {name.replace('_', ' ')}", _measured(name)) for name in MEASURED),
    Column("inputs", "json", "the recorded arguments", lambda call: json(call.span.inputs)),
    Column("output", "json", "what it returned", lambda call: json(call.span.output)),
    Column("attributes", "json", "what the list asks to be recorded, and what adapters add",
           lambda call: json(call.span.attributes)),
    Column("host", "string", "the machine", attrgetter("span.host")),
    Column("pid", "int64", "the process", attrgetter("span.pid")),
))  # fmt: skip

FACTS = Table("facts", "something that became known about a trajectory later", (
    *_OF_ROLLOUT,
    Column("name", "string", "`reward`, `advantage`, `trained_in_step`, ...; `reward.1` is of a second output",
           attrgetter("name")),
    Column("number", "float64", "the value, if it is a number", lambda known: number(known.value)),
    Column("value", "json", "the value", lambda known: json(known.value)),
))  # fmt: skip

TOKENS = Table("tokens", "an LLM call for whose tokens the trainer's values were recorded, of some trajectories", (
    *_OF_ROLLOUT,
    Column("turn", "int64", "its row in `turns`; empty: the whole response of an agent whose calls are no pieces of it",
           lambda call: call.turn or None),
    Column("span_id", "string", "its row in `spans`", attrgetter("span.span_id")),
    Column("old_log_probs", "list<float32>", "log-probability of each token of the response as the trainer computed it"
           " before its update; like all of these it may be shorter than the response, where the trainer cut it",
           attrgetter("span.old_logprobs")),
    Column("rollout_log_probs", "list<float32>", "as the trainer got it from the engine",
           attrgetter("span.trained_logprobs")),
    Column("entropy", "list<float32>", "entropy of the trainer's distribution", attrgetter("span.entropy")),
    Column("ref_log_prob", "list<float32>", "of the reference model", attrgetter("span.ref_logprobs")),
    Column("rollout_is_weights", "list<float32>", "importance weights", attrgetter("span.is_weights")),
    Column("advantages", "list<float32>", "where they differ over the tokens", attrgetter("span.advantages")),
    Column("loss_mask", "list<int8>", "1 where the trainer takes the loss", attrgetter("span.loss_mask")),
))  # fmt: skip

TABLES: dict[str, Table] = {table.name: table for table in (TRAJECTORIES, TURNS, SPANS, FACTS, TOKENS)}


def rows(table: Table, rollouts: list[Rollout]) -> list[Rollout] | list[Call] | list[Known]:
    """What ``Column.of`` is asked for each row of ``table``."""
    if table is TRAJECTORIES:
        return [rollout for rollout in rollouts if rollout.is_trajectory]
    if table is TURNS:
        return [call for rollout in rollouts for call in rollout.turns]
    if table is SPANS:
        return [call for rollout in rollouts for call in rollout.spans]
    if table is TOKENS:
        return [call for rollout in rollouts for call in rollout.computed]
    return [known for rollout in rollouts for known in rollout.known()]


def markdown() -> str:
    """The tables as they stand in ``docs/data.md``."""
    parts = []
    for table in TABLES.values():
        lines = [
            f"### `{table.name}`",
            "",
            f"A row is {table.row}.",
            "",
            "| column | type | what it is |",
            "|---|---|---|",
        ]
        lines += [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in table.columns]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
