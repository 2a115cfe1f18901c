"""Another user of this machine beside a run: he made the folder of runs first, or may write one above it, and puts a
plan of his own in the place of the run's; and he sets variables for a Python that was told to ignore them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autotrace.launch import run_setup
from autotrace.launch.command import Command
from autotrace.launch.options import Options
from autotrace.run import files, layout, remote_node
from tests.places import Place

HOOK = "def hook(name, value):\n    open({ran!r}, 'a').write(name)\n    return value\n"
WORK = "def work(number):\n    return number + 1\n"
SPEC = ["--spec", "spec.yaml", "--backend", "jsonl"]
SWAPPED = """
import json, os, subprocess, sys
folder = os.environ["AUTOTRACE_RUN_FOLDER"]
os.rename(folder, folder + ".his")
os.makedirs(folder + "/spool", mode=0o700)
plan = json.load(open(folder + ".his/plan.json"))
plan["settings"]["redact_hook"] = "his:hook"
json.dump(plan, open(folder + "/plan.json", "w"))
json.dump(json.load(open(folder + ".his/run.json")), open(folder + "/run.json", "w"))
print(subprocess.run([sys.executable, "-c", "import mine; print(mine.work(1))"], capture_output=True, text=True).stdout)
os.rename(folder, folder + ".done")
os.rename(folder + ".his", folder)
"""


def program(place: Place) -> Path:
    """A program with a target, and a module of the neighbour's that says when its hook was called."""
    ran = place.cwd / "ran"
    place.write("mine.py", WORK)
    place.write("his.py", HOOK.format(ran=str(ran)))
    place.write("spec.yaml", "- mine.work\n")
    return ran


def refused(place: Place, runs: Path, *remedy: str) -> None:
    """No run is made in ``runs``, and the place and the remedy are said."""
    done = place.launch(["python", "-c", "print('ran')"], ["--run-dir", str(runs)])
    assert done.returncode != 0 and done.stdout == "", done.stderr
    assert all(word in done.stderr for word in ("--run-dir", *remedy)), done.stderr
    assert not list(runs.glob("*/run.json"))


def test_a_plan_that_somebody_swapped_is_not_taken(place: Place) -> None:
    ran = program(place)
    place.write("swap.py", SWAPPED)
    done = place.launch(["python", "swap.py"], SPEC, {"PYTHONPATH": str(place.cwd)})
    assert done.returncode == 0 and "2" in done.stdout, done.stderr
    assert not ran.exists()


def test_no_command_line_of_a_run_holds_an_address(place: Place) -> None:
    """Neither the shipper's, its guard's nor the program's; ``ps`` shows them to everybody."""
    program(place)
    lines = "import glob; print([open(path, 'rb').read() for path in glob.glob('/proc/[0-9]*/cmdline')])"
    place.write("lists.py", f"import contextlib, mine\nmine.work(1)\nwith contextlib.suppress(OSError):\n    {lines}\n")
    address = ["--tracking-uri", "http://bob:canary7Qx@127.0.0.1:1/?api_key=canary7Qx", "--alert", "http://h/canary7Qx"]
    spec = ["--spec", "spec.yaml", "--backend", "mlflow", "--drain-timeout", "1", *address]
    done = place.launch(["python", "lists.py"], spec, {"PYTHONPATH": str(place.cwd)})
    assert done.returncode == 0 and "autotrace.ship" in done.stdout, done.stderr
    assert "canary7Qx" not in done.stdout + done.stderr


def test_another_node_takes_the_plan_that_travelled(tmp_path: Path) -> None:
    options = Options.from_settings({"backend": "jsonl", "run_dir": str(tmp_path / "runs")})
    run = run_setup.make(options, Command(("x",), "x"), 0, {})
    text = Path(run.variables["AUTOTRACE_PLAN"]).read_text()
    environ = {**run.variables, "AUTOTRACE_PLAN_DATA": remote_node.packed_plan(text)}
    Path(run.variables["AUTOTRACE_PLAN"]).write_text(text.replace('"redact_hook":null', '"redact_hook":"his:hook"'))
    assert remote_node.plan_text(environ) == text
    with pytest.raises(OSError):
        remote_node.plan_text(run.variables)


@pytest.mark.parametrize("where", ["runs", "."])
def test_a_folder_that_everybody_may_write_is_refused(place: Place, where: str) -> None:
    runs = place.cwd / "shared" / "runs"
    runs.mkdir(parents=True)
    (place.cwd / "shared" / where).chmod(0o777)
    refused(place, runs, f"chmod +t {(place.cwd / 'shared' / where).resolve()}")
    (place.cwd / "shared" / where).chmod(0o1777)
    assert place.launch(["python", "-c", "print('ran')"], ["--run-dir", str(runs)]).stdout == "ran\n"
    (tmp := place.cwd / "link").symlink_to(place.cwd / "shared")
    (place.cwd / "shared" / where).chmod(0o777)
    refused(place, tmp / "runs" / "new")


