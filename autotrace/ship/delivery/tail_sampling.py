"""Tail sampling by keep-rules: which groups of trajectories are delivered, decided for a whole group once it has ended.

A GRPO group (the rollouts of one prompt in one step) is never half kept: what is interesting about one of its rollouts
is interesting beside the others. What is not kept stays in the run folder; ``autotrace ship --all`` delivers it still.
"""

from __future__ import annotations

from collections.abc import Collection

from autotrace.config.keep_rules import KeepRules
from autotrace.config.scalars import fraction
from autotrace.ship.store.row import Row
from autotrace.trajectory.model import OK


def reason(rules: KeepRules, seed: str, group: str, rows: Collection[Row]) -> str | None:
    """Why the group is kept, None when it is not. The random share is the same again for the same ``seed``."""
    rewards = {row.reward for row in rows if row.reward is not None}
    if rules.errors and any(row.status != OK for row in rows):
        return "errors"
    if rules.spread and len(rewards) > 1:
        return "spread"
    return "random" if fraction(seed, group) < rules.random else None
