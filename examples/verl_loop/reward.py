"""The reward function, as a user of veRL writes it: right answer 1, and a tenth for an answer in the asked form."""

from __future__ import annotations

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """Score of one trajectory with its parts."""
    answers = re.findall(r"#### (-?\d+)", solution_str)
    right = float(bool(answers) and answers[-1] == str(ground_truth))
    form = 0.1 * bool(answers)
    return {"score": right + form, "right": right, "form": form}