def test_a_folder_of_another_user_in_tmp_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """He made it first, and shares it with everybody, or with a group that everybody is in."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    runs = shared / "runs"
    runs.mkdir(mode=0o775)
    if os.getuid() == 0:
        os.chown(runs, 4321, 4321)
    else:
        lstat = os.lstat

        def his(path: str | Path) -> os.stat_result:
            values = list(lstat(path))
            values[stat.ST_UID] = 4321 if str(path) == str(runs) else values[stat.ST_UID]
            return os.stat_result(values)

        monkeypatch.setattr(os, "lstat", his)
    options = Options.from_settings({"backend": "jsonl", "run_dir": str(runs)})
    with pytest.raises(run_setup.RunSetupError, match=f"{runs} belongs to another user.*--run-dir"):
        run_setup.make(options, Command(("x",), "x"), 1, {})
    assert not list(runs.glob("*/run.json"))


def test_a_link_of_another_user_in_tmp_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """He turns it while the run is on."""
    (mine := tmp_path / "mine").mkdir(mode=0o700)
    (shared := tmp_path / "tmp").mkdir()
    (link := shared / "runs").symlink_to(mine)
    shared.chmod(0o1777)
    options = Options.from_settings({"backend": "jsonl", "run_dir": str(link)})
    lstat, uid = os.lstat, os.getuid() + 1

    def his(path: str | Path) -> os.stat_result:
        values = list(lstat(path))
        values[stat.ST_UID] = uid if str(path) == str(link) else values[stat.ST_UID]
        return os.stat_result(values)

    monkeypatch.setattr(os, "lstat", his)
    with pytest.raises(run_setup.RunSetupError, match=f"{link} is a link of another user.*--run-dir"):
        run_setup.make(options, Command(("x",), "x"), 1, {})
    assert not list(mine.glob("*/run.json"))


def test_project_folders_that_a_group_shares_are_used(place: Place) -> None:
    project = place.cwd / "lab" / "project"
    project.mkdir(parents=True)
    for folder in (project, project.parent):
        folder.chmod(0o2775)
    done = place.launch(["python", "-c", "print('ran')"], ["--run-dir", str(project / "runs")])
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    (run,) = (project / "runs").glob("*/run.json")
    assert run.parent.stat().st_mode & 0o777 == 0o700


def test_on_another_node_a_folder_that_everybody_may_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp := tmp_path / "tmp").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp))
    folder = tmp_path / "shared" / "run-1"
    folder.mkdir(parents=True)
    (folder / layout.RUN_JSON).write_text(json.dumps({"run_id": "run-1"}))
    folder.chmod(0o777)
    assert remote_node.run_folder({"AUTOTRACE_RUN_FOLDER": str(folder)}).startswith(str(tmp))
    other = tmp_path / "shared" / "run-2"
    (tmp_path / "shared").chmod(0o777)
    assert remote_node.run_folder({"AUTOTRACE_RUN_FOLDER": str(other)}).startswith(str(tmp))


def test_the_owner_that_a_file_system_says_is_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS may call root by another name."""
    (tmp_path / layout.RUN_JSON).write_text("{}")
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    environ = {"AUTOTRACE_RUN_FOLDER": str(tmp_path)}
    monkeypatch.setenv("AUTOTRACE_RUN_OWNER", str(tmp_path.stat().st_uid + 2))
    assert not files.is_own(tmp_path)
    monkeypatch.setenv("AUTOTRACE_RUN_OWNER", str(tmp_path.stat().st_uid))
    assert remote_node.run_folder(environ) == str(tmp_path)


def test_no_shipper_runs_in_a_folder_that_others_may_write(tmp_path: Path) -> None:
    (tmp_path / layout.SPOOL).mkdir()
    tmp_path.chmod(0o777)
    ran = tmp_path / "ran"
    code = "import sys; from autotrace.run.guard import guard; sys.exit(guard(['touch', sys.argv[1]], sys.argv[2]))"
    assert subprocess.run([sys.executable, "-c", code, str(ran), str(tmp_path)]).returncode != 0
    assert not ran.exists()


@pytest.mark.parametrize("flag", ["-I", "-E", "-IB"])
def test_python_that_ignores_its_environment_is_not_activated(place: Place, flag: str) -> None:
    """By none of the ways: the ``.pth`` file, the entry point of PEP 829, the plug-in of an engine."""
    ran = program(place)
    code = (
        f"import sys; sys.path.append({str(place.cwd)!r})\n"
        "from autotrace import bootstrap; bootstrap.start()\n"
        "import mine; mine.work(1); print('autotrace.bootstrap.activate' in sys.modules)"
    )
    place.write("program.py", code.replace("; ", "\n"))
    options = [*SPEC, "--redact-hook", "his:hook"]
    done = place.launch(["python", flag, "program.py"], options, {"PYTHONPATH": str(place.cwd)})
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert "-E and -I tell Python to ignore its environment, so this command is not traced" in done.stderr
    assert not ran.exists()
    alone = place.run(["python", flag, "program.py"], {"AUTOTRACE": "1", "AUTOTRACE_BACKEND": "jsonl"})
    assert (alone.stdout, alone.stderr) == ("False\n", "")
    traced = place.launch(["python", "program.py"], options, {"PYTHONPATH": str(place.cwd)})
    assert traced.stdout == "True\n" and ran.exists()


def test_an_outer_run_of_the_environment_is_not_joined(place: Place) -> None:
    """``autotrace.start`` in such a Python makes a run of its own."""
    place.write(
        "program.py", "import autotrace, sys\nprint(autotrace.start(backend='jsonl').folder)\nautotrace.stop()\n"
    )
    his = place.cwd / "his"
    his.mkdir()
    environ = {"AUTOTRACE": "1", "AUTOTRACE_RUN_FOLDER": str(his), "AUTOTRACE_PLAN": str(his / "plan.json")}
    done = subprocess.run(
        [place.python, "-I", "program.py"], cwd=place.cwd, env=place.environ(**environ), capture_output=True, text=True
    )
    assert done.returncode == 0 and str(his) not in done.stdout, done.stderr
