"""The numbers of a batch equal those of veRL's own functions on the same tensors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.rollout_corr_helper import compute_offpolicy_metrics, compute_rollout_correction_weights
from verl.utils.debug.metrics import calculate_debug_metrics

from autotrace.adapters.verl import token_numbers
from autotrace.spool.token_facts import MASK, NUMBERS, columns, pack_summary, summary

ROWS, WIDTH = 37, 60


def batch(seed: int = 0, noise: float = 0.3) -> dict[str, torch.Tensor]:
    """Log-probabilities of responses of several turns, padded; what stands beside the mask must not matter."""
    made = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, WIDTH, (ROWS,), generator=made)
    mask = (torch.arange(WIDTH) < lengths.unsqueeze(1)).long()
    mask[:, 10:14] = 0  # a tool's answer
    old = -torch.rand((ROWS, WIDTH), generator=made) * 3
    rollout = (old + noise * torch.randn((ROWS, WIDTH), generator=made)).clamp(max=0.0)
    entropy = torch.rand((ROWS, WIDTH), generator=made) * 2
    old[mask == 0], rollout[mask == 0] = math.nan, -50.0
    return {"old_log_probs": old, "rollout_log_probs": rollout, "response_mask": mask, "entropy": entropy}


def measured(of: dict[str, torch.Tensor], **more: Any) -> token_numbers.Measured:
    return token_numbers.measure(
        of["old_log_probs"], of["rollout_log_probs"], of["response_mask"], of["entropy"], **more
    )


def totals(made: token_numbers.Measured) -> dict[str, float]:
    """veRL's metrics of a batch, as they follow from the numbers of its rows."""
    rows = [dict(zip(NUMBERS, numbers, strict=True)) for numbers in made.rows.values()]
    tokens = sum(row["tokens"] for row in rows)

    def mean(name: str) -> float:
        return math.fsum(row[name] * row["tokens"] for row in rows) / tokens

    def mean_over_rows(name: str) -> float:
        return math.fsum(row[name] for row in rows) / len(rows)

    return {
        "actor/entropy": mean("entropy"),
        "training/rollout_probs_diff_mean": mean("probs_diff_mean"),
        "training/rollout_probs_diff_max": max(row["probs_diff_max"] for row in rows),
        "rollout_corr/kl": -mean("log_ratio_mean"),
        "rollout_corr/k3_kl": mean("k3_mean"),
        "rollout_corr/training_log_ppl": -mean_over_rows("old_log_prob_mean"),
        "rollout_corr/rollout_log_ppl": -mean_over_rows("rollout_log_prob_mean"),
        "rollout_corr/training_ppl": math.fsum(math.exp(-row["old_log_prob_mean"]) for row in rows) / len(rows),
        "rollout_corr/rollout_ppl": math.fsum(math.exp(-row["rollout_log_prob_mean"]) for row in rows) / len(rows),
    }


@pytest.mark.parametrize("cells", [1 << 18, 500])
def test_verls_metrics_follow_from_the_rows(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_numbers, "CELLS", cells)
    given = batch()
    measured_batch = measured(given)
    clean = {name: torch.nan_to_num(one) for name, one in given.items()}
    tensors = TensorDict({**clean, "responses": torch.zeros(ROWS, WIDTH)}, batch_size=ROWS)
    theirs = calculate_debug_metrics(DataProto(batch=tensors))
    offpolicy = compute_offpolicy_metrics(clean["old_log_probs"], clean["rollout_log_probs"], clean["response_mask"])
    theirs |= {f"rollout_corr/{name}": value for name, value in offpolicy.items()}
    theirs["actor/entropy"] = agg_loss(clean["entropy"], clean["response_mask"], "token-mean").item()
    for name, value in totals(measured_batch).items():
        assert value == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), name
    assert measured_batch.log_perplexity() == pytest.approx(theirs["rollout_corr/training_log_ppl"], rel=1e-6)


