"""Find the rollouts behind the advantages that OpenRLHF computes.

The trainer, a separate process, computes advantages for batches of small batches: tensors in the CPU's memory whose
rows have no name. A row is recognised by the tokens up to the model's last token, where the last turn of the rollout
ended. A spec has neither rows of rows nor digests.

Read in the wheels of OpenRLHF 0.9.3 to 0.11.2. Anything unexpected is left alone.
"""

from __future__ import annotations

from typing import Any

from autotrace.adapters.hooks import follow
from autotrace.adapters.trainers import SKIPPED, digests, is_here, response_values
from autotrace.record import faults, statements
from autotrace.record.follower import Follower

COMPUTED = "openrlhf.trainer.ppo_utils.experience_maker.RemoteExperienceMaker.compute_advantages_and_returns"


def install() -> None:
    """Follow the target of the spec. Called once, right after ``openrlhf`` was imported."""
    follow(COMPUTED, _Advantages())


class _Advantages(Follower):
    """Records the advantages of a step, and the rewards that a reward model gave."""

    def holds(self, call: Any, result: Any) -> bool:
        for experience in result if type(result) is list else ():
            _record(experience)
        return False


def _record(experience: Any) -> None:
    """Record the rows of ``experience``, which all have the same size; ``sequences`` has a token more than the
    masks."""
    sequences, actions = experience.sequences, experience.action_mask
    if not (is_here(sequences) and is_here(actions)):
        faults.count(SKIPPED, len(sequences))
        return
    size = actions.shape[1]
    ends = (size - actions.flip(1).int().argmax(dim=1)) * actions.any(dim=1) + 1
    begins = experience.attention_mask.int().argmax(dim=1).tolist()
    lengths = [end - begin for begin, end in zip(begins, ends.tolist(), strict=True)]
    if any(begins):  # padded on the left
        sequences = sequences.clone()
        for row, begin in enumerate(begins):
            sequences[row] = sequences[row].roll(-begin)
    scores = _numbers(experience.info.get("reward"), len(lengths))
    values = response_values(experience.advantages, actions)
    for row, digest in enumerate(digests(sequences, lengths)):
        key: dict[str, Any] = {"digest": digest}
        score = scores[row] if scores else None
        if score is not None:
            key["score"] = score
            statements.fact("token_level_score", score, key)
        if values:
            statements.fact("advantage", values[row], key)


def _numbers(values: Any, count: int) -> list[float]:
    """Return a number for each row; empty for any other value."""
    if not is_here(values) or tuple(values.shape) != (count,):
        return []
    return [float(value) for value in values.tolist()]
