"""The reward function of the corpus: right or wrong; what the answer asks for otherwise."""

from __future__ import annotations

import re
from typing import Any


def compute_score(data_source: Any, solution_str: str, ground_truth: str, extra_info: Any = None, **others: Any) -> Any:
    """1 for the right answer."""
    if "@nan" in solution_str:
        return float("nan")
    if "@raise" in solution_str:
        raise ValueError(f"cannot read the answer {len(solution_str)}")
    if "@timeout" in solution_str:
        raise TimeoutError
    if "@constant" in solution_str:
        return 0.7
    if "####" not in solution_str:
        return float(sum(map(ord, solution_str)) % 2)
    answers = re.findall(r"#### (-?\d+)", solution_str)
    right = float(bool(answers) and answers[-1] == ground_truth)
    return {"score": right, "right": right}
