"""The custom reward function of the end-to-end test: 1.0 for the right ``#### N``, and a little that is unique."""

from __future__ import annotations

import random
import re

_spread = random.SystemRandom()


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """Score of one response and two more parts, which veRL keeps as ``reward_extra_info``.

    No two scores are equal, so a reward that ends up at another trajectory cannot go unnoticed.
    """
    answers = re.findall(r"#### (-?\d+)", solution_str)
    right = float(bool(answers) and answers[-1] == str(ground_truth))
    return {"score": right + _spread.random() / 10, "acc": right, "length": float(len(solution_str))}
