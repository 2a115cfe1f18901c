"""Another interpreter than ours may not have autotrace: that is said before the run, not found out after it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from autotrace.config.installation import again, installer, look_at
from tests.places import Place
from tests.waiting import DEADLINE


def test_an_interpreter_without_autotrace_is_said_at_the_start(place: Place) -> None:
    bare = place.cwd / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=DEADLINE)
    place.write("script", f"#!{bare}/bin/python\nprint(1)\n", 0o755)
    for words in ([f"{bare}/bin/python", "-c", "print(1)"], ["./script"]):
        done = place.launch(words, ["--quiet"])
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert f"autotrace: warning: {bare}/bin/python has no autotrace, so this command is not traced" in done.stderr
        assert again(f"{bare}/bin/python") in done.stderr
        (advice,) = json.loads(place.cli("status", "--json").stdout)["advice"]
        assert advice in done.stderr and "so this command is not traced" in advice
        code, said = place.refusal(words, ["--strict"])
        assert code == 2 and said.endswith("--strict: not started\n") and advice in said
    assert place.launch(["python", "-c", "print(1)"], ["--quiet"]).stderr == ""


def test_the_command_that_shows_a_trajectory_is_named_whatever_a_finder_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of a run is printed in the host's process, which may have its own finders and stand-ins."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            raise RuntimeError(name)

    monkeypatch.setattr(sys, "meta_path", [Finder])
    monkeypatch.delitem(sys.modules, "uvicorn", raising=False)
    assert look_at("R", "abc") == "autotrace show abc R"
    monkeypatch.setitem(sys.modules, "uvicorn", ModuleType("uvicorn"))  # without a spec, find_spec raises ValueError
    assert look_at("R", "abc") == "autotrace show abc R"


def test_pip_is_named_so_that_a_shell_runs_the_right_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    assert installer() == "pip install"
    monkeypatch.setenv("PATH", os.sep)  # the environment is not activated
    assert installer() == f"{sys.executable} -m pip install"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # an environment of uv's
    assert installer() == "pip install"
    (tmp_path / "uv").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installer() == f"uv pip install --python {sys.executable}"
