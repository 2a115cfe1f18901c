"""How the agent gets into a process without ``autotrace-run``, and how little it costs where nothing is traced."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from autotrace.bootstrap import activate
from autotrace.bootstrap.prepare import is_host_program
from autotrace.spec.compiler import compile_plan, watched_modules
from tests.agent_frameworks.server import serving
from tests.places import ROOT, SHOW, Place
from tests.waiting import DEADLINE

ON = {"AUTOTRACE": "1", "AUTOTRACE_BACKEND": "jsonl"}
SHIPPED = compile_plan()
SITECUSTOMIZE = ROOT / "autotrace" / "bootstrap" / "sitecustomize"


class TestEnvironmentAlone:
    def test_the_first_process_makes_the_run_and_children_join_it(self, place: Place) -> None:
        code = f"{SHOW}\nimport subprocess; subprocess.run([sys.executable, '-c', {SHOW!r}])"
        found = place.run(["python", "-u", "-c", code], ON)

        pids = [line.split()[0] for line in found.stdout.splitlines()]
        assert [line.split()[1] for line in found.stdout.splitlines()] == ["True", "True"]
        assert place.info()["main_pid"] == int(pids[0])
        assert place.info()["command"][1:] == ["-u", "-c", code]
        assert "autotrace: nothing was recorded" in found.stderr

    def test_a_mistake_is_said_once_and_the_program_runs_untraced(self, place: Place) -> None:
        code = f"{SHOW}\nimport subprocess; subprocess.run([sys.executable, '-c', {SHOW!r}]); sys.exit(7)"
        found = place.run(["python", "-c", code], {**ON, "AUTOTRACE_BACKEND": "jaeger"})

        assert found.returncode == 7
        assert len(found.stdout.splitlines()) == 2
        assert found.stderr.splitlines() == [
            "autotrace: environment AUTOTRACE_BACKEND: there is no backend 'jaeger'; "
            "choose from jsonl, mlflow, otlp, parquet, weave",
            "autotrace: the program runs without tracing",
        ]
        assert not place.runs()

    def test_without_the_variable_nothing_is_loaded(self, place: Place) -> None:
        assert place.run(["python", "-c", SHOW]).stdout.split()[1] == "False"
        for off in ("0", "off", "False", ""):
            assert place.run(["python", "-c", SHOW], {**ON, "AUTOTRACE": off}).stdout.split()[1] == "False"

    @pytest.mark.parametrize("on", ["true", "YES", "on"])
    def test_it_is_said_like_every_other_flag(self, place: Place, on: str) -> None:
        code = f"{SHOW}\nprint(os.environ['AUTOTRACE'])"
        assert place.run(["python", "-c", code], {**ON, "AUTOTRACE": on}).stdout.split()[1::2] == ["True", "1"]
        assert len(place.runs()) == 1

    def test_children_of_a_traced_script_pay_for_no_engine(self, place: Place) -> None:
        loaded = "import sys; print('autotrace.patch.engine' in sys.modules)"
        place.write(
            "agent.py",
            "import multiprocessing, subprocess, sys\n"
            "class Agent:\n    def run(self): return 1\n"
            "def child(): Agent().run()\n"
            "if __name__ == '__main__':\n"
            f"    exec({loaded!r}); Agent().run()\n"
            f"    subprocess.run([sys.executable, '-c', {loaded!r}])\n"
            "    for method in ('spawn', 'forkserver'):\n"
            "        process = multiprocessing.get_context(method).Process(target=child)\n"
            "        process.start(); process.join(); print(process.exitcode)\n",
        )
        spec = place.write("spec.yaml", "- agent.Agent.run\n")
        variables = {**ON, "AUTOTRACE_SPECS": str(spec), "AUTOTRACE_KEEP_SPOOL": "1"}
        done = place.run(["python", "-u", "agent.py"], variables)
        assert done.stdout.split() == ["True", "False", "0", "0"], done.stderr
        (run,) = place.runs()
        lines = (run / "trajectories.jsonl").read_text().splitlines()
        assert len(lines) == 3 and len({path.name for path in run.glob("spool/*.seg")}) == 3

    def test_a_tool_is_no_host_program(self, place: Place) -> None:
        place.run(["python", "-m", "compileall", "-q", "."], ON)
        assert not place.runs()


@pytest.mark.parametrize(
    ("argv", "host"),
    [
        ("python train.py pip", True),
        ("python -m verl.trainer.main_ppo", True),
        ("python -u -X dev -W ignore -m torch.distributed.run train.py", True),
        ("python -c print(1)", True),
        ("python", True),
        ("python -", True),
        ("python /venv/bin/torchrun train.py", True),
        ("python -mpip install x", False),
        ("python -Xtracemalloc /venv/bin/pip install x", False),
        ("python -Wonce::DeprecationWarning:torch train.py", True),
        ("python -Xfrozen_modules=off -m pip install x", False),
        ("python -m pip install x", False),
        ("python -Im pip install x", False),
        ("python /venv/bin/pip3.11 install x", False),
        ("python -u -m ray.dashboard.dashboard", False),
        ("python /venv/lib/python3.11/site-packages/ray/_private/workers/default_worker.py", False),
        ("python /venv/lib/python3.11/site-packages/ray/dashboard/agent.py", False),
        ("python /venv/bin/ray start --head", False),
        ("python -m torch._inductor.compile_worker", False),
        ("python /venv/bin/autotrace-run python train.py", False),
        ("python -m autotrace.launch.main python train.py", False),
        ("python /venv/bin/mlflow ui", False),
        ("python setup.py build", False),
    ],
)
def test_which_command_lines_are_the_program_to_trace(argv: str, host: bool) -> None:
    assert is_host_program(argv.split(" ")) is host


@pytest.mark.parametrize(
    "code",
    [
        "from multiprocessing.resource_tracker import main;main(5)",
        "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
        "from multiprocessing.forkserver import main; main(5, 6)",
    ],
)
def test_helpers_of_multiprocessing_are_not(code: str) -> None:
    assert not is_host_program(["python", "-s", "-c", code])


class TestPth:
    LINE = (ROOT / "autotrace.pth").read_text()

    def test_it_is_one_import_line(self) -> None:
        assert self.LINE.startswith("import os, sys;")
        assert len(self.LINE.splitlines()) == 1

    def test_running_it_again_changes_nothing(self, place: Place) -> None:
        again = f"for _ in range(3): exec({self.LINE!r})"
        code = f"from importlib import _bootstrap as b; before = b._find_spec\n{again}\nprint(before == b._find_spec)"
        assert place.record(["python", "-c", code], is_delivered=False).stdout == "True\n"

    @pytest.mark.parametrize("package", ["missing", "broken"])
    def test_without_a_working_package_it_says_nothing(self, tmp_path: Path, package: str) -> None:
        if package == "broken":
            (tmp_path / "autotrace").mkdir()
            (tmp_path / "autotrace" / "__init__.py").write_text("raise RuntimeError('broken')")
        code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]\nexec({self.LINE!r})\nprint('fine')"
        found = subprocess.run(
            [sys.executable, "-S", "-c", code],
            cwd=tmp_path, env={"AUTOTRACE": "1"}, capture_output=True, text=True, check=True, timeout=DEADLINE,
        )  # fmt: skip
        assert (found.stdout, found.stderr) == ("fine\n", "")

    def test_the_entry_point_of_pep_829_does_the_same(self, place: Place) -> None:
        (entry,) = [line for line in (ROOT / "autotrace.start").read_text().splitlines() if not line.startswith("#")]
        code = (
            "import pkgutil, sys\n"
            "loaded = lambda: 'autotrace.bootstrap.activate' in sys.modules\n"
            f"before = loaded(); pkgutil.resolve_name({entry!r})(); print(before, loaded())"
        )
        plan = place.write("plan.json", "{}")
        variables = {"AUTOTRACE_PLAN": str(plan), "AUTOTRACE_MODULES": ""}
        bare = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n{code}"]
        assert place.run(bare, {**variables, "AUTOTRACE": "1"}).stdout == "False True\n"
        assert place.run(bare, variables).stdout == "False False\n"


class TestSitecustomize:
    """For those who cannot install: the interpreter has no ``autotrace.pth``."""

    @pytest.fixture
    def python(self) -> str:
        return os.path.join(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")

    @staticmethod
    def variables(place: Place, *folders: Path) -> dict[str, str]:
        path = os.pathsep.join(map(str, [SITECUSTOMIZE, *folders, ROOT]))
        plan = place.write("plan.json", "{}")
        return {"PYTHONPATH": path, "AUTOTRACE": "1", "AUTOTRACE_PLAN": str(plan), "AUTOTRACE_MODULES": ""}

    def test_it_activates(self, place: Place, python: str) -> None:
        found = place.run([python, "-c", SHOW], self.variables(place))
        assert found.stdout.split()[1] == "True"
        assert found.stderr == ""

    def test_the_users_own_still_runs_under_its_name(self, place: Place, python: str) -> None:
        place.write("theirs/sitecustomize.py", "import builtins; builtins.theirs = __file__")
        code = "import sys, sitecustomize; print(theirs == sitecustomize.__file__, 'autotrace' in sys.modules)"
        variables = self.variables(place, place.cwd / "theirs")

        assert place.run([python, "-c", code], variables).stdout == "True True\n"
        assert place.run([python, "-c", code], {**variables, "AUTOTRACE": "0"}).stdout == "True False\n"

    def test_the_users_own_error_reads_as_ever(self, place: Place, python: str) -> None:
        place.write("theirs/sitecustomize.py", "raise ValueError('theirs')")
        theirs = place.cwd / "theirs"
        ours = place.run([python, "-c", "print(1)"], self.variables(place, theirs))
        bare = place.run([python, "-c", "print(1)"], {"PYTHONPATH": str(theirs)})

        assert ours.stdout == bare.stdout == "1\n"
        assert ours.stderr == bare.stderr

    def test_beside_the_pth_it_changes_nothing(self, place: Place) -> None:
        code = (
            "from importlib import _bootstrap; from autotrace.bootstrap.activate import watch\n"
            "print(_bootstrap._find_spec == watch.find_spec, watch._original.__module__)"
        )
        assert place.run(["python", "-c", code], self.variables(place)).stdout == "True _frozen_importlib\n"

    def test_autotrace_run_uses_it_where_there_is_no_pth(self, place: Place) -> None:
        program = place.write(
            "program.py", f"import subprocess\n{SHOW}\nsubprocess.run([sys.executable, '-c', {SHOW!r}])"
        )
        bare = place.cwd / "bare"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=DEADLINE)
        (packages,) = bare.glob("lib/python*/site-packages")
        found = [entry for entry in sys.path if entry.endswith("site-packages")]
        (packages / "_found.pth").write_text("\n".join(found) + "\n")
        launch = [str(bare / "bin" / "python"), "-m", "autotrace.launch.main", "--backend", "jsonl"]
        done = place.run([*launch, str(bare / "bin" / "python"), str(program)], {"PYTHONPATH": str(ROOT)})

        assert [line.split()[1] for line in done.stdout.splitlines()] == ["True", "True"]
        assert len(place.runs()) == 1


class TestCost:
    """A process of a run that traces nothing."""

    MODULES = (
        "wrapt", "yaml", "msgspec", "json", "subprocess", "socket", "importlib.metadata", "collections",
        "autotrace.patch",
    )  # fmt: skip

    @pytest.fixture
    def variables(self, place: Place) -> dict[str, str]:
        plan = place.write("plan.json", "{}")
        return {"AUTOTRACE": "1", "AUTOTRACE_PLAN": str(plan), "AUTOTRACE_MODULES": "verl,vllm,ray"}

    def test_it_imports_nothing_slow(self, place: Place, variables: dict[str, str]) -> None:
        code = f"import sys; print([name for name in {self.MODULES} if name in sys.modules])"
        bare = place.run(["python", "-c", code])
        traced = place.run(["python", "-c", code], variables)
        assert traced.stdout == bare.stdout

    def test_the_shipped_lists_cost_a_process_nothing_that_imports_none_of_their_libraries(self, place: Place) -> None:
        libraries = {name.replace(":", ".").partition(".")[0] for target in SHIPPED.targets for name in target.names}
        assert {"openai", "langchain_core", "pydantic_ai", "trl", "verl", "sglang"} <= libraries
        code = f"import asyncio, sys; print([name for name in {(*self.MODULES, *libraries)} if name in sys.modules])"
        bare = place.run([place.python, "-c", code])
        traced = place.record([place.python, "-c", code], is_delivered=False)
        assert traced.stdout == bare.stdout != ""

    @pytest.mark.parametrize("path", sorted((ROOT / "patch_specs").glob("*.yaml")), ids=lambda path: path.stem)
    def test_each_list_is_waited_for_or_of_calls_inside_of_others_alone(self, path: Path) -> None:
        """A process imports nothing of ours until a watched module is wanted, whichever lists there are."""
        watched = watched_modules(SHIPPED)
        targets = [target for target in SHIPPED.targets if target.where.startswith(f"patch_specs/{path.name}:")]
        assert targets
        for target in targets:
            assert target.inside or any(name.replace(":", ".").partition(".")[0] in watched for name in target.names)

    def test_a_process_that_imports_what_many_import_pays_nothing(self, place: Place) -> None:
        code = (
            "import sys, httpx, mcp\n"
            "print([name for name in sys.modules if name.startswith(('autotrace.patch', 'autotrace.record', 'wrapt'))])"
        )
        traced = place.record([place.python, "-c", code], is_delivered=False)
        assert traced.stdout == place.run([place.python, "-c", code]).stdout == "[]\n"

    def test_clients_that_were_imported_before_are_bound_with_the_first_watched_module(self, place: Place) -> None:
        place.write("agents.py", "def solve(ask, post): return ask() + post()\n")
        place.write("own.yaml", "- {target: agents.solve, role: trajectory}\n")
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "2+2?"}]}
        code = (
            "import sys, httpx, openai\n"
            "client, plain, url = openai.OpenAI(base_url=sys.argv[1], api_key='none'), httpx.Client(), sys.argv[1]\n"
            f"def ask(): return client.chat.completions.create(**{asked}).choices[0].message.content\n"
            f"def sent(): return plain.post(url + '/chat/completions', json={asked}).json()\n"
            "def post(): return sent()['choices'][0]['message']['content']\n"
            "sent()\n"
            "from agents import solve\n"
            "print(solve(ask, post))\n"
        )
        with serving() as url:
            done = place.record(["python", "-c", code, url], ["--spec", "own.yaml"])
        assert done.stdout == "It is 4.It is 4.\n", done.stderr
        (run,) = place.runs()
        (trajectory,) = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
        assert [span["role"] for span in trajectory["spans"]] == ["trajectory", "llm", "llm"]
        assert all(span["messages"][-1]["content"] == "It is 4." for span in trajectory["spans"][1:])

    def test_it_starts_within_milliseconds_of_a_bare_one(self, place: Place, variables: dict[str, str]) -> None:
        """CPU time beside bare interpreters of the same moment. Measured: 1.15 times theirs, some 2 ms."""
        code = "import time; print(time.process_time())"

        def spent(env: dict[str, str]) -> float:
            return float(place.run([place.python, "-c", code], env).stdout)

        spent(variables)  # compiled, as after an installation
        assert statistics.median(spent(variables) / spent({}) for _ in range(15)) < 1.6

    def test_the_launcher_itself_is_quick(self, place: Place) -> None:
        """CPU time beside bare interpreters of the same moment; the second time everything is compiled. Measured: that
        of 25 to 38 of them."""

        def spent(command: Sequence[str]) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert place.run(command).returncode == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        bare = ["python", "-c", ""]
        launched = place.command(bare, ["--drain-timeout", "0"])
        pairs = [(spent(launched), statistics.mean(spent(bare) for _ in range(5))) for _ in range(2)]
        assert min(launcher / interpreter for launcher, interpreter in pairs) < 100

    def test_the_launcher_imports_nothing_slow(self, place: Place) -> None:
        code = (
            "import json, sys; import autotrace.launch.main\n"
            "slow = ('pydantic', 'mlflow', 'rich', 'yaml', 'httpx', 'wrapt')\n"
            "print(json.dumps([name for name in slow if name in sys.modules]))"
        )
        assert json.loads(place.run(["python", "-c", code]).stdout) == []


def test_a_timeout_of_the_programs_that_comes_while_the_agent_starts_is_the_programs(place: Place) -> None:
    code = """
