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
    Column("sample_index", "string", "the row of the data set, as text: it may be a uuid",
           _attribute("sample_index", word), tag=True),
    Column("data_source", "string", "the data set", _attribute("data_source", word), tag=True),
    Column("agent_name", "string", "the agent loop", _attribute("agent_name", word), tag=True),
    Column("group_id", "string", "what the rollouts of one prompt in one step share, also without a `uid`",
           attrgetter("group_id")),
    Column("attempt", "int64", "1, or 2 when the same rollout began once more",
           _attribute("attempt", integer), tag=True),
    Column("name", "string", "the function that is the trajectory", lambda one: one.root.name),
    Column("role", "string", "of its own call: `trajectory`; `agent` or `span` where the spec marks no trajectories",
           lambda one: one.root.role, tag=True),
    Column("is_trajectory", "bool", "its role is one of these three; no: a step of the trainer, a request to an engine",
           attrgetter("is_trajectory")),
    Column("status", "string", "`OK`, `ERROR`, `TIMEOUT`, `CANCELLED`, `INTERRUPTED` or, while it runs, `OPEN`",
           lambda one: one.root.status, tag=True),
    Column("error", "string", "type and message of what failed: the trajectory, else its first call that did; 500"
           " characters", lambda one: (one.failed.error_text or "")[:500] if one.failed else None),
    _fact("reward", "float64", "the reward"),
    _fact("reward_extra_info", "json", "the parts of the reward, by the reward function's own names"),
    _fact("advantage", "float64", "the advantage; the mean, where it differs over the tokens"),
    _fact("mismatch_mean", "float64", "mean over the trained tokens of abs(trainer's log-probability - engine's)"),
    _fact("mismatch_max", "float64", "the largest of them"),
    _fact("entropy", "float64", "mean entropy of the trained tokens, as the trainer computed it"),
    _fact("token_facts", "json", "more of what the trainer computed: [token facts](#token-facts)"),
    _fact("trained_in_step", "int64", "the step whose update used it"),
    _fact("trained_in_steps", "json", "all of them, where there are several"),
    _fact("dropped", "string", "why the trainer left it out"),
    _fact("label", "string", "what somebody called it with `autotrace label`", head="label"),
    _fact("label_why", "string", "the reason for the label"),
    _fact("num_turns", "int64", "turns as the agent loop counts them (veRL: messages)"),
    Column("llm_calls", "int64", "rows in `turns`", lambda one: one.trajectory.turns),
    Column("chains", "int64", "rows in `chains`, where it branches; empty: it is one chain",
           lambda one: len(chains) if len(chains := tree_of(one.trajectory).chains) > 1 else None, head="chains"),
    Column("tool_calls", "int64", "calls of tools", attrgetter("tool_calls")),
    Column("spans", "int64", "rows in `spans`", lambda one: len(one.trajectory.spans)),
    Column("late_spans", "int64", "calls that began after it had ended", lambda one: one.trajectory.late_spans),
    Column("prompt_tokens", "int64", "tokens of the first prompt", _first_prompt),
    Column("response_tokens", "int64", "tokens generated over all turns", _generated),
    Column("finish_reasons", "list<string>", "why each turn ended: `stop`, `length`, ...",
           attrgetter("finish_reasons")),
    Column("truncated", "bool", "an answer was cut at a limit of tokens, as its findings say",
           lambda one: is_truncated(one.profile)),
    Column("tool_error", "bool", "a tool failed, as its findings say", lambda one: has_tool_error(one.profile)),
    Column("min_global_steps", "int64", "the oldest weights that answered",
           lambda one: min(one.weight_versions) if one.weight_versions
           else integer(one.attributes.get("min_global_steps"))),
    Column("max_global_steps", "int64", "the newest weights that answered",
           lambda one: max(one.weight_versions) if one.weight_versions
           else integer(one.attributes.get("max_global_steps"))),
    Column("start_ns", "int64", "start, ns since 1970 (UTC)", lambda one: one.root.start_ns),
    Column("end_ns", "int64", "end, ns since 1970 (UTC)", lambda one: one.root.end_ns),
    Column("duration_s", "float64", "s from start to end", lambda one: duration(one.root.start_ns, one.root.end_ns)),
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
    Column("prompt", "string", "the first line of what the user asked, at most 200 characters",
           lambda one: prompt_line(one.trajectory), text=True),
    Column("tokenizer", "string", "what decoded the texts", lambda one: one.trajectory.tokenizer, text=True),
    Column("findings", "list<string>", "[findings](findings.md) of it: `AT-RETOKENIZED`, ...",
           lambda one: codes(one.profile), tag=True),
    Column("traits", "list<string>", "what `autotrace why` compares, in its words", lambda one: traits(one.profile)),
    Column("settings", "json", "what is known of the run's configuration and `autotrace diagnose` needs",
           lambda one: None if one.trajectory.settings == "{}" else one.trajectory.settings),
    Column("profile", "json", "what `autotrace diagnose` reads of it, in a form of its own",
           lambda one: None if one.trajectory.profile == "{}" else one.trajectory.profile),
    Column("notes", "list<string>", "what was dropped, cut or torn, in words", lambda one: one.trajectory.notes),
    Column("attributes", "json", "everything that was reported about it at its start",
           lambda one: exact(one.attributes)),
), lambda one: (one,))  # fmt: skip
HEADED = tuple(column for column in TRAJECTORIES.columns if column.head)
"""Columns that ``autotrace ls`` shows as stored."""


def tags(trajectory: Trajectory) -> dict[str, Any]:
    """Return the known values of the columns that are tags."""
    rollout = Rollout(trajectory)
    values = {column.name: column.of(rollout) for column in TRAJECTORIES.columns if column.tag}
    return {name: value for name, value in values.items() if value is not None and value != []}
