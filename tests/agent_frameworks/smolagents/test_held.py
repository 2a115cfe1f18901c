"""Functions that the framework holds are recorded, and are what they were."""

from __future__ import annotations

from pathlib import Path

from tests.agent_frameworks.holding import check
from tests.agent_frameworks.tracing import python_of


def test_what_the_framework_holds_is_recorded(tmp_path: Path) -> None:
    check(python_of("smolagents"), "tests.agent_frameworks.smolagents.held", tmp_path)
