"""What the trainer knows of a trajectory, beside it: equal to what veRL's own functions went on with."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import HERE, LIMIT, ROOT

from autotrace.ship.readers import of_run
from autotrace.sinks.jsonl.sink import encoded

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.row("rewards and advantages")]


@pytest.fixture(scope="module", params=["classic", "v1"])
def ran(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """The mode, what the trainer used and computed, and the trajectories."""
    folder = tmp_path_factory.mktemp(request.param)
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(folder / "runs")]
    program = [sys.executable, str(HERE / "trainer_program.py"), request.param, str(folder / "out.json")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    done = subprocess.run(
        [*launch, "--backend", "jsonl", "--drain-timeout", "120", *program],
        env={**environ, "PYTHONPATH": str(ROOT)}, cwd=folder, timeout=LIMIT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = Path(folder, "runs").iterdir()
    with contextlib.closing(of_run(run)) as reader:  # also what the shipper of a busy machine has left
        assert not [reason for reason in reader.run.status().drops if reason.startswith("fault:")]
        facts = reader.run.step_facts()
        loaded = [reader.load(row.trace_id, texts=False) for row in reader.select(roots=True)]
    trajectories = [json.loads(encoded(one)) for one in loaded if one.attributes.get("uid")]
    return request.param, {**json.loads((folder / "out.json").read_text()), "step_facts": facts}, trajectories


@pytest.fixture(scope="module")
def said(ran: tuple[str, dict[str, Any], list[dict[str, Any]]]) -> tuple[str, list[Any], list[dict[str, Any]]]:
    """The mode, what the trainer used, and the trajectories."""
    return ran[0], ran[1]["rows"], ran[2]


def test_advantages_are_those_the_trainer_used(said: tuple[str, list[Any], list[dict[str, Any]]]) -> None:
    mode, rows, trajectories = said
    assert len(trajectories) == len(rows) == 8
    known = [(one["attributes"]["uid"], one["facts"]["reward"], one["facts"]["advantage"]) for one in trajectories]
    used = [(row[0], pytest.approx(row[1], rel=1e-6), row[2]) for row in rows]
    assert sorted(known) == sorted(used, key=lambda row: (row[0], row[1].expected, row[2]))
    if mode == "v1":
        by_key = {row[3]: row[2] for row in rows}
        for one in trajectories:
            key = f"{one['attributes']['uid']}_{one['attributes']['session_id']}_0"
            assert one["facts"]["advantage"] == by_key[key]


def test_a_group_that_was_dropped_was_not_trained_on(said: tuple[str, list[Any], list[dict[str, Any]]]) -> None:
    mode, _, trajectories = said
    for one in trajectories:
        dropped = mode == "v1" and one["attributes"]["uid"] == "uid-b"
        assert one["facts"].get("trained_in_step") == (None if dropped else 3)
        assert ("every reward of its group is the same" in one["facts"].get("dropped", "")) is dropped


def test_the_trainers_own_reward_is_no_second_reward(said: tuple[str, list[Any], list[dict[str, Any]]]) -> None:
    assert not any("token_level_score" in one["facts"] for one in said[2])


def test_the_numbers_of_all_trajectories_make_verls_own_metrics(
    ran: tuple[str, dict[str, Any], list[dict[str, Any]]],
) -> None:
    _, used, trajectories = ran
    facts = [one["facts"]["token_facts"] for one in trajectories]
    tokens = sum(one["tokens"] for one in facts)
    assert tokens == sum(map(len, used["old_log_probs"]))

    def mean(name: str) -> float:
        return sum(one[name] * one["tokens"] for one in facts) / tokens

    expected = {
        "training/rollout_probs_diff_mean": mean("probs_diff_mean"),
        "training/rollout_probs_diff_max": max(one["probs_diff_max"] for one in facts),
        "actor/entropy": mean("entropy"),
        "rollout_corr/kl": -mean("log_ratio_mean"),
        "rollout_corr/k3_kl": mean("k3_mean"),
    }
    for name, value in expected.items():
        assert used["metrics"][name] == pytest.approx(value, rel=1e-6, abs=1e-6), name
    worst = max(trajectories, key=lambda one: one["facts"]["mismatch_max"])
    assert worst["facts"]["token_facts"]["mismatch_at"] == 2
    assert worst["facts"]["mismatch_max"] == pytest.approx(3.0, abs=1e-5)
    assert {one["rejected"] for one in facts} == {0}


def test_each_call_has_the_trainers_value_of_each_token(
    ran: tuple[str, dict[str, Any], list[dict[str, Any]]],
) -> None:
    mode, used, trajectories = ran
    keys = {"uid-a": [], "uid-b": []}
    for row, old in zip(used["rows"], used["old_log_probs"], strict=True):
        keys[row[0]].append((row[3] if mode == "v1" else None, old))
    for one in trajectories:
        uid, session = one["attributes"]["uid"], one["attributes"]["session_id" if mode == "v1" else "rollout_n"]
        (call,) = [span for span in one["spans"] if span["role"] == "llm"]
        old = call["old_logprobs"]
        assert len(old) == len(call["entropy"]) == len(call["loss_mask"]) == len(call["response_ids"])
        fitting = [values for key, values in keys[uid] if key in (None, f"{uid}_{session}_0")]
        assert any(old == pytest.approx(values, rel=1e-3, abs=1e-3) for values in fitting)
        assert "advantages" not in call and set(call["loss_mask"]) == {1}


def test_the_step_has_the_metrics_as_they_were_logged_and_as_they_follow_from_its_rows(
    ran: tuple[str, dict[str, Any], list[dict[str, Any]]],
) -> None:
    mode, used, _ = ran
    facts = used["step_facts"]
    assert facts.keys() == {3} and facts[3]["metrics"] == used["metrics"]
    computed = facts[3]["token_facts"]
    assert computed.pop("left") == 0
    (name,) = computed  # veRL's mean that a finding compares
    # v1: the row that fills the batch counts in veRL's means over rows
    assert used["metrics"][name] == pytest.approx(computed[name] * (8 / 9 if mode == "v1" else 1), rel=1e-6)
