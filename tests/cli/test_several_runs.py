"""Commands that read all runs that are named, and those that are about one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import autotrace
from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run, trajectory

OLD, NEW = "20261121-064412-3f9c1a", "20261122-000000-aaaaaa"


@pytest.fixture
def two(runs: Path, run: Path) -> Path:
    """A folder with the run of five and one of a single trajectory."""
    process = Process(new_run(runs, NEW))
    trajectory(process, step=2, uid="u2", sample_index="7", reward=0.9)
    process.exit()
    return runs


def ids(output: str) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in output.splitlines()]
    return [(row["run_id"], row["trace_id"]) for row in rows]


@pytest.mark.parametrize("named", [["autotrace-runs"], [OLD, NEW], [f"autotrace-runs/{NEW}", OLD], [OLD, NEW, OLD]])
def test_all_runs_that_are_named_are_listed(call: Call, two: Path, named: list[str]) -> None:
    done = call("ls", *named, "--json")
    assert done.exit_code == 0 and done.stderr == ""
    found = ids(done.stdout)
    assert sorted(run for run, _ in found) == [OLD] * 5 + [NEW] and len(set(found)) == 6
    assert {run for run, _ in ids(call("ls", "--json").stdout)} == {NEW}, "the newest without a name"


def test_the_run_of_each_line_is_seen_as_short_as_it_can_be(call: Call, two: Path) -> None:
    shown = call("ls", two).stdout
    head, _, *lines = shown.strip().splitlines()
    assert head.split()[:3] == ["run_id", "trace", "step"]
    assert sorted(line.split()[0] for line in lines[:6]) == ["20261121"] * 5 + ["20261122"]
    assert "best    20261121  " in shown
    assert call("ls", two / OLD).stdout.split()[0] == "trace"
    assert call("ls", two, "--sort", "duration").stdout.split()[:2] == ["run_id", "trace"]
    tree = call("ls", two, "--tree").stdout
    assert {line for line in tree.splitlines() if line in (OLD, NEW)} == {OLD, NEW} and tree.count("step 2\n") == 2


def test_what_is_in_any_of_them_is_found_shown_and_compared(call: Call, two: Path) -> None:
    (_, new), (_, old) = [next(pair for pair in ids(call("ls", two, "--json").stdout) if pair[0] == run)
                          for run in (NEW, OLD)]  # fmt: skip
    for trace in (new, old):
        assert f"trajectory {trace}" in call("show", trace, two).stdout
        assert f"trajectory {trace}" in call("show", trace[:8], OLD, NEW).stdout
    assert "reward 0.25" in call("show", "--worst", OLD, NEW).stdout
    one, other = (
        json.loads(call("grep", "^4$", path, "--json", "--limit", "1").stdout)["run_id"] for path in (OLD, NEW)
    )
    assert (one, other) == (OLD, NEW)
    beside = call("compare", old, new, "--run", str(two)).stdout
    (named,) = [line.split() for line in beside.splitlines() if line.startswith(" run ")]
    assert named == ["run", OLD, NEW]
    assert "\n run " not in call("compare", "--run", OLD, "--step", "2", "--sample", "7").stdout


def test_exports_of_several_runs(call: Call, two: Path, tmp_path: Path) -> None:
    refused = call("export", two)
    assert (refused.exit_code, refused.output) == (
        2, "autotrace: there is not one run folder to write into: say where to write to with --out PATH\n",
    )  # fmt: skip
    lines = call("export", two, "--out", "-").stdout.splitlines()
    assert [json.loads(line)["run_id"] for line in lines] == [OLD] * 5 + [NEW]
    assert call("export", OLD, NEW, "--format", "parquet", "--out", tmp_path / "lake").exit_code == 0
    again = autotrace.open(tmp_path / "lake")
    assert [run.run_id for run in again] == [OLD, NEW] and again.table().num_rows == 6


def test_a_command_about_one_run_says_which(call: Call, two: Path) -> None:
    for command in ("steps", "diagnose"):
        done = call(command, two)
        assert done.stdout == call(command, NEW).stdout and done.exit_code == 0
        assert done.stderr == f"autotrace: this reads {NEW}, the newest of 2 runs in {two}; older: {OLD}\n"
        refused = call(command, OLD, NEW)
        said = f"autotrace: this is about one run, and 2 are named: {OLD}, {NEW}; name one\n"
        assert (refused.exit_code, refused.output) == (2, said)


def test_another_run_of_the_same_name_is_not_left_out_in_silence(call: Call, tmp_path: Path, runs: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder / "dump").mkdir(parents=True)
        (tmp_path / folder / "dump" / "1.jsonl").write_text(
            json.dumps({"input": "2+2", "output": folder, "score": 1.0, "step": 1}) + "\n"
        )
    done = call("ls", "a/dump", "b/dump", "--json")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == "autotrace: b/dump is left out: another run has the same name\n"


def test_a_run_that_cannot_be_read_is_said(call: Call, two: Path) -> None:
    (two / NEW / "run.json").write_text("{")
    done = call("ls", two, "--json")
    assert {run for run, _ in ids(done.stdout)} == {OLD}
    assert f"{two / NEW / 'run.json'} cannot be read (" in done.stderr and done.stderr.count("\n") == 1
