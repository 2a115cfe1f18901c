"""``autotrace demo``: the recorded run, read by every command; the faults that are in it are found."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main

PLANTED = {
    "AT-RETOKENIZED", "AT-TOOL-RAISES", "AT-NO-SIGNAL-ERRORS", "AT-TRUNCATED-CONTEXT", "AT-STRAGGLER", "AT-MISMATCH",
}  # fmt: skip
"""What ``examples/recorded_run/program.py`` says of itself."""


def run(*words: str | Path) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_it_prints_what_was_planted_and_commands_that_work(tmp_path: Path) -> None:
    said = run("demo", "--run-dir", tmp_path / "with space")
    assert "384 trajectories in 3 steps" in said
    assert {code for code in PLANTED if code in said} == PLANTED
    assert "convert: KeyError: CHF" in said
    (folder,) = (tmp_path / "with space").iterdir()
    _, _, following = said.partition("\nNext:\n")
    commands = [shlex.split(line) for line in following.splitlines()]
    assert len(commands) >= 4 and all(command[0] == "autotrace" and str(folder) in command for command in commands)
    for command in commands:
        if command[1] != "view":
            assert run(*command[1:])


def test_the_copy_is_private_and_made_once(tmp_path: Path) -> None:
    run("demo", "--run-dir", tmp_path)
    (folder,) = tmp_path.iterdir()
    made = [folder, *folder.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700, 0o600}
    (folder / "mine").touch()
    run("demo", "--run-dir", tmp_path)
    assert list(tmp_path.iterdir()) == [folder] and (folder / "mine").exists()


@pytest.mark.parametrize("command", ["ls", "steps", "status", "diagnose"])
def test_commands_read_it(command: str, tmp_path: Path) -> None:
    run("demo", "--run-dir", tmp_path)
    assert run(command, tmp_path)


def test_every_colour_of_the_token_view_has_its_values(tmp_path: Path) -> None:
    from autotrace.ship.readers import of_run

    run("demo", "--run-dir", tmp_path)
    reader = of_run(tmp_path)
    assert not [row.trace_id for row in reader.select() if row.advantage is None]
    rows = reader.sql("SELECT count(*), count(entropy), count(mismatch_mean) FROM trajectories WHERE is_trajectory")
    del rows
    reader.close()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["demo", "--run-dir", str(tmp_path / "file" / "runs")])
    assert done.exit_code == 2 and "the recorded run cannot be copied" in done.output
