"""Write the toy dataset of the end-to-end test: ``python make_data.py OUT.parquet ROWS``.

Every row asks for a sum the tiny model has learned. ``extra_info`` carries what a veRL dataset carries: ``index``
(the ``sample_index`` of a trajectory) and ``tools_kwargs`` with the per-sample ``create_kwargs`` of a ``BaseTool``, as
in veRL's gsm8k example; function tools ignore the latter.
"""

from __future__ import annotations

import sys

import pandas as pd


def row(index: int) -> dict[str, object]:
    """One question; ``index`` decides the two numbers (0 to 4 each)."""
    a, b = index % 5, (3 * index + 1) % 5
    return {
        "data_source": "toy/add",
        "agent_name": "tool_agent",
        "ability": "math",
        "prompt": [{"role": "user", "content": f"What is {a} plus {b}?"}],
        "reward_model": {"style": "rule", "ground_truth": str(a + b)},
        "extra_info": {
            "index": index,
            "split": "train",
            "need_tools_kwargs": True,
            "tools_kwargs": {"add": {"create_kwargs": {"ground_truth": str(a + b)}}},
        },
    }


if __name__ == "__main__":
    pd.DataFrame([row(index) for index in range(int(sys.argv[2]))]).to_parquet(sys.argv[1])
