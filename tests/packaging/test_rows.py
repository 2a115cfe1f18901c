"""The table of the backends (``make test-backends``): what a test names is a row of it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rows import ROWS

TESTS = Path(__file__).parents[1]


def test_each_row_has_a_test_and_each_test_names_a_row() -> None:
    named = {
        row
        for folder in ("backends", "weave_server", "sinks", "secrets", "verl", "ship", "record", "cli")
        for module in (TESTS / folder).rglob("test_*.py")
        for row in re.findall(r'mark\.row\("([^"]+)"\)', module.read_text())
    }
    assert named == set(ROWS)
