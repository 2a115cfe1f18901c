"""Cases of a promise: ``make test`` tries some, ``make test-all`` each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def some(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Parameters for each of ``cases``; all but ``kept`` are marked ``long``. A case that is a tuple has several
    values."""
    every = list(cases)
    assert all(case in every for case in kept), "a case that is kept is one of the cases"
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[] if case in kept else [pytest.mark.long])
        for case in every
    ]


def examples(count: int) -> int:
    """The examples that hypothesis makes for a test: a quarter of ``count`` with ``make test``."""
    return count // int(os.environ.get("EXAMPLES_DIVIDED_BY", "1"))


def in_turns(rows: Iterable[Any], columns: Sequence[Any]) -> list[Any]:
    """Parameters (row, column) for each pair; without the mark ``long`` each row has one column, the next row the next
    column."""
    return [
        pytest.param(row, column, marks=[] if place == number % len(columns) else [pytest.mark.long])
        for number, row in enumerate(rows)
        for place, column in enumerate(columns)
    ]
