"""Describe the table ``trajectories``."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from autotrace.insight.profile import codes, has_tool_error, is_truncated, traits
from autotrace.tables.columns import IDENTITY, Column, Table, duration
from autotrace.tables.rollout import Rollout, exact, json
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.jsonable import integer, number, word
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.span_text import prompt_line


def _attribute(name: str, convert: Callable[[Any], Any]) -> Callable[[Rollout], Any]:
    return lambda rollout: convert(rollout.attributes.get(name))


_FACTS: dict[str, Callable[[Any], Any]] = {
    "float64": number, "int64": integer, "json": json, "string": word,
    "bool": lambda value: value if isinstance(value, bool) else None,
}  # fmt: skip


def _fact(name: str, kind: str, meaning: str, *, head: str = "", tag: bool = False) -> Column:
    """Return a column that shows the fact of the same name."""
    convert = _FACTS[kind]
    return Column(
        name, kind, meaning, lambda rollout: convert(rollout.facts.get(name)), head=head, tag=tag, fact=convert
    )


def _ground_truth(rollout: Rollout) -> str | None:
    model = rollout.root.inputs.get("reward_model")
    return word(model.get("ground_truth")) if isinstance(model, dict) else None


def _generated(rollout: Rollout) -> int | None:
    counts = [count for span in rollout.trajectory.llm_spans if (count := span.response_tokens) is not None]
    return sum(counts) if counts else None


def _first_prompt(rollout: Rollout) -> int | None:
    return next((span.prompt_tokens for span in rollout.trajectory.llm_spans if span.prompt_tokens is not None), None)


TRAJECTORIES = Table("trajectories", "a trajectory", (
    *IDENTITY,
    Column("project_name", "string", "veRL's `trainer.project_name`", _attribute("project_name", word), tag=True),
    Column("experiment_name", "string", "veRL's `trainer.experiment_name`",
           _attribute("experiment_name", word), tag=True),
    Column("sample_index", "string", "the row of the data set, as text (maybe a uuid)",
           _attribute("sample_index", word), tag=True),
    Column("data_source", "string", "the data set", _attribute("data_source", word), tag=True),
    Column("agent_name", "string", "the agent loop", _attribute("agent_name", word), tag=True),
    Column("group_id", "string", "the group of the rollout: same prompt, same step; also without a `uid`",
           attrgetter("group_id")),
    Column("attempt", "int64", "1, or 2 for a second attempt of the same rollout",
           _attribute("attempt", integer), tag=True),
    Column("name", "string", "the function that is the trajectory", lambda one: one.root.name),
    Column("role", "string", "of the root call: `trajectory`; `agent` or `span` where the spec marks no trajectories",
           lambda one: one.root.role, tag=True),
    Column("is_trajectory", "bool", "`role` is `trajectory`, `agent` or `span`; false: trainer step, engine request",
           attrgetter("is_trajectory")),
    Column("status", "string", "`OK`, `ERROR`, `TIMEOUT`, `CANCELLED`, `INTERRUPTED` or, until the end, `OPEN`",
           lambda one: one.root.status, tag=True),
    Column("error", "string", "type and message of the error: the trajectory's, else the first failed call's; 500"
           " characters", lambda one: (one.failed.error_text or "")[:500] if one.failed else None),
    _fact("reward", "float64", "the reward"),
    _fact("reward_extra_info", "json", "the parts of the reward, by the reward function's own names"),
    _fact("advantage", "float64", "the advantage; the mean if tokens differ"),
    _fact("mismatch_mean", "float64", "mean over the trained tokens of abs(trainer's log-probability - engine's)"),
    _fact("mismatch_max", "float64", "maximum over the trained tokens of the same difference"),
    _fact("entropy", "float64", "mean entropy of the trained tokens, from the trainer"),
    _fact("token_facts", "json", "more values of the trainer: [token facts](#token-facts)"),
    _fact("trained_in_step", "int64", "the step whose update used the trajectory"),
    _fact("trained_in_steps", "json", "all steps whose updates used the trajectory, if several"),
    _fact("dropped", "string", "reason why the trainer left the trajectory out"),
    _fact("label", "string", "label given with `autotrace label`", head="label"),
    _fact("label_why", "string", "the reason for the label"),
    _fact("num_turns", "int64", "turns in the agent loop's count (veRL: messages)"),
    Column("llm_calls", "int64", "rows in `turns`", lambda one: one.trajectory.turns),
    Column("chains", "int64", "rows in `chains`; empty: the trajectory does not branch",
           lambda one: len(chains) if len(chains := tree_of(one.trajectory).chains) > 1 else None, head="chains"),
    Column("tool_calls", "int64", "calls of tools", attrgetter("tool_calls")),
    Column("spans", "int64", "rows in `spans`", lambda one: len(one.trajectory.spans)),
    Column("late_spans", "int64", "calls that began after the end", lambda one: one.trajectory.late_spans),
    Column("prompt_tokens", "int64", "tokens of the first prompt", _first_prompt),
    Column("response_tokens", "int64", "tokens generated over all turns", _generated),
    Column("finish_reasons", "list<string>", "why each turn ended: `stop`, `length`, ...",
           attrgetter("finish_reasons")),
    Column("truncated", "bool", "an answer was cut at a token limit, according to findings",
           lambda one: is_truncated(one.profile)),
    Column("tool_error", "bool", "a tool failed, according to findings", lambda one: has_tool_error(one.profile)),
    Column("min_global_steps", "int64", "the oldest weights that answered",
           lambda one: min(one.weight_versions) if one.weight_versions
           else integer(one.attributes.get("min_global_steps"))),
    Column("max_global_steps", "int64", "the newest weights that answered",
           lambda one: max(one.weight_versions) if one.weight_versions
           else integer(one.attributes.get("max_global_steps"))),
    Column("start_ns", "int64", "start, ns since 1970 (UTC)", lambda one: one.root.start_ns),
    Column("end_ns", "int64", "end, ns since 1970 (UTC)", lambda one: one.root.end_ns),
    Column("duration_s", "float64", "s from start to end", lambda one: duration(one.root.start_ns, one.root.end_ns)),
    Column("queue_s", "float64", "s of requests waiting in the engine", attrgetter("times.queue_s")),
    Column("prefill_s", "float64", "s of prefill", attrgetter("times.prefill_s")),
    Column("decode_s", "float64", "s of decoding", attrgetter("times.decode_s")),
    Column("way_s", "float64", "s of LLM calls beside the engine's part: router, Ray, HTTP", attrgetter("times.way_s")),
    Column("llm_s", "float64", "s of LLM calls without a report from an engine", attrgetter("times.llm_s")),
    Column("tool_s", "float64", "s in tools and environments", attrgetter("times.tool_s")),
    Column("reward_s", "float64", "s in the reward function", attrgetter("times.reward_s")),
    Column("other_s", "float64", "s outside all of the above", attrgetter("times.other_s")),
    Column("ground_truth", "string", "the answer that the reward function was given", _ground_truth),
    Column("response_mask", "list<int8>", "over the whole response, 1: token of the model, 0: token of a tool; only if"
           " the turns do not add up to the response",
           lambda one: one.answer.response_mask if one.answer and one.masks is None else None),
    Column("prompt_ids", "list<int32>", "token ids of the prompt, if no turn has token ids",
           lambda one: one.untold.prompt_ids if one.untold else None),
    Column("response_ids", "list<int32>", "token ids of the whole response, if no turn has token ids",
           lambda one: one.untold.response_ids if one.untold else None),
    Column("prompt_text", "string", "the prompt, if no turn has text",
           lambda one: one.untold.prompt_text if one.untold else None, text=True),
    Column("response_text", "string", "the whole response, if no turn has text",
           lambda one: one.untold.response_text if one.untold else None, text=True),
    Column("prompt", "string", "the first line of the user's message, at most 200 characters",
           lambda one: prompt_line(one.trajectory), text=True),
    Column("tokenizer", "string", "the tokenizer that decoded the texts",
           lambda one: one.trajectory.tokenizer, text=True),
    Column("findings", "list<string>", "[findings](findings.md): `AT-RETOKENIZED`, ...",
           lambda one: codes(one.profile), tag=True),
    Column("traits", "list<string>", "traits that `autotrace why` compares", lambda one: traits(one.profile)),
    Column("settings", "json", "the run's configuration, as far as `autotrace diagnose` needs settings",
           lambda one: None if one.trajectory.settings == "{}" else one.trajectory.settings),
    Column("profile", "json", "input of `autotrace diagnose`, in an internal form",
           lambda one: None if one.trajectory.profile == "{}" else one.trajectory.profile),
    Column("notes", "list<string>", "dropped, cut or torn parts, in words", lambda one: one.trajectory.notes),
    Column("attributes", "json", "all attributes reported at the start",
           lambda one: exact(one.attributes)),
), lambda one: (one,))  # fmt: skip
HEADED = tuple(column for column in TRAJECTORIES.columns if column.head)
"""Columns that ``autotrace ls`` shows as stored."""


def tags(trajectory: Trajectory) -> dict[str, Any]:
    """Return the known values of the columns that are tags."""
    rollout = Rollout(trajectory)
    values = {column.name: column.of(rollout) for column in TRAJECTORIES.columns if column.tag}
    return {name: value for name, value in values.items() if value is not None and value != []}
