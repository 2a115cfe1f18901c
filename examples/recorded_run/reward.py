"""The reward function: 1 for the right number, a tenth for an answer in the asked form."""

from __future__ import annotations

import re
from typing import Any


def compute_score(data_source: Any, solution_str: str, ground_truth: str, extra_info: Any = None, **more: Any) -> Any:
    """Score of one trajectory with its parts."""
    answers = re.findall(r"#### (-?\d+)", solution_str)
    right = 0.9 * float(bool(answers) and answers[-1] == str(ground_truth))
    form = 0.1 * bool(answers)
    return {"score": right + form, "right": right, "form": form}