def test_of_values_in_bfloat16_the_probabilities_are_verls() -> None:
    """The V1 trainer keeps what its forward pass computes in, and sums in it; sums here are exact."""
    given = {name: torch.nan_to_num(one) for name, one in batch().items()}
    given["old_log_probs"] = given["old_log_probs"].bfloat16()
    made = totals(measured(given))
    tensors = TensorDict({**given, "responses": torch.zeros(ROWS, WIDTH)}, batch_size=ROWS)
    theirs = calculate_debug_metrics(DataProto(batch=tensors))
    offpolicy = compute_offpolicy_metrics(given["old_log_probs"], given["rollout_log_probs"], given["response_mask"])
    theirs |= {f"rollout_corr/{name}": value for name, value in offpolicy.items()}
    for name in ("training/rollout_probs_diff_mean", "training/rollout_probs_diff_max", "rollout_corr/kl",
                 "rollout_corr/k3_kl", "rollout_corr/rollout_log_ppl"):  # fmt: skip
        assert made[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), name
    assert made["rollout_corr/training_log_ppl"] == pytest.approx(theirs["rollout_corr/training_log_ppl"], rel=2**-8)


def test_each_row_has_its_numbers() -> None:
    given = batch()
    made = measured(given)
    assert sorted(made.rows) == list(range(ROWS)) and not made.left
    for row, numbers in made.rows.items():
        read = summary(pack_summary(numbers))
        kept = given["response_mask"][row].bool()
        old, rollout = (given[name][row][kept].double() for name in ("old_log_probs", "rollout_log_probs"))
        distance = (old - rollout).abs()
        assert read["tokens"] == int(kept.sum()) and read["not_finite"] == 0
        assert read["mismatch_mean"] == pytest.approx(distance.mean().item(), rel=1e-5)
        assert read["mismatch_max"] == pytest.approx(distance.max().item(), rel=1e-5)
        assert read["mismatch_at"] == int(kept.nonzero().flatten()[distance.argmax()])
        assert read["probs_diff_max"] == pytest.approx((old.exp() - rollout.exp()).abs().max().item(), rel=1e-4)
        assert read["old_log_prob_mean"] == pytest.approx(old.mean().item(), rel=1e-5)
        assert read["entropy"] == pytest.approx(given["entropy"][row][kept].mean().item(), rel=1e-5)
        assert "is_weight_mean" not in read and "ref_kl_mean" not in read


def test_columns_are_kept_of_the_worst_rows_and_of_some_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_numbers, "WORST", 3)
    monkeypatch.setattr(token_numbers, "RANDOM", 2)
    given = batch()
    made = measured(given)
    at = NUMBERS.index("mismatch_max")
    worst = sorted(made.rows, key=lambda row: -made.rows[row][at])[:3]
    assert len(made.columns) == 5 and set(worst) <= made.columns.keys()
    token_numbers.add_later(made, given["old_log_probs"], given["response_mask"])
    for row, packed in made.columns.items():
        read, length = columns(packed), int(given["response_mask"][row].nonzero().max()) + 1
        kept = given["response_mask"][row][:length].bool()
        assert {len(one) for one in read.values()} == {length}
        assert read[MASK] == kept.int().tolist()
        exact = given["old_log_probs"][row][:length][kept]
        assert torch.tensor(read["old_log_probs"])[kept].tolist() == pytest.approx(exact.tolist(), rel=1e-3)
    assert not measured(given, some=False).columns
    assert len(measured(given, every=True).columns) == ROWS


