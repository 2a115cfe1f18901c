"""Rows of the table of ``make hostile`` that hold: what a program does every day is not disturbed by being traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases import some

from .table import CASES, Case

pytestmark = pytest.mark.timeout(1000)


def rows() -> list[Any]:
    """The rows of ``make test``: the first of each program, without a backlog. ``make test-all`` has one of each
    family."""
    chosen = [case for case in CASES if case.in_tests]
    first = {case.program: case for case in reversed(chosen)}
    return some(chosen, *(case for case in first.values() if not case.name.startswith("backlog")))


@pytest.mark.parametrize("case", rows(), ids=lambda case: case.name)
def test_row(case: Case, tmp_path: Path) -> None:
    *_, problems = case.run(tmp_path)
    assert not problems
