"""What MLflow and W&B Weave show of what real veRL did."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from launches import EXPERIMENT, Launch, autotrace
from read import ReadBack, found_in_mlflow, in_weave, keyed, mlflow_of, numbers, weave_of, where

from autotrace.redact.redactor import REDACTED

pytestmark = [pytest.mark.timeout(1200), pytest.mark.backends]  # the first test waits for the runs

Runs = dict[tuple[str, str], Launch]
Told = Any
"""pytest's ``record_property``."""


@pytest.mark.row("both backends")
def test_both_backends_have_the_same(both: Launch, read_back: ReadBack, release: str, record_property: Told) -> None:
    here = {trace_id: len(one.spans) for trace_id, one in both.recorded.items()}
    assert len(here) == 80
    for seen in (mlflow_of(both), weave_of(read_back, both)):
        assert {trace_id: one.spans for trace_id, one in keyed(seen).items()} == here
    record_property("note", f"{release}: 80 in each")


@pytest.mark.row("token2text")
def test_texts_are_what_the_engine_read_and_said(both: Launch, read_back: ReadBack, release: str) -> None:
    """The engine's own record of tokens, as bytes: the tokenizer has one token a byte."""
    for seen in (mlflow_of(both), weave_of(read_back, both)):
        for one in seen:
            asked, said = one.texts["prompt_text"], one.texts["response_text"]
            number = one.attributes["sample_index"]
            assert numbers(asked) == {number}
            assert asked.startswith("<|im_start|>system") and asked.endswith("<|im_start|>assistant\n")
            first, tools, second = one.texts["response_parts"]
            assert (list(first), list(tools), list(second)) == (["model"], ["tools"], ["model"])
            assert first["model"] + tools["tools"] + second["model"] == said
            rollout = re.fullmatch(r"I am rollout (\d+)\. <tool_call>(.*)</tool_call><\|im_end\|>", first["model"])
            assert rollout is not None
            key = {"api_key": REDACTED} if int(number) % 10 == 7 else {}
            assert json.loads(rollout[2])["arguments"] == {"number": int(number), **key}
            assert str(2 * int(number)) in tools["tools"]
            answer = 2 * int(number) + int(rollout[1]) % 2
            assert second["model"] == f"So rollout {rollout[1]} says #### {answer}<|im_end|>"
    assert len(both.truth["calls"]) == 240


