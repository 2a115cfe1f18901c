"""The public set of faults: each run has the finding of its name, its twin has none, ``autotrace demo`` opens both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotrace.cli.open import TWINS as FILE
from tests.cases import some
from tests.cli.conftest import Call
from tests.findings import traced
from tests.findings.faults import PLACE, found, is_right, played
from tests.findings.saved import CLEAN, FOLDERS

RUNS = {each.folder: (each.scenario.code, each.scenario.also) for each in played()}
RUNS |= {folder: (code, frozenset()) for folder, code in FOLDERS.items()}
RUNS |= {folder: (code, traced.ALSO.get(code, frozenset())) for folder, code in traced.FOLDERS.items()}
TWINS: dict[str, str] = json.loads((PLACE / FILE).read_text())


@pytest.mark.parametrize("name", some(RUNS, *[*RUNS][::6]))
def test_a_fault_is_found_and_its_twin_is_clean(name: str) -> None:
    assert is_right(name, *RUNS[name]), found(PLACE / name)


def test_the_set_is_small_and_names_no_machine() -> None:
    files = [path for path in PLACE.rglob("*") if path.is_file()]
    runs = {str(path.relative_to(PLACE).parent).partition("/tables")[0] for path in files if path.name != FILE}
    assert runs == {*RUNS} == {f"{name}/fault" for name in TWINS} | {*TWINS.values()}
    assert sum(path.stat().st_size for path in files) < 3_000_000


def test_the_demo_opens_a_fault_and_names_its_twin(call: Call, runs: Path) -> None:
    shown = call("demo", "AT-TOOL-RAISES").output
    assert "AT-TOOL-RAISES" in shown and TWINS["tool-raises"] in shown and "autotrace diff " in shown
    curves = call("demo", "AT-KL-DRIFT").output
    assert "AT-KL-DRIFT" in curves and CLEAN[0] in curves and "autotrace steps " in curves
    unknown = call("demo", "nothing")
    assert unknown.exit_code == 2 and "there is no recorded fault 'nothing'; there are " in unknown.stderr
    told = call("diff", PLACE / TWINS["tool-raises"], PLACE / "tool-raises" / "fault").stdout
    assert "first difference: token" in told and "new AT-TOOL-RAISES" in told


def test_every_run_of_the_set_is_read_without_the_machine_that_made_it() -> None:
    for path in PLACE.rglob("*.parquet"):
        data = path.read_bytes()
        assert b"/tmp/" not in data and b"/root" not in data
