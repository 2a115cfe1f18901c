"""The table of the backends, a line a row: a pytest plugin (``-p tests.rows``) for tests marked ``row("S3")``.

A test may add a word for its row's line with ``record_property("told", "V1: 80 of 80")``. A row that no test belongs to
fails the session.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

ROWS = {
    "S1": "both backends",
    "S2": "token2text",
    "S3": "sampling exact",
    "S4": "filters by every attribute",
    "S5": "project and experiment",
    "S6": "run link",
    "S7": "veRL's switches",
    "S8": "budgets",
    "S9": "rewards and advantages",
    "S10": "group of n compared",
    "S11": "nothing secret",
    "S12": "server down, slow, 401, 413, 429, 500 after commit",
}
_outcomes: dict[str, Counter[str]] = {row: Counter() for row in ROWS}
_told: dict[str, list[str]] = {row: [] for row in ROWS}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """Remember what came of each row's tests."""
    report = (yield).get_result()
    for mark in item.iter_markers("row"):
        for row in mark.args:
            if report.when == "call" or report.outcome != "passed":
                _outcomes[row][report.outcome] += 1
            if report.when == "call" and report.outcome == "passed":
                _told[row] += [str(value) for name, value in item.user_properties if name == "told"]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A row without a test is a failure."""
    if exitstatus == 0 and not session.config.option.collectonly and not all(_outcomes.values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table."""
    terminalreporter.section("the table of the backends")
    for row, what in ROWS.items():
        outcomes = _outcomes[row]
        good, every = outcomes["passed"], sum(outcomes.values())
        verdict = "no test ran" if not every else "ok" if good == every else "FAILED"
        words = f"; {', '.join(dict.fromkeys(_told[row]))}" if _told[row] else ""
        terminalreporter.write_line(f"{row:4}{what} ... {good} of {every} tests{words}: {verdict}")
