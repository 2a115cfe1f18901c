"""A run of three trajectories that use tools, with their texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Call, call, runs
from tests.export import chatml
from tests.ship.spools import Process, new_run

__all__ = ["Call", "call", "runs"]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chatml.model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def run(runs: Path, model: Path) -> Path:
    """Rewards 0, 1 and 1, the last two said the same."""
    folder = new_run(runs)
    process = Process(folder)
    process.bind("tokenizer", path=str(model), trust_remote_code=False)
    for number, (topic, reward) in enumerate((("Köln", 0.0), ("Bonn", 1.0), ("Bonn", 1.0))):
        chatml.rollout(process, model, chatml.said(topic), reward, rollout=number)
    process.exit()
    return folder
