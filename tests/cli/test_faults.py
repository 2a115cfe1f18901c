"""The public set of faults: each run has the finding of its name, its twin has none, ``autotrace demo`` opens both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.findings.faults import PLACE, found, played

RUNS = {name: scenario for name, _, scenario in played()}


@pytest.mark.parametrize("name", RUNS)
def test_a_fault_is_found_and_its_twin_is_clean(name: str) -> None:
    code = RUNS[name].code
    codes = found(PLACE / name)
    assert (code in codes and codes <= {code, *RUNS[name].also}) if code else not codes


def test_the_set_is_small_and_names_no_machine() -> None:
    files = [path for path in PLACE.rglob("*") if path.is_file()]
    assert {str(path.parent.parent.parent.relative_to(PLACE)) for path in files if path.suffix == ".parquet"} == {*RUNS}
    assert sum(path.stat().st_size for path in files) < 3_000_000


def test_the_demo_opens_a_fault_and_names_its_twin(call: Call, runs: Path) -> None:
    shown = call("demo", "AT-TOOL-RAISES").output
    assert "AT-TOOL-RAISES" in shown and "tool-raises/clean" in shown and "autotrace diff " in shown
    unknown = call("demo", "nothing")
    assert unknown.exit_code == 2 and "there is no recorded fault 'nothing'; there are " in unknown.stderr
    told = call("diff", PLACE / "tool-raises" / "clean", PLACE / "tool-raises" / "fault").stdout
    assert "first difference: token" in told and "new AT-TOOL-RAISES" in told


def test_every_run_of_the_set_is_read_without_the_machine_that_made_it() -> None:
    for path in PLACE.rglob("*.parquet"):
        data = path.read_bytes()
        assert b"/tmp/" not in data and b"/root" not in data
