"""What stands in the tables: every column, from trajectories as the shipper makes them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from autotrace.tables.arrow import arrow_schema, from_rows
from autotrace.tables.rollout import Rollout
from autotrace.tables.schema import TABLES
from autotrace.trajectory.model import Span, Trajectory
from tests.sinks.rollouts import group, trajectory
from tests.tables import reading


def row(name: str, one: Trajectory, number: int = 0) -> dict[str, Any]:
    found: list[dict[str, Any]] = turns(one) if name == "turns" else reading.tables([one])[name].to_pylist()
    return found[number]


def turns(one: Trajectory) -> list[dict[str, Any]]:
    """The rows of the agent's own calls."""
    return [made for made in reading.tables([one])["turns"].to_pylist() if made["own"]]


def test_a_trajectory_is_a_row_with_its_identity_reward_and_counts() -> None:
    one = trajectory(step=3, sample=17, rollout=1, reward=0.5)
    one.facts |= {"advantage": -0.25, "trained_in_step": 4}
    made = row("trajectories", one)
    assert (made["step"], made["sample_index"], made["rollout_n"], made["validate"]) == (3, "17", 1, False)
    assert (made["uid"], made["data_source"], made["project_name"]) == ("uid-17", "gsm8k", "rl")
    assert made["group_id"] == "3/uid-17"
    assert (made["reward"], made["reward_extra_info"], made["advantage"]) == (0.5, '{"acc":true}', -0.25)
    assert (made["llm_calls"], made["tool_calls"], made["spans"], made["num_turns"]) == (2, 1, 5, 4)
    assert (made["status"], made["error"], made["truncated"]) == ("OK", None, None)
    assert (made["duration_s"], made["tool_s"], made["llm_s"]) == (9.0, 1.0, 5.0)
    assert (made["min_global_steps"], made["max_global_steps"], made["trained_in_step"]) == (2, 2, 4)


def test_a_turn_has_its_tokens_and_its_part_of_the_mask() -> None:
    one = trajectory(reward=1.0)
    for turn, span in enumerate(one.llm_spans):
        span.prompt_tokens, span.response_tokens = (40, 60) if turn == 0 else (112, 20)
    first, second = turns(one)
    assert (first["turn"], second["turn"]) == (1, 2)
    assert first["new_prompt_ids"] == list(range(1000, 1040)) and second["new_prompt_ids"] == list(range(2000, 2012))
    assert (second["prompt_base"], second["prompt_keep"]) == (first["span_id"], 100)
    assert first["response_mask"] == [1] * 60 and second["response_mask"] == [1] * 20
    assert first["rollout_log_probs"] == [-0.25] * 60 and second["rollout_log_probs"] is None
    assert (first["finish_reason"], first["weight_version"], first["cached_tokens"]) == ("stop", 2, 16)
    assert row("trajectories", one)["response_mask"] is None, "the turns have it"


def test_a_call_has_what_the_trainer_computed_for_its_tokens() -> None:
    one = trajectory(reward=1.0)
    first = one.llm_spans[0]
    first.loss_mask, first.advantages = [1] * 59 + [0], [0.5] * 60
    one.facts |= {"mismatch_mean": 0.01, "mismatch_max": 2.5, "entropy": 0.75, "token_facts": {"tokens": 80}}
    (made,) = reading.tables([one])["tokens"].to_pylist()
    assert (made["turn"], made["span_id"], made["uid"]) == (1, first.span_id, "uid-17")
    assert (made["old_log_probs"], made["entropy"]) == ([-0.5] * 60, [0.75] * 60)
    assert (made["loss_mask"], made["advantages"], made["ref_log_prob"]) == ([1] * 59 + [0], [0.5] * 60, None)
    whole = row("trajectories", one)
    assert (whole["mismatch_mean"], whole["mismatch_max"], whole["entropy"]) == (0.01, 2.5, 0.75)
    assert whole["token_facts"] == '{"tokens":80}'


def test_a_mask_that_the_turns_are_no_pieces_of_stays_whole() -> None:
    one = trajectory(reward=1.0)
    for span in one.llm_spans:
        span.prompt_tokens = 40  # the agent began anew
    assert {made["response_mask"] for made in turns(one)} == {None}
    assert row("trajectories", one)["response_mask"] == one.spans[1].response_mask


