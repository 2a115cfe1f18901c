"""Every command that reads a run, where the user may not read it: one sentence that says what and whose."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run, trajectory

ROOT = os.getuid() == 0
FOLDER, FILE = (0o700, 0o600) if ROOT else (0o000, 0o000)
"""Modes that keep the user of ``tests.cli.another_user`` out."""
OLD, NEW = "20261121-064412-3f9c1a", "20261122-064412-3f9c1a"
ONE = [["ls"], ["ls", "--tree"], ["status"], ["diagnose"], ["steps"], ["export", "--out", "-"], ["ship"]]


@pytest.fixture
def runs() -> Iterator[Path]:
    """A folder of two runs that another user reaches, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder) / "runs"
        parent.mkdir()
        for name in (OLD, NEW):
            process = Process(new_run(parent, name))
            for rollout in (0, 1):
                trajectory(process, step=1, rollout=rollout, uid="u", reward=0.5)
            process.exit()
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield parent
        for path in (parent, *parent.glob("*"), *parent.glob("*/spool")):
            path.chmod(0o755)


def commands(run: Path) -> list[list[str]]:
    """Every command that reads ``run``."""
    return [
        *([words[0], str(run), *words[1:]] for words in ONE),
        ["show", "00000000", str(run)],
        ["grep", "text", str(run)],
        ["compare", "--step", "1", "--sample", "1", "--run", str(run)],
        ["sql", "SELECT count(*) FROM trajectories", str(run)],
        ["view", str(run), "--export", str(run.with_suffix(".html"))],
        ["open", str(run)],
        ["door", str(run)],
    ]


def called(runs: Path, every: list[list[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each command; none raised."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.another_user"], input=json.dumps(every), capture_output=True, text=True,
        cwd=Path(__file__).parents[2], env={**os.environ, "AUTOTRACE_RUN_DIR": str(runs), "HOME": "/"}, check=True,
    )  # fmt: skip
    answers = json.loads(done.stdout)
    assert not [(words, raised) for words, (*_, raised) in zip(every, answers, strict=True) if raised]
    return [(code, out, err) for code, out, err, _ in answers]


def close(path: Path) -> str:
    """Keep the other user out of ``path``; what is then said of it."""
    mode = FOLDER if path.is_dir() else FILE
    path.chmod(mode)
    owner = pwd.getpwuid(os.getuid()).pw_name
    return f"{path} cannot be read: it is {owner}'s, with mode {mode:o}; run this as {owner}"


@pytest.mark.parametrize("closed", ["run", "run.json", "spool", "segment", "folder of runs"])
def test_a_run_that_is_closed(runs: Path, closed: str) -> None:
    run = runs / NEW
    (segment,) = (run / "spool").glob("*.seg")
    paths = {"run": run, "run.json": run / "run.json", "spool": run / "spool", "segment": segment}
    sentence = close(paths.get(closed, runs))
    late = ("ship", "door") if closed in ("spool", "segment") else ()  # what writes first, and what reads when asked
    every = [words for words in commands(run) if words[0] not in late]
    for words, (code, out, err) in zip(every, called(runs, every), strict=True):
        assert (code, out, len(err.splitlines())) == (2, "", 1), (words, out, err)
        assert sentence in err, words


def test_a_folder_of_runs_that_are_closed(runs: Path) -> None:
    for name in (OLD, NEW):
        (runs / name).chmod(FOLDER)
    every = [*commands(runs), ["runs", str(runs)], ["ls"], ["ls", NEW[:8]]]
    for words, (code, out, err) in zip(every, called(runs, every), strict=True):
        assert (code, out, len(err.splitlines())) == (2, "", 1), (words, out, err)
        assert "cannot be read: it is " in err and "holds no autotrace run" not in err, words


def test_the_newest_run_is_that_which_can_be_read_and_that_is_said(runs: Path) -> None:
    (runs / NEW).chmod(FOLDER)
    (code, out, err), (_, listed, passed_over), (_, _, named), (_, newest, said) = called(
        runs, [["ls", str(runs), "--json"], ["runs", str(runs), "--json"], ["ls", NEW], ["ls", "--json"]]
    )
    assert (
        newest == out and f"{runs / NEW} cannot be read: " in said and f"the newest that can be read is {OLD}" in said
    )
    assert code == 0 and len(out.splitlines()) == 2
    assert f"{runs / NEW} cannot be read: " in err
    assert [json.loads(line)["run"] for line in listed.splitlines()] == [OLD]
    assert f"{runs / NEW} cannot be read: " in passed_over and f"{runs / NEW} cannot be read: " in named


def test_the_newest_run_that_is_not_damaged_is_read(runs: Path) -> None:
    (runs / NEW / "run.json").write_text("{")
    every = [["ls", "--json"], ["ls", str(runs), "--json"], ["status"], ["status", str(runs)], ["runs", str(runs)]]
    for words, (code, out, err) in zip(every, called(runs, every), strict=True):
        assert code == 0 and out, (words, err)
        assert f"{runs / NEW / 'run.json'} cannot be read (" in err, words
    (runs / OLD / "run.json").write_text("{")
    for code, out, err in called(runs, every):
        assert (code, out) == (2, "") and "run.json cannot be read (" in err


def test_a_run_that_others_may_read_is_read_where_nothing_can_be_written(runs: Path) -> None:
    every = [["ls", str(runs / NEW), "--json"], ["sql", "SELECT count(*) AS n FROM trajectories", str(runs), "--json"]]
    (_, rows, _), (_, counted, _) = called(runs, every)
    assert len(rows.splitlines()) == 2 and json.loads(counted) == {"n": 4}


@pytest.mark.parametrize("name", ["loop", "n" * 300])
def test_a_path_that_cannot_be_followed(call: Call, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "loop":
        path.symlink_to(path)
    for command in ("ls", "steps", "diagnose"):
        done = call(command, path)
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
        assert str(path) in done.stderr and "bug" not in done.stderr
