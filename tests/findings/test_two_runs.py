"""Causes planted in two veRL runs are named by ``autotrace diff``. All fourteen: ``make diff``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.findings import two_runs

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.long
def test_each_cause_is_named_with_its_pair_and_token(tmp_path: Path) -> None:
    problems = two_runs.judged([*two_runs.IN_STEPS, "configuration without effect", "none"], tmp_path)
    assert not any(problems.values()), problems
