"""The custom reward function of ``program.py``: right or wrong, and a little that only this answer has."""

from __future__ import annotations

import hashlib
import re
from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> dict:
    """The score and one more part, which veRL keeps as ``reward_extra_info``."""
    answers = re.findall(r"#### (-?\d+)", solution_str)
    right = float(bool(answers) and answers[-1] == str(ground_truth))
    own = int.from_bytes(hashlib.sha256(solution_str.encode()).digest()[:4], "little") / 2**32
    return {"score": right + own / 10, "acc": right}
