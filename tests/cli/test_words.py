"""The command line itself: a wrong word gets the nearest right one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotrace.cli.main import COMMANDS
from tests.cli.conftest import Call


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dignose"], "there is no command 'dignose'; did you mean diagnose?"),
        (["frobnicate"], "there is no command 'frobnicate'; autotrace --help lists the commands"),
        (["ls", "--sort", "rewrd"], "there is no column rewrd; did you mean reward?"),
    ],
)
def test_a_wrong_word_gets_the_nearest(call: Call, run: Path, words: list[str], said: str) -> None:
    done = call(*words)
    assert done.exit_code == 2 and said in done.stderr


def test_every_command_has_the_short_form_of_help(call: Call) -> None:
    for name in COMMANDS:
        assert call(name, "-h").output == call(name, "--help").output
    assert call("-h").output == call("--help").output


def test_json_says_its_units_and_its_names_have_them(call: Call, run: Path) -> None:
    (row, *_) = map(json.loads, call("ls", "--json").output.splitlines())
    assert row["duration_ns"] == pytest.approx(1e9 * row["duration_s"])
    assert "_s seconds, _ns nanoseconds" in " ".join(call("ls", "--help").output.split())
