"""What the rollouts of one prompt share."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.ship.index.summary import begin
from autotrace.ship.store.row import TraceRow


def group(trace_id: str = "trace", **attributes: Any) -> str:
    """Of a trajectory that begins with these attributes."""
    row = TraceRow(trace_id)
    begin(row, "solve", "trajectory", 0, attributes)
    return row.group


def sample(**attributes: Any) -> str:
    """The same, of one sample."""
    return group(**{"step": 3, "sample_index": "17", "validate": False, "project_name": "maths", **attributes})


def test_rollouts_without_a_uid_are_one_group_by_project_step_sample_and_validate() -> None:
    assert sample(rollout_n=0) == sample(rollout_n=1)


@pytest.mark.parametrize(
    "other",
    [{"step": 4}, {"sample_index": "18"}, {"validate": True}, {"project_name": "code"}, {"data_source": "gsm8k"}],
    ids=lambda other: next(iter(other)),
)
def test_another_prompt_is_another_group(other: dict[str, Any]) -> None:
    assert sample() != sample(**other)


def test_a_uid_decides_alone_and_without_a_sample_there_is_no_group() -> None:
    assert sample(uid="u", sample_index="1") == sample(uid="u", sample_index="2")
    assert group("a", step=1) != group("b", step=1)
    assert TraceRow("a", step=1).group != TraceRow("b", step=1).group