def test_what_comes_later_is_added() -> None:
    given = batch()
    made = measured(given, every=True)
    before, old = given["response_mask"], given["old_log_probs"]
    after = before * (torch.arange(WIDTH) != 3)  # rejection sampling takes a token
    weights, reference = torch.full_like(old, 0.5), old - 0.25
    weights[:, 0] = 1.5
    token_numbers.add_later(made, old, after, reference, weights)
    token_numbers.add_advantages(made, torch.arange(float(WIDTH)).repeat(ROWS, 1), after)
    for row, numbers in made.rows.items():
        read = summary(pack_summary(numbers))
        assert read["rejected"] == int((before - after)[row].sum())
        assert (read["ref_kl_mean"], read["is_weight_max"]) == (pytest.approx(0.25, abs=1e-5), 1.5)
        of_row = columns(made.columns[row])
        assert of_row["advantages"] == [float(at) for at in range(made.lengths[row])]
        assert len(of_row["ref_log_prob"]) == len(of_row["rollout_is_weights"]) == made.lengths[row]


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("limits", [(None, 1.25), (0.8, 1.25)])
def test_weights_that_verl_cuts_are_counted(level: str, limits: tuple[float | None, float]) -> None:
    given = {name: torch.nan_to_num(one) for name, one in batch().items()}
    ratio, mask = (given["old_log_probs"] - given["rollout_log_probs"]) * given["response_mask"], given["response_mask"]
    lower, upper = limits
    threshold = upper if lower is None else f"{lower}_{upper}"
    weights, _ = compute_rollout_correction_weights(ratio, mask, level, threshold)
    made = measured(given)
    token_numbers.add_later(made, given["old_log_probs"], mask, None, weights, upper)
    raw = (ratio if level == "token" else ratio.sum(dim=1, keepdim=True).expand_as(ratio)).exp()
    cut = ((raw > upper) | (raw < (lower or 0.0))) & mask.bool()
    assert 0 < int(cut.sum()) < int(mask.sum())
    assert {row: summary(pack_summary(made.rows[row]))["clipped"] for row in made.rows} == dict(
        enumerate(cut.sum(dim=1).tolist())
    )


def test_numbers_of_an_earlier_release_are_read() -> None:
    packed = pack_summary([float(number) for number in range(len(NUMBERS))])
    assert summary(packed[:-4]) == {name: value for name, value in summary(packed).items() if name != NUMBERS[-1]}


def test_one_advantage_for_all_tokens_is_no_column() -> None:
    made = measured(batch(), every=True)
    token_numbers.add_advantages(made, torch.full((ROWS, WIDTH), 0.7), batch()["response_mask"])
    assert not any("advantages" in one for one in made.columns.values())


def test_without_time_rows_are_left_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_numbers, "CELLS", 4 * WIDTH)
    made = measured(batch(), seconds=0.0)
    assert len(made.rows) == 4 and made.left == ROWS - 4
    assert sorted(made.rows) == [0, 10, 20, 30]


def test_a_log_probability_that_is_no_number_is_counted() -> None:
    given = batch()
    given["old_log_probs"][5, 0] = math.nan
    given["old_log_probs"][6, 1] = -math.inf
    made = measured(given)
    assert summary(pack_summary(made.rows[5]))["not_finite"] == 1
    assert summary(pack_summary(made.rows[6]))["not_finite"] == 1
    assert "mismatch_mean" not in summary(pack_summary(made.rows[5]))


@pytest.mark.parametrize("mask", [0, 1])
def test_batches_of_every_shape(mask: int) -> None:
    for shape in ((0, 5), (3, 0), (1, 1), (2, 3)):
        zeros = torch.zeros(shape)
        made = token_numbers.measure(zeros, zeros, torch.full(shape, mask), None)
        assert len(made.rows) == (shape[0] if mask and shape[1] else 0)
        assert (made.log_perplexity() is None) == (not made.rows)


def test_without_the_engines_log_probabilities_the_trainers_own_are_known() -> None:
    given = batch()
    made = token_numbers.measure(given["old_log_probs"], None, given["response_mask"], None)
    read = summary(pack_summary(made.rows[0]))
    assert read.keys() == {"tokens", "old_log_prob_mean", "not_finite"}
    assert made.log_perplexity() == pytest.approx(totals(made)["rollout_corr/training_log_ppl"])


def test_columns_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_numbers, "MOST_BYTES", 1000)
    made = measured(batch(), every=True)
    size = sum(len(one) for columns in made.columns.values() for one in columns.values())
    assert 1000 < size < 1000 + 3 * 2 * WIDTH and len(made.columns) + made.without == len(made.rows) == ROWS
