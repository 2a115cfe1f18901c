"""An actor that outlives a run records the rest of a trajectory in the next one: two runs have its trace id."""

from __future__ import annotations

import json
from pathlib import Path

import autotrace
from autotrace.ship.shipper import ship
from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run, trajectory

FIRST, SECOND = "20261121-064412-3f9c1a", "20261122-000000-aaaaaa"
TRACE = bytes(range(16))


def recorded(runs: Path, name: str, in_tables: bool, reward: float) -> None:
    process = Process(new_run(runs, name, backends=[]))
    trajectory(process, trace=TRACE, reward=reward)
    process.exit()
    if in_tables:
        assert ship(runs / name, once=True).state == "done"


def check(call: Call, runs: Path) -> None:
    rows = [json.loads(line) for line in call("ls", runs, "--json").stdout.splitlines()]
    assert [(row["run_id"], row["reward"], row["trace_id"]) for row in rows] == [
        (FIRST, 0.25, TRACE.hex()), (SECOND, 1.0, TRACE.hex()),
    ]  # fmt: skip
    assert call("label", TRACE.hex(), "--run", runs / SECOND, "good").exit_code == 0
    labelled = [
        json.loads(line) for line in call("ls", runs, "--where", "label = 'good'", "--json").stdout.splitlines()
    ]
    assert [row["run_id"] for row in labelled] == [SECOND]
    several = call("show", TRACE.hex(), runs)
    assert several.exit_code != 0
    assert f"several traces: {TRACE.hex()} of {FIRST}, {TRACE.hex()} of {SECOND}" in several.output.replace("\n", " ")
    assert "reward 0.25" in call("show", "--where", f"run_id = '{FIRST}'", runs).stdout
    assert "reward 0.25" in call("show", "--worst", runs).stdout
    exported = [json.loads(line) for line in call("export", runs, "--out", "-").stdout.splitlines()]
    assert [(one["run_id"], one["facts"]["reward"]) for one in exported] == [(FIRST, 0.25), (SECOND, 1.0)]
    found = [json.loads(line)["run_id"] for line in call("grep", "^4$", runs, "--json").stdout.splitlines()]
    assert {*found} == {FIRST, SECOND}
    of_both = autotrace.open(runs).trajectories()
    assert [(one.run_id, one.facts["reward"]) for one in of_both] == [(FIRST, 0.25), (SECOND, 1.0)]


def test_both_are_in_tables(call: Call, runs: Path) -> None:
    recorded(runs, FIRST, True, 0.25)
    recorded(runs, SECOND, True, 1.0)
    check(call, runs)


def test_one_is_in_no_table_yet(call: Call, runs: Path) -> None:
    recorded(runs, FIRST, True, 0.25)
    recorded(runs, SECOND, False, 1.0)
    check(call, runs)
