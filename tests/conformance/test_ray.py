"""Ray actors and tasks, traced in the worker, untouched in a worker that does not trace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .ray_case import check


@pytest.mark.long  # tests/adapters/test_ray.py has calls of each kind
def test_actors_and_tasks(tmp_path: Path) -> None:
    assert "with Ray" in check(tmp_path, sys.executable)
