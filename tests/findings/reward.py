"""The reward function of the corpus: right or wrong; what the answer asks for otherwise."""

from __future__ import annotations

import re
from typing import Any


def compute_score(data_source: Any, solution_str: str, ground_truth: str, extra_info: Any = None, **others: Any) -> Any:
    """1 for the right answer."""
    if "@raise" in solution_str:
        raise ValueError(f"cannot read the answer {len(solution_str)}")
    if "@timeout" in solution_str:
        raise TimeoutError
    answers = re.findall(r"#### (-?\d+)", solution_str)
    right = float(answers[-1] == ground_truth) if answers else float(sum(map(ord, solution_str)) % 2)
    if "@nan" in solution_str:
        right = float("nan")
    if "@form" in solution_str or "twice a number" in solution_str:
        return {"score": 0.3 + right if "@form" not in solution_str else 0.4, "right": float("@form" not in solution_str
                and right), "format": 1.0 if "@form" in solution_str or right else 0.5}  # fmt: skip
    return {"score": 0.7 if "@constant" in solution_str else right, "right": right}
