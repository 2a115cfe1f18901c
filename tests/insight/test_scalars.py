"""Curves of a trainer's metrics: what rldoctor finds in its own scenarios is found, and its healthy run is clean."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from autotrace.insight.families.scalars import curves
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
