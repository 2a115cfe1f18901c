"""What the classic trainer computed, recorded from the functions of each release (`make verl-releases` has them)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from packaging.version import Version
from programs import HERE, LIMIT
from releases import FOLDERS, environment

from autotrace.adapters.verl import token_facts
from autotrace.config.plan import Settings
from autotrace.spool.reader import SegmentReader, segments
from autotrace.spool.records import Counters, TokenFacts
from autotrace.spool.token_facts import SUMMARY, columns, summary

pytestmark = pytest.mark.timeout(900)
RELEASES = [folder for folder in FOLDERS if Version(folder.name) >= Version("0.6.1")] or [
    pytest.param(None, marks=pytest.mark.long)  # test_late_facts.py has the installed release
]


def recorded(folder: Path, release: Path | None) -> tuple[list[TokenFacts], dict[str, object]]:
    """The token facts in the spool, and what the program saw."""
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(folder / "runs"), "--drain-timeout", "0"]
    launch += ["--keep-spool", "1"]
    program = [sys.executable, str(HERE / "token_facts_program.py"), str(folder / "out.json")]
    done = subprocess.run(
        [*launch, "--backend", "jsonl", *program], env=environment(release), cwd=folder, timeout=LIMIT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = (folder / "runs").iterdir()
    facts: list[TokenFacts] = []
    for segment in segments(run):
        reader = SegmentReader(run, segment.name)
        while records := reader.read():
            for located in records:
                if isinstance(located.record, Counters):
                    assert not [name for name in located.record.drops if name.startswith("fault:")]
                elif isinstance(located.record, TokenFacts):
                    facts.append(located.record)
    return facts, json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize("release", RELEASES, ids=lambda folder: folder.name if folder else "installed")
def test_each_row_has_its_numbers_and_columns(release: Path | None, tmp_path: Path) -> None:
    facts, out = recorded(tmp_path, release)
    lengths, metrics = out["lengths"], out["metrics"]
    assert isinstance(lengths, list) and isinstance(metrics, dict)
    known = [summary(fact.value[SUMMARY]) for fact in facts]
    assert [one["tokens"] for one in known] == lengths
    assert [fact.key["uid"] for fact in facts] == ["a"] * 3 + ["b"] * 3
    assert all(len(fact.key["digest"]) == 8 and "score" in fact.key for fact in facts)
    mean = sum(one["probs_diff_mean"] * one["tokens"] for one in known) / sum(lengths)
    assert metrics["training/rollout_probs_diff_mean"] == pytest.approx(mean, rel=1e-6)
    assert metrics["training/rollout_probs_diff_max"] == pytest.approx(max(one["probs_diff_max"] for one in known))
    assert [len(columns(fact.value)["old_log_probs"]) for fact in facts] == lengths


class Batch(dict[str, torch.Tensor]):
    """Stands for a ``TensorDict``."""


def rows(count: int = 80) -> Batch:
    old = -torch.rand((count, 8), generator=torch.Generator().manual_seed(2))
    return Batch(old_log_probs=old, rollout_log_probs=old * 1.1, response_mask=torch.ones(count, 8).long())


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, bytes], dict[str, str]]]:
    """What is recorded in this process."""
    made: list[tuple[dict[str, bytes], dict[str, str]]] = []
    monkeypatch.setattr(token_facts.statements, "token_facts", lambda value, key: made.append((value, key)))
    return made


def use(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    monkeypatch.setattr(token_facts.engine, "settings", lambda: Settings(**settings))


Said = list[tuple[dict[str, bytes], dict[str, str]]]


def record(batch: Batch, config: Any = None) -> None:
    names = [f"key-{number}" for number in range(len(batch["old_log_probs"]))]
    token_facts.record(batch, [{"uid": name} for name in names], names, config)


@pytest.mark.parametrize(
    ("settings", "numbers", "with_columns"),
    [({}, 80, 64), ({"token_facts": "all"}, 80, 80), ({"token_facts": "off"}, 0, 0), ({"content": "text"}, 80, 0)],
)
def test_as_much_is_recorded_as_was_asked_for(
    settings: dict[str, str], numbers: int, with_columns: int, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, **settings)
    record(rows())
    assert [key["uid"] for _, key in said] == [f"key-{number}" for number in range(numbers)]
    assert sum("old_log_probs" in value for value, _ in said) == with_columns


def test_padding_is_nobodys_and_bypassed_log_probabilities_are_no_comparison(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch)
    token_facts.record(rows(2), [{"uid": "a"}, None], ["a_0_0", "pad_0_0"], None)
    assert [key["uid"] for _, key in said] == ["a"] and "mismatch_mean" in summary(said[0][0][SUMMARY])
    record(rows(1), {"rollout_correction": {"bypass_mode": True}})
    assert summary(said[1][0][SUMMARY]).keys() == {"tokens", "old_log_prob_mean", "rejected", "not_finite"}


@pytest.mark.parametrize(
    ("correction", "clipped"),
    [
        ({"rollout_is_threshold": 2.0}, 8), ({"rollout_is_threshold": "0.5_2.0"}, 8), ({"rollout_is_threshold": 3}, 0),
        ({"rollout_is_threshold": 2.0, "rollout_is_batch_normalize": True}, None), ({}, None),
        ({"rollout_is_threshold": "two"}, None),
    ],
)  # fmt: skip
def test_cut_weights_are_counted_where_the_limit_is_known(
    correction: dict[str, Any], clipped: int | None, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch)
    batch = rows(1)
    batch["rollout_is_weights"] = torch.full_like(batch["old_log_probs"], 2.0)
    record(batch, {"rollout_correction": correction})
    assert summary(said[0][0][SUMMARY]).get("clipped") == clipped


def test_what_is_on_a_device_or_of_another_shape_is_left_alone(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    counted: dict[str, int] = {}
    monkeypatch.setattr(token_facts.faults, "count", lambda reason, n=1: counted.update({reason: n}))
    away = rows(3)
    away["old_log_probs"] = away["old_log_probs"].to("meta")
    record(away)
    assert not said and counted == {token_facts.SKIPPED: 3}
    odd = rows(3)
    odd["rollout_log_probs"], odd["rollout_is_weights"] = torch.zeros(3, 5), torch.zeros(7)
    record(odd)
    assert "mismatch_mean" not in summary(said[0][0][SUMMARY])


def test_a_step_costs_a_hundredth_of_its_time_and_five_seconds_at_most(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch)
    given, now, measure = list[float](), [1000.0], token_facts.measure
    monkeypatch.setattr(token_facts, "_last_at", None)
    monkeypatch.setattr(token_facts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(
        token_facts, "measure", lambda *tensors, **how: given.append(how["seconds"]) or measure(*tensors, **how)
    )
    for seconds in (1.0, 100.0, 3600.0):
        record(rows())
        now[0] += seconds
    record(rows())
    assert given == [2.0, 0.05, 1.0, 5.0]


def test_numbers_of_another_batch_are_not_taken_for_these(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    other = rows(3)
    other["old_log_probs"] = other["old_log_probs"] * 2
    data = SimpleNamespace(batch=other, non_tensor_batch={"uid": ["x", "y", "z"]})
    token_facts.compared(None, {"data": data})
    batch = rows(3)
    record(batch)
    means = [summary(value[SUMMARY])["old_log_prob_mean"] for value, _ in said]
    assert means == pytest.approx(batch["old_log_probs"].mean(dim=1).tolist())
