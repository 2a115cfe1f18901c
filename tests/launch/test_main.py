"""``autotrace-run COMMAND`` is COMMAND: same output, arguments, process, exit code and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from autotrace.ship.readers import of_run
from tests.cases import in_turns, some
from tests.folders import modes
from tests.places import SHOW, Place
from tests.waiting import DEADLINE, until

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
        "console script": ["./script"],
        "env script": ["./env-script"],
        "long path script": ["./long-path-script"],
        "shell script": ["./train.sh"],
        "bash -c": ["bash", "-c", 'python program.py "$@"', "name"],
        "no shebang": ["./no-shebang"],
        "torchrun": ["./torchrun-like", "program.py"],
    }


WAYS = (
    "python file", "python -m", "python -c", "console script", "env script", "long path script",
    "shell script", "bash -c", "no shebang", "torchrun",
)  # fmt: skip
FIRST_WAYS = ("python file", "python -m", "python -c", "console script", "shell script", "torchrun")


@pytest.mark.parametrize("way", some(WAYS, *FIRST_WAYS))
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
        output = process.communicate(timeout=DEADLINE)[0]

    assert output.split()[:2] == [str(process.pid), "True"]
    assert place.info()["main_pid"] == process.pid


@pytest.mark.parametrize("options", [(), ("--supervise",)], ids=["exec", "supervise"])
def test_signals_reach_the_command(place: Place, options: tuple[str, ...]) -> None:
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
    code = (
        "import os, signal, sys, time\n"
        f"for number in {[*map(int, numbers)]}:\n"
        # not print: the signal may come while 'ready' is flushed, and a buffered file refuses a call inside another
        "    signal.signal(number, lambda number, _: os.write(1, b'%d\\n' % number))\n"
        "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)\n"  # not one pause: the signal may come just before that
    )
    with subprocess.Popen(
        place.command(["python", "-c", code], options), cwd=place.cwd, env=place.environ(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for number in numbers:
            process.send_signal(number)
            assert process.stdout.readline() == b"%d\n" % number
        process.send_signal(signal.SIGUSR2)
        process.communicate(timeout=DEADLINE)

    assert process.returncode == 42


def test_an_interrupt_before_the_command_runs_ends_it_like_the_command(place: Place) -> None:
    """The launcher asks an interpreter that has no autotrace whether it would be traced, and this one never answers."""
    place.write("python", "#!/bin/sh\necho $$ > asked.part && mv asked.part asked\nexec sleep 600\n", 0o755)
    with subprocess.Popen(
        place.command(["./python", "-c", SHOW]),
        cwd=place.cwd,
        env=place.environ(),
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in background jobs
    ) as process:
        asked = until(lambda: int((place.cwd / "asked").read_text()), meanwhile=(OSError,))
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=DEADLINE)[1]
        os.kill(asked, signal.SIGKILL)
    assert (process.returncode, said) == (-signal.SIGINT, b"")


@pytest.mark.parametrize(
    ("number", "options"),
    in_turns((signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV), (("--supervise",), ())),
)
def test_death_by_a_signal_is_reported_as_it_was(
    place: Place, number: signal.Signals, options: tuple[str, ...]
) -> None:
    code = f"import os; os.kill(os.getpid(), {int(number)})"

    assert place.launch(["python", "-c", code], options).returncode == -number


@pytest.mark.parametrize("options", [(), ("--supervise",)], ids=["exec", "supervise"])
def test_a_parent_that_ignores_sigchld(place: Place, options: tuple[str, ...]) -> None:
    argv = ["python", "-c", "import signal, sys; print(signal.getsignal(signal.SIGCHLD).name); sys.exit(7)"]
    done = place.run(place.command(argv, options), preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))

    assert (done.returncode, done.stdout) == (7, "SIG_IGN\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_a_key_on_the_terminal_reaches_a_supervised_command_once(place: Place) -> None:
    code = (
        "import os, signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: (seen.append(1), os.write(1, b'seen')))\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(len(seen)))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)\n"
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


def _without_progress(stderr: str) -> list[str]:
    """The lines but those about a wait of more than a second, on a machine that is busy."""
    return [line for line in stderr.splitlines() if not line.startswith("autotrace: delivering")]


def test_one_line_at_the_start_and_one_at_the_end_on_stderr(place: Place) -> None:
    loud = place.launch(["python", "-c", ""])
    quiet = place.launch(["python", "-c", ""], ["--quiet"])

    lines = _without_progress(loud.stderr)
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

    assert len(_without_progress(loud.stderr)) == 3 and loud.stderr.startswith(
        f"autotrace: {directory} can be read by other users (mode 755); the runs in it cannot"
    )
    assert quiet.stderr == "" and "other users" not in private.stderr
    assert all(run.stat().st_mode & 0o777 == 0o700 for run in place.runs())
    assert {mode for path, mode in modes(directory).items() if not path.is_dir()} == {0o600}


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
        assert place.refusal(["no-such-command", "x"]) == (127, found.stderr), "as in this process"

    def test_an_unknown_path_is_127(self, place: Place) -> None:
        assert place.refusal(["./no-such-file"]) == (127, "autotrace: ./no-such-file: no such file\n")

    def test_a_file_that_is_not_executable_is_126(self, place: Place) -> None:
        place.write("plain.txt", "")
        code, stderr = place.refusal(["./plain.txt"])
        assert code == 126
        assert "permission denied" in stderr

    def test_a_directory_is_126(self, place: Place) -> None:
        assert place.refusal(["./"])[0] == 126

    def test_a_bad_spec_is_2_with_file_and_line(self, place: Place) -> None:
        place.write("mine.yaml", "- my.module.function\n- target: my.other\n  rol: llm\n")
        code, stderr = place.refusal(self.START, ["--spec", "mine.yaml"])
        assert code == 2
        assert "mine.yaml:3:3:" in stderr
        assert "role" in stderr

    def test_a_missing_spec_is_2(self, place: Place) -> None:
        code, stderr = place.refusal(self.START, ["--spec", "absent.yaml"])
        assert code == 2
        assert "absent.yaml" in stderr

    def test_verls_dead_trace_key_is_2_with_the_key_that_works(self, place: Place) -> None:
        code, stderr = place.refusal([*self.START, "trainer.rollout_trace.backend=mlflow"])
        assert code == 2
        assert "actor_rollout_ref.rollout.trace.backend=mlflow" in stderr

    def test_a_directory_store_is_2_with_the_remedy(self, place: Place) -> None:
        code, stderr = place.refusal(self.START, ["--backend", "mlflow", "--tracking-uri", "./mlruns"])
        assert code == 2
        assert "option --tracking-uri: ./mlruns is a directory store" in stderr
        assert "use sqlite:///" in stderr

    def test_no_command_is_2(self, place: Place) -> None:
        assert place.run([place.launcher]).returncode == 2


def test_with_plus_the_dead_trace_key_hurts_nobody(place: Place) -> None:
    assert place.record(["python", "-c", "", "+trainer.rollout_trace.backend=mlflow"]).returncode == 0


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
    done = place.record(["python", *words], ["--spec", str(spec)], is_delivered=False)
    assert done.returncode == 0, done.stderr
    (run,) = place.runs()
    (segment,) = run.glob("spool/*.seg")
    data = segment.read_bytes()
    assert said.encode() in data and b"SECRET" not in data


@pytest.mark.parametrize("way", [["agents.py"], ["-m", "agents"]], ids=["script", "module"])
def test_a_class_that_the_program_never_made_is_said(place: Place, way: list[str]) -> None:
    place.write("agents.py", "class Agent:\n    def run(self): return 1\nAgent().run()\n")
    place.write("mine.yaml", "- agents.Agnet.run\n- agents.Agent.rum\n- agents.Agent.run\n")
    place.record(["python", *way], ["--spec", "mine.yaml"])
    (run,) = place.runs()
    told = {target.key: target for target in of_run(run).run.status().targets}
    assert told["agents.Agnet.run"].reasons == ["__main__ has no `Agnet` yet; did you mean `Agent`?"]
    assert told["agents.Agent.rum"].reasons == ["__main__.Agent has no `rum` yet; did you mean `run`?"]
    assert told["agents.Agent.run"].states == {"bound": 1} and told["agents.Agent.run"].calls == 1


def test_a_trace_of_verls_that_gets_nothing_is_said_at_the_start(place: Place) -> None:
    place.write("program.py", "")
    words = [
        "actor_rollout_ref.rollout.trace.backend=mlflow",
        "+trainer.rollout_trace.backend='weave'",
        "backend=mlflow",
    ]
    said = place.record(["python", "program.py", *words]).stderr
    for name in ("mlflow", "weave"):
        assert said.count(f"veRL's own trace into {name} is switched off, and this run delivers to jsonl; ") == 1
        assert f"add --backend {name}" in said