def test_tokens_and_texts_of_an_agent_whose_turns_have_none() -> None:
    one = trajectory()
    for span in one.llm_spans:
        span.response_ids = span.response_text = None
    made = row("trajectories", one)
    assert made["response_ids"] == one.spans[1].response_ids and made["prompt_text"] == one.spans[1].prompt_text


def test_what_the_engine_measured_is_in_the_turn_above() -> None:
    one = trajectory()
    call = one.llm_spans[0]
    for id, parent, figures in (
        ("e" * 16, call.span_id, {"request_id": "server", "ttft_s": 9.0}),
        ("f" * 16, "e" * 16, {"ttft_s": 0.25, "decode_s": 1.5, "finish_reason": "length", "preemptions": 2}),
    ):
        one.spans.append(Span(id, parent, "AsyncLLM.generate", "engine", "k", 0, 1, "OK", attributes=dict(figures)))
    made = row("turns", one)
    assert (made["ttft_s"], made["decode_s"], made["preemptions"]) == (0.25, 1.5, 2)
    assert (made["finish_reason"], made["request_id"]) == ("length", "r-1"), "the call's own name for it"


def test_facts_are_rows() -> None:
    one = trajectory(reward=0.5)
    made = {each["name"]: (each["number"], each["value"]) for each in reading.tables([one])["facts"].to_pylist()}
    assert made == {"reward": (0.5, "0.5"), "reward_extra_info": (None, '{"acc":true}'), "num_turns": (4.0, "4")}


def test_a_trace_of_the_trainer_or_of_an_engine_is_no_trajectory() -> None:
    traces = [Trajectory("a" * 32, "run", [Span("1" * 16, None, "step", role, "k", 0)]) for role in ("trainer", "llm")]
    tables = reading.tables(traces)
    assert {name: table.num_rows for name, table in tables.items()} == {
        "trajectories": 2, "turns": 0, "spans": 2, "facts": 0, "tokens": 0, "chains": 0,
    }  # fmt: skip
    assert tables["trajectories"]["is_trajectory"].to_pylist() == [False, False]


def test_odd_values_leave_their_trajectory_in() -> None:
    one = trajectory(reward=0.5)
    one.attributes |= {
        "step": 2**70,
        "uid": "half \ud800",
        "rollout_n": "x",
        "validate": "maybe",
        "deep": {"n": math.nan},
    }
    one.facts |= {"advantage": 10**400, "reward_extra_info": {"a": {1, 2}}}
    call = one.llm_spans[0]
    call.response_text, call.response_ids, call.logprobs = "half \udfff", [1, 2**40], [math.nan, -math.inf]
    call.attributes |= {"weight_version": "default", "cached_tokens": None}
    tables = reading.tables([one, trajectory(sample=18, reward=1.0)])
    first, second = tables["trajectories"].to_pylist()
    assert (first["step"], first["rollout_n"], first["validate"], first["advantage"]) == (None, None, None, None)
    assert second["step"] == 3 and second["reward"] == 1.0
    turn = next(made for made in tables["turns"].to_pylist() if made["own"])
    assert turn["response_ids"] is None and turn["weight_version"] is None
    assert math.isnan(turn["rollout_log_probs"][0])
    assert "\udfff" not in turn["response_text"]


def test_tables_are_as_the_schema_says_also_without_rows() -> None:
    for name, made in reading.tables([]).items():
        assert made.num_rows == 0 and made.schema == arrow_schema(TABLES[name].columns)
    full = reading.tables(group())
    for name, table in full.items():
        assert table.schema == arrow_schema(TABLES[name].columns)
        table.validate(full=True)
        assert pa.concat_tables([table, table]).num_rows == 2 * table.num_rows


def test_columns_have_one_name_each_and_a_meaning() -> None:
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names)
        assert all(column.meaning for column in table.columns)


def test_columns_marked_as_text_are_those_that_decoding_fills() -> None:
    bare = trajectory(reward=1.0)
    for span in bare.spans:
        span.prompt_text = span.new_prompt_text = span.response_text = span.messages = None
    with_text, without = Rollout(trajectory(reward=1.0)), Rollout(bare)
    for name in ("turns", "spans", "facts"):
        table = TABLES[name]
        pair = [from_rows(table.columns, table.rows([each])).to_pylist() for each in (with_text, without)]
        differing = {key for a, b in zip(*pair, strict=True) for key in a if a[key] != b[key]}
        assert differing <= {column.name for column in table.columns if column.text}
