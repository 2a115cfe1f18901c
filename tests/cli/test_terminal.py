"""What a model wrote reaches a terminal escaped, also where other programs are meant to read it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli import runs
from autotrace.cli.escaping import safe
from autotrace.cli.main import main
from autotrace.cli.terminal import json_line
from tests.ship.spools import Process, new_run, trajectory

HOSTILE = "\x1b]0;owned\x07 \x9b2J \u202e"
ACTS = ("\x1b]", "\x07", "\x9b", "\u202e")
"""What no terminal may get; rich writes styles with ``ESC [``."""


def in_a_terminal(*words: str) -> str:
    """What ``autotrace ...`` writes into a terminal."""
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, "-m", "autotrace", *words], stdout=theirs) as process:
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end was closed
            while part := os.read(ours, 65536):
                written += part
        os.close(ours)
    assert process.returncode == 0
    return written.decode()


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "--json"), ("show", "--json"), ("compare", "--where", "step = 1", "--json"), ("export", "--out", "-"),
        ("sql", "SELECT uid FROM trajectories", "--json"), ("sql", "SELECT uid FROM trajectories", "--csv"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_other_programs_read_does_nothing_to_a_terminal(runs: Path, words: tuple[str, ...]) -> None:
    process = Process(new_run(runs, "20261122-000000-aaaaaa"))
    for rollout in (0, 1):
        trajectory(process, uid=HOSTILE, rollout=rollout)
    process.exit()
    shown = in_a_terminal(*words)
    assert "owned" in shown and not [mark for mark in ACTS if mark in shown]
    if "--csv" not in words:
        assert HOSTILE in str([json.loads(line) for line in shown.splitlines()]).encode().decode("unicode_escape")


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "what was to be printed was not written"), (errno.EIO, "the run is damaged")]
)
def test_an_error_of_the_system_is_one_sentence(number: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(runs, "reader", fails)
    done = CliRunner().invoke(main, ["ls"], catch_exceptions=False)
    assert done.exit_code == 2 and said in done.output and done.output.count("\n") == 1


def test_a_full_disk_behind_the_output_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "autotrace", "skill"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2 and done.stderr.endswith("not written: No space left on device\n")


@pytest.mark.parametrize(
    ("command", "without"),
    [("--version", {"rich", "msgspec"}), ("ls --help", {"pyarrow", "duckdb"}), ("show --help", {"pyarrow", "duckdb"})],
)
def test_a_command_imports_no_more_than_it_needs(command: str, without: set[str]) -> None:
    code = (
        "import sys; from autotrace.cli.main import main\n"
        f"try: main({command.split()!r})\n"
        f"finally: print(sorted({without!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


HIDDEN = (
    "\xad\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u202a\u202e\u2060\u2064\u2069\ufe0f\ufeff"
    "\U000e0001\U000e0041\U000e0100"
)


@pytest.mark.parametrize("one", HIDDEN, ids=lambda one: f"{ord(one):x}")
def test_a_character_without_width_is_written_out(one: str) -> None:
    for text in (one, f"id{one}", f"{one}id", f"i{one}d"):
        assert one not in safe(text) and f"{ord(one):x}" in safe(text)
    for text in (f"a{one}b", f"\u30ab{one}", "\x7f\x1b"):
        assert not {*json_line(text)} & {*HIDDEN, "\x7f", "\x1b"} and json.loads(json_line(text)) == text


def test_emoji_and_scripts_with_joiners_stay_readable() -> None:
    kept = (
        "\U0001f469\U0001f3fd\u200d\U0001f680", "\u2764\ufe0f\u200d\U0001f525", "1\ufe0f\u20e3",
        "\u0645\u06cc\u200c\u062e\u0648", "\u845b\U000e0100",
    )  # fmt: skip
    for text in kept:
        assert safe(f"so {text} it is") == f"so {text} it is"
    hides = "\u2764" + "\ufe0f\U000e0141" * 20
    assert safe(hides).count("\\") == 39, "a single selector belongs to a character"
