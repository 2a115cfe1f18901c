"""TRL's ``log_completions=True``: ``completions/completions_{step}.parquet``, a rollout a row.

Columns ``step``, ``prompt``, ``completion``, then a column for each reward function, what ``log_extra`` was given, and
``advantage`` (TRL 1.16, ``trl/trainer/grpo_trainer.py``; earlier releases lack some). The weights of the functions are
not in the file: where there are several, the reward is their sum, as TRL's is by default.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotrace.foreign.calls import Calls
from autotrace.foreign.containers import Format, Row, names
from autotrace.foreign.messages import texts
from autotrace.trajectory.jsonable import number
from autotrace.trajectory.model import Trajectory


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    calls = Calls("trl")
    calls.conversation([*texts(row.get("prompt"), "user"), *texts(row.get("completion"), "assistant")])
    parts = {name: value for name, value in row.items() if name not in ("step", "prompt", "completion", "advantage")}
    known = [value for value in map(number, parts.values()) if value is not None and not math.isnan(value)]
    facts = {
        "reward": sum(known) if known else None, "advantage": row.get("advantage"),
        "reward_extra_info": parts if len(parts) > 1 else None,
    }  # fmt: skip
    yield calls.trajectory({"step": row.get("step")}, facts)


FORMAT = Format("trl", "TRL's completions", (".parquet",), names("step prompt completion"), read)
