"""Rows of the table of ``make hostile`` that hold: what a program does every day is not disturbed by being traced."""

from __future__ import annotations

from pathlib import Path

import pytest

from .table import CASES, Case

pytestmark = pytest.mark.timeout(1000)


@pytest.mark.parametrize("case", [case for case in CASES if case.in_tests], ids=lambda case: case.name)
def test_row(case: Case, tmp_path: Path) -> None:
    *_, problems = case.run(tmp_path)
    assert not problems
