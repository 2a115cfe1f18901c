"""The plugin entry points: a way into processes that run no ``.pth`` file, and no second one into those that do."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from autotrace import bootstrap
from autotrace.config import import_system
from tests.places import ROOT, Place

ENGINE = """
import threading
def work(number):
    return number + 1
"""
HOST = """
import os, sys
sys.path += os.environ["PATHS"].split(os.pathsep)
import engine_of_mine                                # imported before anything of autotrace's
from autotrace.bootstrap import start
start(), start()
assert "autotrace.patch.engine" in sys.modules
assert [thread.name for thread in engine_of_mine.threading.enumerate()] == ["MainThread"]
assert not os.listdir(os.path.join(os.environ["AUTOTRACE_RUN_FOLDER"], "spool"))
assert [engine_of_mine.work(number) for number in range(3)] == [1, 2, 3]
"""


@pytest.mark.parametrize("options", [["-S"], []], ids=["alone", "after the .pth file"])
def test_a_plugin_activates_a_process_once_and_what_is_imported_already(place: Place, options: list[str]) -> None:
    (place.cwd / "engine_of_mine.py").write_text(ENGINE)
    (place.cwd / "spec.yaml").write_text("- engine_of_mine.work\n")
    paths = os.pathsep.join([str(place.cwd), str(ROOT), *sys.path, sysconfig.get_paths()["purelib"]])
    command = place.command(["python", *options, "-c", HOST], ["--spec", "spec.yaml", "--supervise"])
    found = place.run(command, {"PATHS": paths})
    assert found.returncode == 0, found.stderr
    (info,) = Path(place.cwd).glob("autotrace-runs/*/run.json")
    lines = (info.parent / "trajectories.jsonl").read_text().splitlines()
    assert [json.loads(line)["spans"][0]["output"] for line in lines] == [1, 2, 3]


def test_without_the_variable_it_does_nothing_and_it_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTRACE", raising=False)
    before, threads = import_system.current(), threading.active_count()
    bootstrap.start()
    monkeypatch.setattr("autotrace.bootstrap.activate.main", lambda: 1 / 0)
    monkeypatch.setenv("AUTOTRACE", "1")
    bootstrap.start()
    assert import_system.current() == before and threading.active_count() == threads


def test_both_engines_find_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for group in ("vllm.general_plugins", "sglang.srt.plugins"):
        assert f'[project.entry-points."{group}"]\nautotrace = "autotrace.bootstrap:start"' in text
