"""The short form of ``make stress``."""

from __future__ import annotations

from pathlib import Path

import pytest

from .run import PARTS, run


@pytest.mark.parametrize("part", PARTS)
def test_no_value_differs_and_no_record_is_lost(part: str, tmp_path: Path) -> None:
    print(run(part, 1.0, 1, tmp_path))
