"""``autotrace-run COMMAND`` is COMMAND: same output, arguments, process, exit code and signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotrace.run.drain import shipper_alive
from autotrace.ship.run_reader import RunReader
from tests.bootstrap.conftest import SHOW, Place

HOST = "import os, sys; print('autotrace.bootstrap.activate' in sys.modules, sys.argv[1:]); sys.exit(7)"

SPAWNS_PYTHON = """
import subprocess, sys
codes = [subprocess.run([sys.executable, "-u", *sys.argv[1:]]).returncode for _ in range(2)]
sys.exit(max(codes))
"""


def make_ways(place: Place) -> dict[str, list[str]]:
    """Ways to start the same host program."""
    place.write("program.py", HOST)
    place.write("package/__init__.py", "")
    place.write("package/__main__.py", HOST)
    place.write("script", f"#!{place.python}\n{HOST}\n", 0o755)
    place.write("env-script", f"#!/usr/bin/env python\n{HOST}\n", 0o755)
    place.write("long-path-script", f"#!/bin/sh\n'''exec' \"{place.python}\" \"$0\" \"$@\"\n' '''\n{HOST}\n", 0o755)
    place.write("train.sh", '#!/bin/sh\npython program.py "$@"\n', 0o755)
    place.write("no-shebang", 'python program.py "$@"\n', 0o755)
    place.write("torchrun-like", f"#!{place.python}\n{SPAWNS_PYTHON}", 0o755)
    return {
        "python file": ["python", "program.py"],
        "python -m": ["python", "-m", "package"],
        "python -c": ["python", "-c", HOST],
        "python -I": ["python", "-I", "program.py"],
        "console script": ["./script"],
        "env script": ["./env-script"],
        "long path script": ["./long-path-script"],
        "shell script": ["./train.sh"],
        "bash -c": ["bash", "-c", 'python program.py "$@"', "name"],
        "no shebang": ["./no-shebang"],
        "torchrun": ["./torchrun-like", "program.py"],
    }


WAYS = (
    "python file", "python -m", "python -c", "python -I", "console script", "env script", "long path script",
    "shell script", "bash -c", "no shebang", "torchrun",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_starting_python_is_traced_and_otherwise_the_same(place: Place, way: str) -> None:
    argv = [*make_ways(place)[way], "a b", "--", "--backend", "*"]
    bare = place.run(argv) if way != "no shebang" else place.run(["sh", *argv])
    traced = place.launch(argv)

    assert bare.returncode == traced.returncode == 7
    assert "False" in bare.stdout
    assert traced.stdout == bare.stdout.replace("False", "True")
    assert len(place.runs()) == 1


def test_the_process_is_the_launchers(place: Place) -> None:
    with subprocess.Popen(
        place.command(["python", "-c", SHOW]), cwd=place.cwd, env=place.environ(), stdout=subprocess.PIPE, text=True
    ) as process:
        output = process.communicate(timeout=60)[0]

    assert output.split()[:2] == [str(process.pid), "True"]
    assert place.info()["main_pid"] == process.pid


@pytest.mark.parametrize("options", [(), ("--supervise",)], ids=["exec", "supervise"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_reaches_the_command(place: Place, number: signal.Signals, options: tuple[str, ...]) -> None:
    code = (
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        place.command(["python", "-c", code], options), cwd=place.cwd, env=place.environ(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=60)

    assert process.returncode == 42


@pytest.mark.parametrize("options", [(), ("--supervise",)], ids=["exec", "supervise"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_death_by_a_signal_is_reported_as_it_was(
    place: Place, number: signal.Signals, options: tuple[str, ...]
) -> None:
    code = f"import os; os.kill(os.getpid(), {int(number)})"

    assert place.launch(["python", "-c", code], options).returncode == -number


def test_a_key_on_the_terminal_reaches_a_supervised_command_once(place: Place) -> None:
    code = (
        "import signal, sys\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: (seen.append(1), print('seen', flush=True)))\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(len(seen)))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    terminal = place.write(
        "terminal.py",
        "import os, pty, signal, sys, time\n"
        "pid, fd = pty.fork()\n"
        "if not pid: os.execvp(sys.argv[1], sys.argv[1:])\n"
        "def until(word):\n"
        "    text = b''\n"
        "    while word not in text: text += os.read(fd, 1000)\n"
        "until(b'ready')\n"
        "os.write(fd, b'\\x03')\n"
        "until(b'seen')\n"
        "os.kill(pid, signal.SIGUSR1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n",
    )
    found = place.run([sys.executable, str(terminal), *place.command(["python", "-c", code], ["--supervise"])])

    assert found.returncode == 1, found.stderr


def test_broken_pipes_end_the_command_as_without_the_prefix(place: Place) -> None:
    """Python ignores SIGPIPE for itself; the launcher must not pass that on."""
    found = place.launch(["sh", "-c", "yes | head -1; echo ${PIPESTATUS:-done}"])

    assert found.stdout.splitlines() == ["y", "done"]
    assert "Broken pipe" not in found.stderr


def test_nested_launches_make_one_run(place: Place) -> None:
    inner = place.command(["python", "-c", SHOW, "x"])
    found = place.launch(inner)

    assert found.stdout.split()[1:] == ["True", "['x']"]
    assert len(place.runs()) == 1


def test_autotrace_0_switches_everything_off(place: Place) -> None:
    found = place.launch(["python", "-c", SHOW], env={"AUTOTRACE": "0"})

    assert found.stdout.split()[1] == "False"
    assert found.stderr == ""
    assert not (place.cwd / "autotrace-runs").exists()


@pytest.mark.parametrize("outer", [True, False], ids=["inside a run", "switched off"])
def test_settings_that_are_not_used_are_not_judged(place: Place, outer: bool) -> None:
    inner = [place.launcher, "--sample-rate", "abc", "python", "-c", SHOW]
    found = place.launch(inner, env={"AUTOTRACE_MAX_STRING": "0"} if outer else {"AUTOTRACE": "0"})
    assert found.returncode == 0, found.stderr
    assert found.stdout.split()[1] == str(outer)


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
        deadline = time.monotonic() + 60
        while shipper_alive(str(run)) is not False:
            assert time.monotonic() < deadline
            time.sleep(0.02)
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
        assert "autotrace: 1 trajectory -> jsonl" in done.stderr
        assert sorted(finished.rglob("*")) == before

    def test_children_join_the_new_one(self, place: Place, inherited: dict[str, str]) -> None:
        inner = place.command(
            ["python", "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STEP!r}])"]
        )
        done = place.launch(inner, ["--spec", "spec.yaml"], inherited)
        assert "autotrace: 1 trajectory -> jsonl" in done.stderr
        assert len(place.runs()) == 2

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
            deadline = time.monotonic() + 60
            while not list(place.cwd.glob("autotrace-runs/*/spool/*.seg")):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.stdin.write("x")
            process.stdin.flush()
            assert process.wait(timeout=60) == -signal.SIGKILL
            (run,) = place.runs()
            assert shipper_alive(str(run))
            process.stdin.close()
            assert process.stdout.read() == "1\n"
        assert place.runs() == [run]


def test_an_interpreter_without_autotrace_is_said_at_the_start(place: Place) -> None:
    bare = place.cwd / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=60)
    place.write("script", f"#!{bare}/bin/python\nprint(1)\n", 0o755)
    for words in ([f"{bare}/bin/python", "-c", "print(1)"], ["./script"]):
        done = place.launch(words, ["--quiet"])
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert f"autotrace: warning: {bare}/bin/python has no autotrace, so this command is not traced" in done.stderr
        assert "install autotrace-rl for that interpreter" in done.stderr
    assert place.launch(["python", "-c", "print(1)"], ["--quiet"]).stderr == ""


def test_one_line_at_the_start_and_one_at_the_end_on_stderr(place: Place) -> None:
    loud = place.launch(["python", "-c", ""])
    quiet = place.launch(["python", "-c", ""], ["--quiet"])

    lines = loud.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("autotrace: run folder /")
    assert lines[1].startswith("autotrace: nothing was recorded; why: autotrace status ")
    assert quiet.stderr == ""


def test_a_run_directory_that_others_can_read_is_said_once(place: Place) -> None:
    directory = place.cwd / "autotrace-runs"
    directory.mkdir()
    directory.chmod(0o755)
    loud = place.launch(["python", "-c", ""])
    quiet = place.launch(["python", "-c", ""], ["--quiet"])
    directory.chmod(0o700)
    private = place.launch(["python", "-c", ""])

    assert loud.stderr.count("\n") == 3 and loud.stderr.startswith(
        f"autotrace: {directory} can be read by other users (mode 755); the runs in it cannot"
    )
    assert quiet.stderr == "" and "other users" not in private.stderr
    assert all(run.stat().st_mode & 0o777 == 0o700 for run in place.runs())
    assert {path.stat().st_mode & 0o777 for path in directory.rglob("*") if path.is_file()} == {0o600}


class TestRefusals:
    """Nothing is started and nothing is left behind."""

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, place: Place) -> object:
        yield
        assert not place.runs()
        assert not list(place.cwd.glob("started*"))

    START = ("python", "-c", "open('started', 'w')")

    def test_an_unknown_command_is_127(self, place: Place) -> None:
        found = place.launch(["no-such-command", "x"])
        assert found.returncode == 127
        assert found.stderr == "autotrace: no-such-command: command not found\n"

    def test_an_unknown_path_is_127(self, place: Place) -> None:
        found = place.launch(["./no-such-file"])
        assert (found.returncode, found.stderr) == (127, "autotrace: ./no-such-file: no such file\n")

    def test_a_file_that_is_not_executable_is_126(self, place: Place) -> None:
        place.write("plain.txt", "")
        found = place.launch(["./plain.txt"])
        assert found.returncode == 126
        assert "permission denied" in found.stderr

    def test_a_directory_is_126(self, place: Place) -> None:
        assert place.launch(["./"]).returncode == 126

    def test_a_bad_spec_is_2_with_file_and_line(self, place: Place) -> None:
        place.write("mine.yaml", "- my.module.function\n- target: my.other\n  rol: llm\n")
        found = place.launch(self.START, ["--spec", "mine.yaml"])
        assert found.returncode == 2
        assert "mine.yaml:3:3:" in found.stderr
        assert "role" in found.stderr

    def test_a_missing_spec_is_2(self, place: Place) -> None:
        found = place.launch(self.START, ["--spec", "absent.yaml"])
        assert found.returncode == 2
        assert "absent.yaml" in found.stderr

    @pytest.mark.parametrize(
        ("options", "env", "said"),
        [
            (["--backend", "jaeger"], {}, "option --backend: there is no backend 'jaeger'; choose from jsonl"),
            (
                [],
                {"AUTOTRACE_DRAIN_TIMEOUT": "soon"},
                "environment AUTOTRACE_DRAIN_TIMEOUT: 'soon' is not a number of seconds",
            ),
            (["--drain-timeout", "-1"], {}, "option --drain-timeout: '-1' is not a number of seconds"),
            (["--content", "some"], {}, "option --content: there is no content 'some'; choose from full, text, none"),
            ([], {"AUTOTRACE_SUPERVISE": "maybe"}, "environment AUTOTRACE_SUPERVISE: 'maybe' is neither 1 nor 0"),
            (["--step-budget", "50XB"], {}, "option --step-budget: '50XB' is not a size; write for example 500MB"),
            ([], {"AUTOTRACE_REDACT_PATTERNS": "("}, "REDACT_PATTERNS: '(' is not a regular expression: missing )"),
            (["--sample-rate", "abc"], {}, "option --sample-rate: 'abc' is not a number between 0 and 1"),
            (["--every-n-steps", "-2"], {}, "option --every-n-steps: '-2' is not a whole number"),
            (["--redact-hook", "clean"], {}, "option --redact-hook: 'clean' does not name a function"),
            (["--keep", "slow=5"], {}, "option --keep: there is no keep-rule 'slow=5'; write one of errors, spread"),
            (["--run-dir", "/proc/nowhere"], {}, "choose another place with --run-dir or AUTOTRACE_RUN_DIR"),
        ],
    )
    def test_a_bad_setting_is_2_and_says_where_it_came_from(
        self, place: Place, options: list[str], env: dict[str, str], said: str
    ) -> None:
        found = place.launch(self.START, options, env)
        assert found.returncode == 2
        assert said in found.stderr
        assert len(found.stderr.splitlines()) == 1

    def test_verls_dead_trace_key_is_2_with_the_key_that_works(self, place: Place) -> None:
        found = place.launch([*self.START, "trainer.rollout_trace.backend=mlflow"])
        assert found.returncode == 2
        assert "actor_rollout_ref.rollout.trace.backend=mlflow" in found.stderr

    def test_a_directory_store_is_2_with_the_remedy(self, place: Place) -> None:
        found = place.launch(self.START, ["--backend", "mlflow", "--tracking-uri", "./mlruns"])
        assert found.returncode == 2
        assert "option --tracking-uri: ./mlruns is a directory store" in found.stderr
        assert "use sqlite:///" in found.stderr

    def test_no_command_is_2(self, place: Place) -> None:
        assert place.run([place.launcher]).returncode == 2


def test_with_plus_the_dead_trace_key_hurts_nobody(place: Place) -> None:
    assert place.launch(["python", "-c", "", "+trainer.rollout_trace.backend=mlflow"]).returncode == 0


def test_settings_and_their_origins_are_written_without_secrets(place: Place) -> None:
    place.launch(
        ["python", "-c", "", "--hub-token", "hush", "a.api_key=hush", "data.max_tokens=5", "http://u:hush@host/x"],
        ["--project", "p", "--drain-timeout", "7"],
        {"AUTOTRACE_EXPERIMENT": "e", "MLFLOW_TRACKING_URI": "http://user:hush@mlflow:5000"},
    )
    info = place.info()
    (run,) = place.runs()

    assert (info["project"], info["experiment"], info["drain_timeout"]) == ("p", "e", 7.0)
    assert info["tracking_uri"] == "http://user:***@mlflow:5000"
    assert info["command"][3:] == ["--hub-token", "***", "a.api_key=***", "data.max_tokens=5", "http://u:***@host/x"]
    assert info["origins"]["project"] == "option --project"
    assert info["origins"]["experiment"] == "environment AUTOTRACE_EXPERIMENT"
    assert info["origins"]["tracking_uri"] == "environment MLFLOW_TRACKING_URI"
    assert "hush" not in "".join(path.read_text() for path in run.glob("*.json"))


def test_a_fresh_sqlite_store_is_there_before_the_command_starts(place: Place) -> None:
    code = (
        "import sqlite3; ask = sqlite3.connect('fresh.db').execute\n"
        "print(*ask('select count(*) from alembic_version').fetchone(), *ask('pragma journal_mode').fetchone())"
    )
    found = place.launch(["python", "-c", code], ["--backend", "mlflow", "--tracking-uri", "sqlite:///fresh.db"])
    assert found.stdout == "1 wal\n", found.stderr
    assert place.info()["tracking_uri"] == f"sqlite:///{place.cwd.resolve()}/fresh.db"


def test_only_the_owner_can_read_a_run(place: Place) -> None:
    place.launch(["python", "-c", ""])
    (run,) = place.runs()

    modes = {path: path.stat().st_mode & 0o777 for path in [run, *run.rglob("*")]}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


def test_the_environment_of_the_command(place: Place) -> None:
    code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k[:6] in ('AUTOTR', 'MLFLOW')}))"
    found = json.loads(place.launch(["python", "-c", code]).stdout)
    (run,) = place.runs()

    assert found["AUTOTRACE"] == "1"
    assert found["AUTOTRACE_RUN_FOLDER"] == str(run.resolve())
    assert found["AUTOTRACE_RUN_ID"] == run.name
    assert Path(found["AUTOTRACE_PLAN"]).is_file()
    assert {"ray", "verl"} <= set(found["AUTOTRACE_MODULES"].split(","))
    assert found["MLFLOW_DISABLE_TELEMETRY"] == "true"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["program.py", "--api-key", "sk-ant-SECRET"], "program.py"),
        (["-u", "program.py", "SECRET"], "program.py"),
        (["-m", "program", "--token", "SECRET"], "-m program"),
        (["-Xdev", "-c", "key = 'SECRET'; import program"], "-c"),
    ],
    ids=["script", "option", "module", "code"],
)
def test_a_segment_says_which_program_and_never_with_what(place: Place, words: list[str], said: str) -> None:
    place.write("program.py", "import steps\nsteps.step(1)\n")
    place.write("steps.py", "def step(number): return number\n")
    spec = place.write("spec.yaml", "- steps.step\n")
    done = place.launch(["python", *words], ["--spec", str(spec)])
    assert done.returncode == 0, done.stderr
    (run,) = place.runs()
    (segment,) = run.glob("spool/*.seg")
    data = segment.read_bytes()
    assert said.encode() in data and b"SECRET" not in data


def test_a_redaction_hook_that_is_not_there_starts_nothing(place: Place) -> None:
    place.write("there/agent.py", "print('started')")
    place.write("there/clean.py", "def value(name, value): return value")
    for hook, said in (
        ("nomod.clean:value", "there is no module nomod.clean"),
        ("clean:values", "clean.py has no values"),
    ):
        refused = place.launch(["python", "there/agent.py"], ["--redact-hook", hook])
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"option --redact-hook: '{hook}'" in refused.stderr and said in refused.stderr
    assert not place.runs()
    assert place.launch(["python", "there/agent.py"], ["--redact-hook", "clean:value"]).stdout == "started\n"


@pytest.mark.parametrize("way", [["agents.py"], ["-m", "agents"]], ids=["script", "module"])
def test_a_class_that_the_program_never_made_is_said(place: Place, way: list[str]) -> None:
    place.write("agents.py", "class Agent:\n    def run(self): return 1\nAgent().run()\n")
    place.write("mine.yaml", "- agents.Agnet.run\n- agents.Agent.rum\n- agents.Agent.run\n")
    place.launch(["python", *way], ["--spec", "mine.yaml"])
    (run,) = place.runs()
    told = {target.key: target for target in RunReader.open(run).status().targets}
    assert told["agents.Agnet.run"].reasons == ["__main__ has no `Agnet` yet; did you mean `Agent`?"]
    assert told["agents.Agent.rum"].reasons == ["__main__.Agent has no `rum` yet; did you mean `run`?"]
    assert told["agents.Agent.run"].states == {"bound": 1} and told["agents.Agent.run"].calls == 1
