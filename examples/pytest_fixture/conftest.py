"""A fixture that records what an agent does in a test. Run: pytest examples/pytest_fixture"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import autotrace

Trajectories = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def trajectories(tmp_path: Path) -> Iterator[Trajectories]:
    """Records until the test calls it, which returns the trajectories in the order in which they ended."""
    spec = Path(__file__).with_name("traced.yaml")
    with autotrace.start(spec, backend="jsonl", run_dir=tmp_path, quiet=True) as run:

        def delivered() -> list[dict[str, Any]]:
            run.stop()
            lines = Path(str(run.folder), "trajectories.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]

        yield delivered
