"""Prints the table of the backends, a line a row: a pytest plugin (``-p tests.rows``).

A test names its row with ``@pytest.mark.row("sampling")`` and may add a note to the row's line with
``record_property("note", "V1: 80 of 80")``. A row without a test fails the session.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

ROWS = {
    "both backends": "MLflow and Weave hold the same trajectories",
    "token2text": "text decoded from tokens, as veRL's token2text",
    "sampling": "exactly the sampled trajectories, no others",
    "filters": "every attribute can be filtered by",
    "project and experiment": "named as the trainer names them",
    "link to the run": "trajectories are linked to the run of veRL's logger",
    "veRL's switches": "veRL's own trace settings are followed",
    "budgets": "what is sent stays within its budget",
    "rewards and advantages": "the trainer's own numbers",
    "comparing a group": "the rollouts of a prompt side by side",
    "findings": "findings are issues of MLflow, at the call that they are about",
    "secrets": "no credential anywhere",
    "MLflow releases": "both ways into MLflow's tables, read back by its client: equal, field by field",
    "server faults": "down, slow, 401, 413, 429, 500 after commit",
}
_outcomes: dict[str, Counter[str]] = {row: Counter() for row in ROWS}
_notes: dict[str, list[str]] = {row: [] for row in ROWS}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """Remember what came of each row's tests."""
    report = (yield).get_result()
    for mark in item.iter_markers("row"):
        for row in mark.args:
            if report.when == "call" or report.outcome != "passed":
                _outcomes[row][report.outcome] += 1
            if report.when == "call" and report.outcome == "passed":
                _notes[row] += [str(value) for name, value in item.user_properties if name == "note"]


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
        notes = f"; {', '.join(dict.fromkeys(_notes[row]))}" if _notes[row] else ""
        terminalreporter.write_line(f"{row}: {what} ... {good} of {every} tests{notes}: {verdict}")
