"""What the rollouts of one prompt share."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.ship.store.row import Row


def row(**fields: Any) -> Row:
    return Row("trace", **{"step": 3, "sample_index": "17", "validate": False, "project_name": "maths", **fields})


def test_rollouts_without_a_uid_are_one_group_by_project_step_sample_and_validate() -> None:
    assert row(rollout_n=0).group == row(rollout_n=1).group


@pytest.mark.parametrize(
    "other",
    [{"step": 4}, {"sample_index": "18"}, {"validate": True}, {"project_name": "code"}, {"data_source": "gsm8k"}],
    ids=lambda other: next(iter(other)),
)
def test_another_prompt_is_another_group(other: dict[str, Any]) -> None:
    assert row().group != row(**other).group


def test_a_uid_decides_alone_and_without_a_sample_there_is_no_group() -> None:
    assert row(uid="u", sample_index="1").group == row(uid="u", sample_index="2").group
    assert Row("a", step=1).group != Row("b", step=1).group
