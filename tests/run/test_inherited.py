"""A process that inherited the variables of a run joins it while it goes on, and no longer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from autotrace.run.drain import shipper_alive
from autotrace.run.inherited import is_over
from tests.places import Place
from tests.waiting import DEADLINE, until

FINISHED_RUN = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('AUTOTRACE')}))"
STEP = "import steps; print(steps.step(1))"


class TestInheritedRun:
    """A shell that was started inside a run keeps its variables after the end of the run."""

    @pytest.fixture
    def inherited(self, place: Place) -> dict[str, str]:
        """The variables of a finished run."""
        place.write("steps.py", "def step(number): return number\n")
        place.write("spec.yaml", "- target: steps.step\n  role: trajectory\n")
        variables: dict[str, str] = json.loads(place.launch(["python", "-c", FINISHED_RUN]).stdout)
        (run,) = place.runs()
        assert variables["AUTOTRACE_RUN_FOLDER"] == str(run.resolve())
        until(lambda: shipper_alive(str(run)) is False)
        return variables

    @pytest.mark.parametrize("launched", [True, False], ids=["autotrace-run", "AUTOTRACE=1"])
    def test_a_finished_one_is_not_joined(self, place: Place, inherited: dict[str, str], launched: bool) -> None:
        (finished,) = place.runs()
        before = sorted(finished.rglob("*"))
        mine = {**inherited, "AUTOTRACE_SPECS": "spec.yaml", "AUTOTRACE_BACKEND": "jsonl"}
        words = ["python", "-c", STEP]
        done = place.launch(words, env=mine) if launched else place.run(words, mine)
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
        (new,) = set(place.runs()) - {finished}
        assert f"run folder {new.resolve()}; the inherited run {finished.name} is over" in done.stderr
        assert "autotrace: saved 1 trajectory to jsonl" in done.stderr
        assert sorted(finished.rglob("*")) == before

    def test_children_join_the_new_one(self, place: Place, inherited: dict[str, str]) -> None:
        inner = place.command(
            ["python", "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STEP!r}])"]
        )
        done = place.launch(inner, ["--spec", "spec.yaml"], inherited)
        assert "autotrace: saved 1 trajectory to jsonl" in done.stderr
        assert len(place.runs()) == 2

    def test_one_of_which_nothing_is_certain_is_joined(self, tmp_path: Path) -> None:
        dead = subprocess.Popen(["true"])
        dead.wait()
        variables = {
            "AUTOTRACE_RUN_FOLDER": str(tmp_path),
            "AUTOTRACE_MAIN_PID": f"{dead.pid}:{os.uname().nodename}",
        }
        assert not is_over(variables), "a container that does not see the run's folder: its relay does the rest"
        (tmp_path / "run.json").write_text("{}")
        assert not is_over(variables)
        assert not is_over({**variables, "AUTOTRACE_MAIN_PID": f"{os.getpid()}:{os.uname().nodename}"})
        os.utime(tmp_path / "run.json", (1, 1))
        assert is_over(variables)
        assert not is_over({**variables, "AUTOTRACE_MAIN_PID": f"{dead.pid}:another-node"})

    def test_a_later_process_of_the_same_number_or_a_zombie_is_not_its_first_process(self, tmp_path: Path) -> None:
        (tmp_path / "run.json").write_text("{}")
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            variables = {
                "AUTOTRACE_RUN_FOLDER": str(tmp_path),
                "AUTOTRACE_MAIN_PID": f"{process.pid}:{os.uname().nodename}",
            }
            an_hour_ago = time.time() - 3600
            assert not is_over(variables)
            os.utime(tmp_path / "run.json", (an_hour_ago, an_hour_ago))
            assert is_over(variables), "it began an hour after the run"
            an_hour_on = time.time() + 3600
            os.utime(tmp_path / "run.json", (an_hour_on, an_hour_on))
            (tmp_path / "shipper.lock").touch()
            assert not is_over(variables)
            process.stdin.close()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert is_over(variables), "a zombie"

    def test_one_that_goes_on_is_joined_though_its_first_process_is_gone(self, place: Place) -> None:
        """Killed with its work unfinished: its shipper waits for the processes that live on."""
        place.write("steps.py", "def step(number): return number\n")
        place.write("spec.yaml", "- steps.step\n")
        inner = place.command(["python", "-c", STEP])
        late = f"import os, steps, subprocess, sys\nsteps.step(1)\nsys.stdin.read()\nsubprocess.run({inner!r})"
        code = (
            f"import os, subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {late!r}])\n"
            "sys.stdin.read(1); os.kill(os.getpid(), 9)"
        )
        with subprocess.Popen(
            place.command(["python", "-c", code], ["--spec", "spec.yaml"]),
            cwd=place.cwd, env=place.environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdin is not None and process.stdout is not None
            until(lambda: list(place.cwd.glob("autotrace-runs/*/spool/*.seg")) and shipper_alive(str(place.runs()[0])))
            process.stdin.write("x")
            process.stdin.flush()
            assert process.wait(timeout=DEADLINE) == -signal.SIGKILL
            (run,) = place.runs()
            assert shipper_alive(str(run))
            process.stdin.close()
            assert process.stdout.read() == "1\n"
        assert place.runs() == [run]
