"""Two runs side by side: recorded, saved by others, or metrics alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotrace.insight.difference import metrics_part, settings_differ, settings_of
from autotrace.insight.pairs import Kept, PairCounts, pair
from tests.cli.conftest import Call


def saved(folder: Path, **changed: Any) -> Path:
    """Rollouts as lists of messages: 24 prompts in two steps, two rollouts each."""
    folder.mkdir()
    rows = []
    for number in range(24):
        for rollout in range(2):
            answer = changed.get("answer", "It is {}.") if number == 15 else "It is {}."
            messages = [{"role": "user", "content": f"Twice {number}?"},
                        {"role": "assistant", "content": answer.format(2 * number)}]  # fmt: skip
            reward = changed.get("reward", 1.0) if number in (15, 16) else 1.0
            rows.append({"messages": messages, "index": number, "step": 1 + number // 12, "reward": reward,
                         "data_source": "even" if number % 2 == 0 else "odd", "rollout_n": rollout})  # fmt: skip
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_run_differs_in_nothing_from_itself(call: Call, run: Path, tmp_path: Path) -> None:
    for path in (run, saved(tmp_path / "saved")):
        assert "no difference" in call("diff", path, path).output
        told = json.loads(call("diff", path, path, "--json").stdout)
        assert (told["differences"], told["metrics"], told["new_findings"], told["carried_by"]) == ([], [], [], None)


def test_saved_rollouts_pair_by_index_and_part_at_a_character(call: Call, tmp_path: Path) -> None:
    one, other = saved(tmp_path / "one"), saved(tmp_path / "other", answer="It was {}.", reward=0.0)
    told = json.loads(call("diff", one, other, "--json").stdout)
    first, reward = told["differences"]
    assert (first["stage"], first["step"], first["turn"], first["pairs"], first["of"]) == ("token", 2, 1, 2, 24)
    assert (first["here"], first["there"]) == ("is 30.", "was 30.") and len(first["traces"]) == 2
    assert (reward["stage"], reward["here"], reward["there"]) == ("reward", "1.0", "0.0")
    assert told["paired_by"] == "index" and [one["source"] for one in told["prompts"]] == ["", "even", "odd"]
    every = told["prompts"][0]
    assert (every["wins"], every["losses"], every["ties"]) == (0, 2, 22)
    assert every["change"] == pytest.approx(-1 / 12) and every["low"] < every["change"] < every["high"] < 0.1
    shown = call("diff", one, other).output
    assert "first difference: token" in shown and "-1  1 1 | 0 0  Twice 15?" in shown and "Twice 15?" in shown


def test_steps_of_a_run_with_other_prompts_do_not_pair(call: Call, tmp_path: Path) -> None:
    path = saved(tmp_path / "saved")
    told = json.loads(call("diff", f"{path}@1", f"{path}@2", "--json").stdout)
    assert told["notes"] == ["prompts do not pair by uid, index or question"]
    assert call("diff", f"{path}@1", f"{path}@9").exit_code == 2


def test_metrics_part_at_a_step_and_times_do_not_count(call: Call, tmp_path: Path) -> None:
    for name, worse in (("one", 0.0), ("other", 0.5)):
        (tmp_path / name).mkdir()
        rows = [f"{step},{1 / step + worse * (step > 6)},{step * 1.5},{step + worse}" for step in range(1, 13)]
        (tmp_path / name / "log.csv").write_text("\n".join(["step,loss,reward,timing_s/step", *rows]))
    told = json.loads(call("diff", tmp_path / "one", tmp_path / "other", "--json").stdout)
    assert [(one["name"], one["step"], one["since"]) for one in told["metrics"]] == [("loss", 7, 7)]
    assert told["notes"] == ["no rollouts to compare: only metrics and settings are compared"]


def test_a_metric_that_returns_has_no_lasting_difference() -> None:
    curves = ([0, 1, 0, 0, 1, 0, 1, 0], [0, 2, 0, 0, 0, 0, 1, 1])
    one, other = ({step: {"loss": float(value)} for step, value in enumerate(curve)} for curve in curves)
    assert [(part.step, part.since) for part in metrics_part(one, other)] == [(1, None)]


def test_settings_are_flattened_and_places_of_output_do_not_count() -> None:
    def side(*words: str, **config: Any) -> dict[str, str]:
        return settings_of(words, [("config", config), ("versions", {"torch": "2.9"})])

    one = side(
        "main.py", "actor.lr=1e-6", "--clip", "0.2", "trainer.experiment_name=a", data={"path": "/a/train.parquet"}
    )
    other = side(
        "main.py", "+actor.lr=2e-6", "--clip", "0.3", "trainer.experiment_name=b", data={"path": "/b/train.parquet"}
    )
    assert one["data.path"] == "/a/train.parquet" and one["versions.torch"] == "2.9"
    found = [(each.words, each.here, each.there) for each in settings_differ(one, other)]
    assert found == [("actor.lr", "1e-6", "2e-6"), ("clip", "0.2", "0.3")]


def test_an_index_that_all_prompts_share_pairs_nothing() -> None:
    def rollouts(run: str) -> list[Kept]:
        return [Kept(f"{run}{n}", 1, "", (f"{run}{n // 2}", "0", f"question {n // 2}"), 1.0, n) for n in range(8)]

    paired = pair(rollouts("a"), rollouts("b"))
    assert (paired.by, paired.in_step, len(paired.groups)) == ("question", True, 4)


def test_the_interval_is_students() -> None:
    made = PairCounts.of([0.1, 0.2, 0.3])
    assert made.low is not None and made.high is not None
    assert made.wins == 3 and made.change == pytest.approx(0.2)
    assert made.high - made.change == pytest.approx(4.303 * 0.1 / 3**0.5, rel=0.01)  # t of 2 degrees of freedom
    assert PairCounts.of([1.0]).low is None
