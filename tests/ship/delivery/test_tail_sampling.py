"""Keep-rules decide for whole groups, and the same way again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotrace.config.written import KeepRules
from autotrace.run.info import RunInfo
from autotrace.ship.delivery.outbox import why_kept
from autotrace.ship.shipper import ship
from autotrace.ship.store.row import TraceRow
from tests.ship.spools import Process, new_run, trajectory

pytestmark = pytest.mark.row("budgets")


def rows(*rewards: float, status: str = "OK") -> list[TraceRow]:
    return [TraceRow(f"{number:032x}", status=status, reward=reward) for number, reward in enumerate(rewards)]


def test_errors_and_spread_are_kept_the_rest_by_share() -> None:
    rules = KeepRules(errors=True, spread=True, random=0.2)
    assert why_kept(rules, "seed", "a", [*rows(1.0), *rows(1.0, status="TIMEOUT")]) == "errors"
    assert why_kept(rules, "seed", "b", rows(0.0, 1.0)) == "spread"
    flat = [why_kept(rules, "seed", f"group-{number}", rows(1.0, 1.0)) for number in range(1000)]
    assert set(flat) == {None, "random"} and 150 < flat.count("random") < 250
    assert flat == [why_kept(rules, "seed", f"group-{number}", rows(1.0, 1.0)) for number in range(1000)]


def test_a_group_is_delivered_whole_or_stays_until_it_is_asked_for(tmp_path: Path) -> None:
    run = new_run(tmp_path, keep=["spread"])
    process = Process(run)
    rewards = {"flat": (1.0, 1.0), "mixed": (0.0, 1.0), "alone": (1.0,)}
    for uid, values in rewards.items():
        for rollout, reward in enumerate(values):
            trajectory(process, reward=reward, uid=uid, rollout=rollout)
    process.exit()
    assert ship(run, once=True).state == "done"
    assert sorted(uids(run)) == ["mixed", "mixed"]
    assert ship(run, once=True).state == "done"
    assert sorted(uids(run)) == ["mixed", "mixed"]
    assert ship(run, once=True, everything=True).state == "done"
    assert sorted(uids(run)) == ["alone", "flat", "flat", "mixed", "mixed"]


@pytest.mark.parametrize("project", [None, "named for the run"])
def test_rollouts_without_a_uid_are_kept_by_what_differs_between_them(tmp_path: Path, project: str | None) -> None:
    run = new_run(tmp_path, keep=["spread"], project=project)
    process = Process(run)
    for sample, values in {1: (1.0, 1.0), 2: (0.0, 1.0)}.items():
        for rollout, reward in enumerate(values):
            trajectory(process, reward=reward, uid=None, sample_index=sample, rollout=rollout)
    process.exit()
    assert ship(run, once=True).state == "done"
    lines = (run / "trajectories.jsonl").read_text().splitlines()
    assert [json.loads(line)["attributes"]["sample_index"] for line in lines] == ["2", "2"]


def uids(run: Path) -> list[str]:
    lines = (run / "trajectories.jsonl").read_text().splitlines()
    return [json.loads(line)["attributes"]["uid"] for line in lines]


def test_a_budget_is_kept_by_whole_groups_and_what_is_over_can_be_sent_later(tmp_path: Path) -> None:
    run = new_run(tmp_path, step_budget=1)
    recorded(run)
    assert ship(run, once=True).state == "done"
    assert not (run / "trajectories.jsonl").exists()
    info = RunInfo.read(run)
    assert ship(run, once=True, everything=True).state == "done"
    sizes = [len(line) + 1 for line in (run / "trajectories.jsonl").read_text().splitlines()]
    assert len(sizes) == 16

    limited = new_run(tmp_path, "limited", step_budget=sum(sizes[:7]))
    recorded(limited)
    status = ship(limited, once=True)
    kept = uids(limited)
    assert info.step_budget == 1 and status.backends["jsonl"].over_budget == 16 - len(kept)
    assert len(kept) == 6 and all(kept.count(uid) == 2 for uid in kept), "a group that does not fit whole stays"
    size = (limited / "trajectories.jsonl").stat().st_size
    assert size == status.backends["jsonl"].sent_bytes <= limited_to(limited)


def limited_to(run: Path) -> int:
    return RunInfo.read(run).step_budget or 0


def recorded(run: Path) -> None:
    process = Process(run)
    for uid in "abcdefgh":
        for rollout in range(2):
            trajectory(process, uid=uid, rollout=rollout)
    process.exit()