def between(values: Iterable[float]) -> float:
    """A number in the middle that is none of them, if they differ there: databases round the last digit."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return (ordered[half - 1] + ordered[half]) / 2


@pytest.mark.row("filters")
@pytest.mark.parametrize("kind", ["both", "mlflow"])
def test_mlflow_finds_by_every_attribute(runs: Runs, release: str, kind: str) -> None:
    launch = runs[release, kind]
    everything = keyed(mlflow_of(launch))
    one = sorted(everything.values(), key=lambda seen: seen.trace_id)[0]
    for name in (
        "step", "sample_index", "rollout_n", "validate", "uid", "data_source", "experiment_name", "project_name",
        "agent_name",
    ):  # fmt: skip
        value = one.attributes[name]
        expected = {id for id, seen in everything.items() if seen.attributes[name] == value}
        assert found_in_mlflow(launch, f"tags.{name} = '{value}'") == expected, name
        assert found_in_mlflow(launch, f"tags.{name} = 'none of them'") == set()
    for name in ("reward", "advantage", "trained_in_step", "acc"):
        middle = between(seen.facts[name] for seen in everything.values())
        expected = {id for id, seen in everything.items() if seen.facts[name] >= middle}
        assert found_in_mlflow(launch, f"feedback.{name} >= {middle!r}") == expected, name
    both_kinds = f"tags.rollout_n = '{one.attributes['rollout_n']}' AND feedback.reward > 0.5"
    expected = {
        id for id, seen in everything.items()
        if seen.attributes["rollout_n"] == one.attributes["rollout_n"] and seen.facts["reward"] > 0.5
    }  # fmt: skip
    assert found_in_mlflow(launch, both_kinds) == expected


@pytest.mark.row("filters")
def test_weave_finds_by_every_attribute(both: Launch, read_back: ReadBack) -> None:
    everything = keyed(weave_of(read_back, both))
    known = next(iter(both.recorded.values())).attributes
    names = [
        "step", "sample_index", "rollout_n", "validate", "uid", "data_source", "experiment_name", "project_name",
        "agent_name",
    ]  # fmt: skip
    middle = between(seen.facts["reward"] for seen in everything.values())
    conditions = {name: where((f"attributes.{name}", "$eq", known[name])) for name in names}
    conditions["reward"] = where(("output.reward", "$gte", middle))
    conditions["score"] = where(("feedback.[wandb.runnable.reward].payload.output", "$gte", middle))
    conditions["advantage"] = where(("feedback.[wandb.runnable.advantage].payload.output", "$gt", 0.0))
    conditions["two"] = where(("attributes.rollout_n", "$eq", known["rollout_n"]), ("output.reward", "$gte", middle))
    found = {name: set(keyed(seen)) for name, seen in in_weave(read_back, both.project, **conditions).items()}
    for name in names:
        expected = {id for id, seen in everything.items() if seen.attributes[name] == str(known[name])}
        assert found[name] == expected, name
    high = {id for id, seen in everything.items() if seen.facts["reward"] >= middle}
    assert found["reward"] == found["score"] == high
    assert found["advantage"] == {id for id, seen in everything.items() if seen.facts["advantage"] > 0}
    same = {id for id, seen in everything.items() if seen.attributes["rollout_n"] == str(known["rollout_n"])}
    assert found["two"] == same & high


@pytest.mark.row("project and experiment")
def test_project_and_experiment_are_those_of_the_trainer(both: Launch, read_back: ReadBack) -> None:
    for seen in (mlflow_of(both), weave_of(read_back, both)):  # read from the experiment and project of that name
        assert {one.attributes["experiment_name"] for one in seen} == {EXPERIMENT}
        assert {one.attributes["project_name"] for one in seen} == {both.project}


@pytest.mark.row("comparing a group")
def test_a_group_stands_side_by_side(both: Launch, read_back: ReadBack, release: str, record_property: Told) -> None:
    samples = {one.attributes["sample_index"] for one in both.recorded.values()}
    sample = min(sample for sample in samples if int(sample) % 10 != 7)  # what spells a key has no token ids
    words = ["compare", "--step", "1", "--sample", str(sample)]
    compared = json.loads(autotrace(both, *words, "--run", str(both.run), "--json"))
    group = {one["trace_id"]: one for one in compared["trajectories"]}
    assert len(group) == both.n
    for trace_id, shown_there in group.items():
        for fact in ("reward", "advantage"):
            assert shown_there["facts"][fact] == both.recorded[trace_id].facts[fact]
    parted = [one for one in compared["divergence"][1:] if one["tokens"]]
    assert len(parted) == both.n - 1, "each says its own number"
    assert {one["tokens"]["turn"] for one in parted} == {1}
    shown = autotrace(both, *words, "--run", str(both.run))
    assert "differs from A in turn 1" in shown and "advantage" in shown
    calls = read_back(f"dev/{both.project}", all={"filter": {"trace_ids": _dashed(group)}})["all"]
    shapes: dict[str, set[str]] = {}
    for call in calls:
        turn = sum(other["op_name"] == call["op_name"] and other["trace_id"] == call["trace_id"]
                   and other["started_at"] < call["started_at"] for other in calls)  # fmt: skip
        keys = sorted((call["inputs"] or {}).keys()), sorted(call["output"]) if isinstance(call["output"], dict) else 0
        shapes.setdefault(f"{call['func_name']} {turn}", set()).add(str(keys))
        assert _longest(call["inputs"]) <= 32 >= _longest(call["output"]), "no long list of numbers"
    assert all(len(keys) == 1 for keys in shapes.values()), "the same keys in all of a group"
    record_property("note", f"{release}: {both.n} rollouts")


def _dashed(ids: Any) -> list[str]:
    return [f"{id[:8]}-{id[8:12]}-{id[12:16]}-{id[16:20]}-{id[20:]}" for id in ids]


def _longest(value: Any) -> int:
    if isinstance(value, dict):
        return max(map(_longest, value.values()), default=0)
    return max([len(value), *map(_longest, value)]) if isinstance(value, list) else 0
