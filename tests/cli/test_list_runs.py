"""The runs of a folder."""

from __future__ import annotations

import json
from pathlib import Path

from autotrace.ship.shipper import ship
from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run, trajectory


def test_runs_are_listed_newest_first_with_how_far_they_are(call: Call, run: Path, runs: Path) -> None:
    assert ship(run, once=True).state == "done"
    new_run(runs, "later", created="2026-11-22T06:00:00+00:00", command=["python", "\x1b[2J.py"])
    cut = new_run(runs, "cut")
    (cut / "run.json").write_text("{")
    told = call("runs")
    assert told.exit_code == 0 and "\x1b" not in told.output
    lines = [line.split() for line in told.stdout.splitlines() if line.startswith(("later", run.name))]
    assert lines[0][:5] == ["later", "2026-11-22", "06:00:00", "not", "assembled"]
    assert lines[1][0] == run.name and lines[1][3:6] == ["done", "5", "0"]
    assert "cut/run.json cannot be read" in told.stderr


def test_runs_have_their_experiment_and_say_which_processes_died(call: Call, runs: Path) -> None:
    new_run(runs, "plain", created="2026-11-20T06:00:00+00:00")
    assert "experiment" not in call("runs").stdout
    process = Process(new_run(runs, "named", experiment="first try"))
    trajectory(process)
    process.die()
    ship(runs / "named", once=True)
    head, _, *lines = (line.split("  ") for line in call("runs").stdout.strip().splitlines())
    assert "processes died" in head and lines[0][:2] == ["named", "first try"]
    assert json.loads(call("runs", "--json").stdout.splitlines()[0])["died"] == 1


def test_a_run_whose_shipper_was_killed_is_stopped(call: Call, runs: Path) -> None:
    folder = new_run(runs)
    process = Process(folder)
    trajectory(process)
    process.exit()
    ship(folder, once=True)
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "running", "pending": 3}))
    (told,) = [json.loads(line) for line in call("runs", "--json", runs).output.splitlines()]
    assert (told["run"], told["state"], told["trajectories"], told["left"]) == ("run", "stopped", 1, 3)


def test_no_runs(call: Call, runs: Path) -> None:
    assert call("runs").output == (
        "autotrace: autotrace-runs holds no autotrace run (no run.json in it or one level below)\n"
    )  # fmt: skip
    assert "no such folder" in call("runs", "elsewhere").output
