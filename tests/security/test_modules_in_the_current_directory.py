"""No command, and no interpreter that a command starts, imports what lies in the current directory."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import Place
from tests.security import hostile, reading, strangers

NAMES = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), "sitecustomize", "usercustomize"}


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with a module for each name that may be imported. Each leaves its name in ``imported`` beside it."""
    folder, code = tmp_path / "trap", f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__ + ' ')\n"
    folder.mkdir()
    for name in NAMES - {"autotrace"}:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(code)
    return folder


def imported(trap: Path) -> str:
    path = trap.parent / "imported"
    return path.read_text() if path.exists() else ""


@pytest.mark.long
def test_no_command_imports_from_the_current_directory(trap: Path, tmp_path: Path) -> None:
    run, process = hostile.honest(tmp_path)
    hostile.with_tokenizer(run)
    process.bind("tokenizer", path="theirs/model", blob="theirs")
    process.exit()
    every = [*reading.commands(run, others=True), ["mcp-processes", str(run)]]
    answers = reading.run(every, trap, tmp_path / "mine", AUTOTRACE_RUN_DIR=str(tmp_path), PYTHONSAFEPATH="")
    assert not imported(trap)
    assert all(one["code"] in (0, 1, 2) for one in answers), answers
    (doctor, asked) = (one for one in answers if one["words"][0] in ("doctor", "mcp-processes"))
    assert "loads the agent" in doctor["out"] and '"trace_id"' in asked["out"], (doctor, asked)


@pytest.mark.long
@pytest.mark.parametrize("begin", [["autotrace"], ["python", "-m", "autotrace"]])
def test_however_the_command_is_started(begin: list[str], place: Place, trap: Path) -> None:
    words = [str(place.bin / begin[0]), *begin[1:]]
    if "-m" in begin:  # for which Python itself imports some of its library from there
        for name in sys.stdlib_module_names:
            (trap / f"{name}.py").unlink(missing_ok=True)
    for command in (["doctor"], ["ls", str(strangers.honest() / "run"), "--json"]):
        done = subprocess.run([*words, *command], cwd=trap, env=place.environ(), capture_output=True, text=True)
        assert not done.returncode and "Traceback" not in done.stderr, done
    assert not imported(trap)


def test_a_launch_imports_nothing_from_there(place: Place, trap: Path) -> None:
    """The launcher, what it starts to look at another interpreter, the shipper and its guard; then activation alone."""
    program = place.write("elsewhere/program.py", "print('ran')")
    other = place.write("other/bin/python", f'#!/bin/sh\nexec {place.python} "$@"\n', 0o755)
    environ = place.environ(AUTOTRACE_DRAIN_TIMEOUT="60", AUTOTRACE_RUN_DIR=str(place.cwd / "runs"))
    for words in (place.command([place.python, str(program)]), place.command([str(other), str(program)])):
        done = subprocess.run(words, cwd=trap, env=environ, capture_output=True, text=True)
        assert done.stdout == "ran\n" and not done.returncode, done
    done = subprocess.run(
        [place.python, str(program)], cwd=trap, env={**environ, "AUTOTRACE": "1", "AUTOTRACE_BACKENDS": "jsonl"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "ran\n" and len(os.listdir(place.cwd / "runs")) == 3, done
    assert not imported(trap)