import signal, sys
from autotrace.adapters import registry
class Timeout(Exception): ...
def handle(number, frame): raise Timeout
signal.signal(signal.SIGALRM, handle)
start, calls = registry.start, []
def interrupted():
    calls.append(1)
    if len(calls) == 1:
        signal.raise_signal(signal.SIGALRM)
    return start()
registry.start = interrupted
from autotrace.bootstrap.activate import watch
for attempt in range(2):
    try:
        watch.find_spec(min(watch.names), None)
        print("looked")
    except Timeout:
        print("timeout")
print(len(calls), watch.started)
"""
    assert place.run(["python", "-c", code], ON).stdout.splitlines() == ["timeout", "looked", "2 True"]


COPIES = """
import contextlib, dataclasses, enum, functools, gc, inspect, json, logging, pathlib, types, weakref
modules = [value for value in gc.get_objects() if type(value) is types.ModuleType]
print([module.__name__ for module in modules if module.__name__ in sys.argv[1:]])
"""


@pytest.mark.parametrize(
    "target", ["functools.wraps", "logging.Logger.info", "contextlib.**", "json.dumps", "types.**"]
)
def test_a_target_in_a_library_that_the_agent_needs_itself_does_not_disturb_its_import(
    place: Place, target: str
) -> None:
    """The agent must not start while such a library is half imported, nor import it a second time."""
    place.write("spec.yaml", f"- {target}\n")
    command = ["python", "-c", f"import sys{COPIES}", target.partition(".")[0]]
    found = place.record(command, ["--quiet", "--spec", "spec.yaml"], is_delivered=False)
    bare = place.run(command)
    assert (found.returncode, found.stdout) == (0, bare.stdout) and bare.stdout.count("'") == 2
    assert "Traceback" not in found.stderr and "could not start" not in found.stderr


class _Handler(logging.Handler):
    """What the program does with lines of the log."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.act = act

    def emit(self, record: logging.LogRecord) -> None:
        self.act()


def test_a_timeout_that_comes_while_the_agent_says_that_it_cannot_start_is_the_programs() -> None:
    class TimedOut(Exception):
        """Raised by the program's signal handler."""

    def handle(number: int, frame: object) -> None:
        raise TimedOut

    def fail() -> None:
        raise ValueError("a handler of the program's that does not work")

    log = logging.getLogger("autotrace")
    previous = signal.signal(signal.SIGUSR1, handle)
    handler = _Handler(lambda: signal.raise_signal(signal.SIGUSR1))
    log.addHandler(handler)
    try:
        with pytest.raises(TimedOut):
            activate._complain()
        handler.act = fail
        activate._complain()
    finally:
        log.removeHandler(handler)
        signal.signal(signal.SIGUSR1, previous)
