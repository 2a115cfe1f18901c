"""Curves of a trainer's metrics: what rldoctor finds in its own scenarios is found, and its healthy run is clean."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.families.scalars import NAMES, curves
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import History, Step
from tests.insight.made import record

EXPECTED = {
    "healthy": set(),
    "entropy_collapse": {"AT-ENTROPY-COLLAPSED"},
    "saturated_groups": {"AT-REWARD-FLAT"},
    "too_hard": {"AT-REWARD-FLAT"},
    "reward_hacking": {"AT-REWARD-GAMED"},
    "length_hacking": {"AT-LENGTH-GREW", "AT-REWARD-GAMED"},
    "truncation": {"AT-LENGTH-GREW"},
    "kl_blowup": {"AT-KL-DRIFT"},
    "clip_saturation": {"AT-CLIP-SATURATED"},
    "grad_spikes": {"AT-GRADIENT-SPIKES"},
    "plateau": {"AT-REWARD-FLAT"},
    "format_domination": {"AT-REWARD-GAMED"},
}
SIMULATED = (
    "import json, sys; from rl_doctor.simulate import SCENARIOS, simulate;"
    " print(json.dumps({name: [simulate(name, seed=seed)[0] for seed in range(2)] for name in SCENARIOS}))"
)


@pytest.fixture(scope="module")
def scenarios() -> dict[str, list[list[dict[str, Any]]]]:
    """Scenario -> two runs of it, each a list of what a trainer logs in a step."""
    words = ["-m", "uv", "run", "--quiet", "--no-project", "--isolated", "--with", "rldoctor==0.2.0", "python", "-c"]
    done = subprocess.run([sys.executable, *words, SIMULATED], capture_output=True, text=True, check=True)
    runs: dict[str, list[list[dict[str, Any]]]] = json.loads(done.stdout)
    return runs


@pytest.mark.parametrize("name", EXPECTED)
def test_a_scenario_of_rldoctor(name: str, scenarios: dict[str, list[list[dict[str, Any]]]]) -> None:
    assert scenarios.keys() == EXPECTED.keys()
    for run in scenarios[name]:
        history, onsets = History(), dict[str, int]()
        for logged in run:
            number = logged.pop("step")
            step = Step(number, [record(0, step=number, reward=None)], TrainerSettings(), metrics=logged)
            for hit in curves(step, history):
                onsets.setdefault(hit.code, number)
        assert onsets.keys() >= EXPECTED[name] and (EXPECTED[name] or not onsets), onsets


LOGGED: dict[str, Callable[[int], dict[str, float]]] = {
    "the metrics of a trainer": lambda step: {
        "actor/entropy": 1.0, "actor/kl_loss": 0.1, "actor/grad_norm": step % 7, "response_length/mean": step % 5,
        "reward": step % 11, "val/acc": 0.5, "rewards/style/mean": step % 3, "rewards/answer/mean": step % 13,
    },
    "a metric of its own name in each step": lambda step: {f"m{step}": 1.0},
    "a part of the reward in each step": lambda step: {f"rewards/{step}/mean": 1.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", LOGGED)
def test_four_times_the_logged_steps_take_four_times_the_time(kind: str) -> None:
    def taken(steps: int) -> float:
        diagnosis, begin = Diagnosis(), time.thread_time()
        for number in range(steps):
            diagnosis.add(Step(number, [], TrainerSettings(), metrics=LOGGED[kind](number)))
        return time.thread_time() - begin

    fewer, more = ([taken(steps) for _ in range(2)] for steps in (1_000, 4_000))
    assert min(more) < 9 * min(fewer), "a quadratic step would take 16 times as long"


def test_few_steps_are_looked_at_each_and_many_now_and_then() -> None:
    history, found = History(), list[int]()
    for number in range(1_000):
        logged = {"actor/grad_norm": 100.0 if number in (11, 12, 13, 900) else 1.0}
        hits = list(curves(Step(number, [], TrainerSettings(), metrics=logged), history))
        assert not hits or hits[0].note.startswith("norm 4" if number > 920 else "norm 3") or number >= 900
        found += [number] * len(hits)
    assert found == [*range(13, 1_000)]


def test_every_curve_is_read_beside_many_parts_of_the_reward() -> None:
    history = History()
    for number in range(10):
        logged = {f"rewards/{part}/mean": 1.0 for part in range(100)} | {"actor/entropy": 1.0 if number < 5 else 0.0}
        hits = list(curves(Step(number, [], TrainerSettings(), metrics=logged), history))
    assert [hit.code for hit in hits] == ["AT-ENTROPY-COLLAPSED"]
    assert len(history.curves) < len(NAMES) + 40
