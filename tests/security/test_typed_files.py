"""A pipe, a socket, a device or a folder, typed where a command expects a file: one sentence, and no wait."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from autotrace.config import environment as env
from autotrace.export.format import Staging
from autotrace.run import files
from autotrace.spec.proposal import of_program
from tests.security import reading, strangers

KINDS = ("pipe", "socket", "device", "folder")
TAKES_NONE = ("doctor", "demo", "help", "skill")
"""Commands that take no file. ``doctor`` reads the run folder and the specs that the environment names."""


def made(path: Path, kind: str) -> Path:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, because the path of a socket has to be short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def not_refused(answers: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The answers that are no refusal in plain words."""
    said = ("this is a bug", "[Errno", "No such device")
    wrong = [one for one in answers if one["code"] not in (1, 2, 98) or any(text in one["err"] for text in said)]
    return [(one["words"], one["code"], one["err"]) for one in wrong]


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_refuses_it_in_one_sentence(here: Path, kind: str) -> None:
    place = made(Path("typed.jsonl"), kind)
    run = str(strangers.honest() / "lake")
    every = [words for words in reading.commands(place, others=True) if words[0] not in (*TAKES_NONE, "mcp")]
    every += [["check", "--wheel", str(place)], ["check", "patch_specs.yaml", str(place)]]
    if kind == "folder":  # a program may be one, and the page shows that a folder is empty
        every = [words for words in every if words[0] not in ("init", "page")]
    if kind != "device":  # which takes what is written
        every += [["view", run, option, str(place)] for option in ("--export", "--perfetto")]
        every += [["init", ".", "--force", "--out", str(place)], ["export", run, "--out", str(place)]]
    (here / "patch_specs.yaml").write_text("- my_program.solve\n")
    answers = reading.run(every, here, here / "mine")
    assert len(answers) == len(every) and not reading.faults(answers)
    assert not not_refused(answers)


@pytest.mark.parametrize("kind", KINDS)
def test_the_environment_names_it(here: Path, kind: str) -> None:
    place = str(made(Path("typed.yaml"), kind))
    (answer,) = reading.run([["check"]], here, here / "mine", **{env.SPECS: place})
    assert answer["code"] == 2 and f"{place}: cannot be read (not a regular file)" in answer["err"]
    (answer,) = reading.run([["doctor"]], here, here / "mine", **{env.RUN_DIR: place, env.SPECS: place})
    assert answer["code"] in (0, 1, 2) and "this is a bug" not in answer["err"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_does_not_start_with_it(here: Path, kind: str) -> None:
    place = made(Path("typed.yaml"), kind)
    program = "from autotrace.launch.main import main; main()"
    command = [sys.executable, "-c", program, "--spec", str(place), "--", "true"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2 and "typed.yaml: cannot be read (not a regular file)" in ended.stderr


def test_a_program_may_have_modules_that_are_no_files(here: Path) -> None:
    (here / "agent.py").write_text("@tool\ndef add(a, b): ...\n")
    for kind in KINDS:
        made(Path(f"{kind}.py"), kind)
    (here / "broken.py").symlink_to("nowhere")
    assert [one.target for one in of_program(Path())] == ["agent.add"]


def test_a_file_is_read_up_to_the_limit(here: Path) -> None:
    (here / "spec.yaml").write_bytes(b"x" * 100)
    assert files.named("spec.yaml", most=100) == b"x" * 100
    with pytest.raises(OSError, match="larger than"):
        files.named("spec.yaml", most=99)


def test_a_slow_reader_of_a_pipe_gets_everything(here: Path) -> None:
    pipe, taken, begun = made(Path("out.jsonl"), "pipe"), [], threading.Event()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)

    def read() -> None:
        begun.wait()
        with open(reader, "rb") as file:
            taken.append(file.read())

    thread = threading.Thread(target=read)
    thread.start()
    with Staging(here) as staging:
        threading.Timer(0.2, begun.set).start()  # most writes meet a full pipe
        staging.append("out.jsonl", b"x" * (1 << 20))
    thread.join()
    assert taken == [b"x" * (1 << 20)]
