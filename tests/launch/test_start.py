"""``autotrace.start`` and ``autotrace.stop``: the door for a program that is up already."""

from __future__ import annotations

import json
import re
import site
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT, Place

TOOLS = """
HELD = {}

def held(function):
    HELD[function.__name__] = function
    return function

@held
def look_up(city):
    return city.upper()

class Agent:
    def answer(self, city):
        return HELD["look_up"](city) + "!"
"""
LIST = """
- target: tools.Agent.answer
  role: trajectory
- target: tools.look_up
  role: tool
"""
OTHER = "- target: tools.look_up\n  role: trajectory\n"
START = "import autotrace, tools\nautotrace.start('mine.yaml', backend='jsonl')\n"


@pytest.fixture
def project(place: Place) -> Place:
    """Tools in a module and two lists."""
    place.write("tools.py", TOOLS)
    place.write("mine.yaml", LIST)
    place.write("other.yaml", OTHER)
    return place


def spans(run: Path) -> list[list[str]]:
    """Names of the spans of each trajectory."""
    lines = (run / "trajectories.jsonl").read_text().splitlines()
    return [[span["name"] for span in json.loads(line)["spans"]] for line in lines]


def program(place: Place, code: str, *options: str, name: str = "program.py", **variables: str) -> str:
    """What a script says that ends well."""
    place.write(name, code)
    done = place.run(["python", *options, name], variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_what_was_imported_before_is_recorded_and_what_holds_it(project: Place) -> None:
    said = program(
        project,
        """
import functools, pickle
import tools
from tools import look_up
bound, part, before = tools.Agent().answer, functools.partial(look_up, "celle"), look_up.__code__

def outer(x): return bound(x)

import autotrace
with autotrace.start("mine.yaml", backend="jsonl") as run:
    assert look_up is tools.HELD["look_up"] is pickle.loads(pickle.dumps(look_up))
    print(outer("aachen"), part(), run.folder, run.active)
print(look_up.__code__ is before, bound("bonn"), run.active)
""",
    )
    (folder,) = project.runs()
    assert said.splitlines() == [f"AACHEN! CELLE {folder.resolve()} True", "True BONN! False"]
    assert sorted(spans(folder)) == [["Agent.answer", "look_up"], ["look_up"]]
    assert json.loads((folder / "status.json").read_text())["state"] == "done"


def test_the_program_itself_also_where_it_had_begun_and_what_it_defines_later(project: Place) -> None:
    project.write("own.yaml", "- target: program.solve\n  role: trajectory\n- __main__:early\n- program:late\n")
    code = """
import sys
def early(x): return x + 1
import autotrace
autotrace.start("own.yaml", backend="jsonl")
def late(x): return early(x) * 2
def solve(x):
    return late(x)
print(solve(1), sys.gettrace())
"""
    assert program(project, code) == "4 None\n"
    (run,) = project.runs()
    assert spans(run) == [["solve", "late", "early"]]


def test_after_stop_nothing_is_left_but_modules(project: Place) -> None:
    project.write("m.yaml", "- tools.look_up\n- {target: program:solve, role: trajectory}\n- program:never\n")
    code = """
import atexit
hooks, register, unregister = [], atexit.register, atexit.unregister
atexit.register = lambda hook, *given, **named: (hooks.append(hook), register(hook, *given, **named))[1]
atexit.unregister = lambda hook: (hooks.remove(hook) if hook in hooks else None, unregister(hook))

import builtins, importlib, inspect, linecache, os, subprocess, sys, threading, time, warnings
import anthropic, concurrent.futures, httpx, multiprocessing.util, openai, ray, ray.remote_function
import ray._private.function_manager, IPython.core.interactiveshell as shell
import _frozen_importlib
import tools

def solve(x):
    class Inner:
        pass
    return tools.look_up(x)

LOOKED_AT = (
    builtins, importlib.util, _frozen_importlib, concurrent.futures.ThreadPoolExecutor, httpx.Client, httpx.AsyncClient,
    ray, ray._private.worker, ray.actor.ActorHandle, ray._private.function_manager.FunctionActorManager,
    ray.remote_function, ray.remote_function.RemoteFunction, shell.InteractiveShell, openai.OpenAI, anthropic.Anthropic,
    openai.resources.chat.completions.Completions, tools, tools.Agent, threading, inspect,
)

def found():
    children = open(f"/proc/self/task/{os.getpid()}/children").read()
    return {
        **{f"{owner.__name__} {name}": id(value) for owner in LOOKED_AT for name, value in vars(owner).items()},
        **{f"environment {name}": value for name, value in os.environ.items()},
        "codes": [function.__code__ for function in (solve, tools.look_up, tools.Agent.answer)],
        "meta_path": list(sys.meta_path), "path_hooks": list(sys.path_hooks), "path": list(sys.path),
        "threads": len(os.listdir("/proc/self/task")), "exit hooks": list(hooks), "children": children,
        "descriptors": sorted(os.listdir("/proc/self/fd")), "trace": sys.gettrace(), "profile": sys.getprofile(),
        "filters": list(warnings.filters), "lines": [name for name in linecache.cache if "autotrace" in name],
        "threading": threading.enumerate(),
        "signals": [__import__("signal").getsignal(number) for number in (2, 14, 15)],
    }

import autotrace
for number in range(3):  # the first one imports
    before = found()
    with autotrace.start("m.yaml", backend="jsonl", quiet=True):
        during = found()
        solve("x")
        subprocess.run([sys.executable, "-c", "import tools; tools.look_up('y')"], check=True)
    after = found()
    if number:
        assert during != before and not after["lines"]
        print({name: (before.get(name), after.get(name)) for name in {*before, *after}
               if before.get(name) != after.get(name)})
print(solve("z"))
"""
    assert program(project, code) == "{}\n{}\nZ\n"
    assert [sorted(spans(run)) for run in project.runs()] == [[["look_up"], ["solve", "look_up"]]] * 3


def test_a_second_run_with_another_list(project: Place) -> None:
    code = """
import threading, time
import autotrace, tools
entered, leave = threading.Event(), threading.Event()
class Slow(str):
    def upper(self):
        entered.set(); leave.wait()
        return "SLOW"

with autotrace.start("mine.yaml", backend="jsonl") as one:
    tools.Agent().answer("a")
    results = []
    waiting = threading.Thread(target=lambda: results.append(tools.Agent().answer(Slow())))
    waiting.start()
    entered.wait()
with autotrace.start("other.yaml", backend="jsonl") as two:
    tools.Agent().answer("b"), tools.Agent().answer("c")
    leave.set()
    waiting.join()
assert one.folder != two.folder
print(results, one.folder, two.folder, sep="\\n")
"""
    results, *folders = program(project, code).splitlines()
    one, two = map(Path, folders)
    assert results == "['SLOW!']"
    assert spans(one)[0] == ["Agent.answer", "look_up"]
    assert spans(two) == [["look_up"], ["look_up"]], "a call that was open when the first run ended is no part of this"
    for folder in (one, two):
        assert not json.loads((folder / "status.json").read_text())["drops"]


def test_starting_twice_is_an_error_and_the_run_goes_on(project: Place) -> None:
    code = """
import autotrace, tools
run = autotrace.start("mine.yaml", backend="jsonl")
try:
    autotrace.start("other.yaml", backend="jsonl")
except autotrace.StartError as error:
    print(str(error).replace(run.folder, "FOLDER"))
tools.Agent().answer("a")
autotrace.stop()
autotrace.stop()
"""
    assert program(project, code) == "this process is recorded to FOLDER already; call autotrace.stop() first\n"
    (run,) = project.runs()
    assert spans(run) == [["Agent.answer", "look_up"]]


MISTAKES: dict[str, tuple[str, list[str]]] = {
    "no list": ("'none.yaml', backend='jsonl'", ["--spec", "none.yaml"]),
    "a wrong name": ("'wrong.yaml', backend='jsonl'", ["--spec", "wrong.yaml"]),
    "a wrong backend": ("backend='jaeger'", ["--backend", "jaeger"]),
    "a wrong number": ("backend='jsonl', sample_rate=7", ["--sample-rate", "7"]),
    "a folder that cannot be": ("backend='jsonl', run_dir='tools.py'", ["--run-dir", "tools.py"]),
}


def test_a_mistake_is_the_sentence_of_autotrace_run_and_nothing_is_changed(project: Place) -> None:
    project.write("wrong.yaml", "- target: tools\n- tools.look_up()\n")
    refused = [project.refusal(["true"], options, backend=()) for _, options in MISTAKES.values()]
    assert [code for code, _ in refused] == [2] * len(MISTAKES)
    code = """
import builtins, os, sys, threading
import autotrace, tools
def found():
    return [dict(os.environ), dict(vars(builtins)), threading.enumerate(), tools.look_up.__code__, sorted(os.listdir())]
def mistake(*lists, **settings):
    before = found()
    try:
        autotrace.start(*lists, **settings)
    except autotrace.StartError as error:
        print("autotrace:", error)
    print(before == found())
"""
    code += "".join(f"mistake({arguments})\n" for arguments, _ in MISTAKES.values())
    code += 'with autotrace.start("mine.yaml", backend="jsonl", quiet=True):\n    tools.Agent().answer("a")\n'
    *said, rest = program(project, code).split("True\n")
    assert len(said) == len(MISTAKES) and not rest
    for sentence, (_, stderr) in zip(said, refused, strict=True):
        assert sentence.startswith("autotrace: ")
        assert stderr.endswith(sentence), "there may be a warning in front of it"
    (run,) = project.runs()
    assert spans(run) == [["Agent.answer", "look_up"]]


def test_a_setting_that_there_is_not(project: Place) -> None:
    project.write("program.py", "import autotrace\nautotrace.start(bakend='jsonl')\n")
    done = project.run(["python", "program.py"])
    assert done.stderr.splitlines()[-1].endswith("StartError: there is no setting 'bakend'; did you mean backend?")
    assert not project.runs()


def test_a_target_that_cannot_be_is_named_as_autotrace_run_names_it(project: Place) -> None:
    project.write("mine.yaml", "- tools.lock_up\n- made.here\n")
    project.write("elsewhere/made.py", "def here(): pass\n")
    launched = project.launch(["python", "-c", ""], ["--spec", "mine.yaml"], {"PYTHONPATH": "elsewhere"})
    project.write("program.py", "import sys; sys.path.append('elsewhere')\n" + START)
    started = project.run(["python", "program.py"])
    sentences = [[line for line in done.stderr.splitlines() if "will not" in line] for done in (launched, started)]
    assert sentences[0] == sentences[1] and "did you mean" in sentences[0][0] and len(sentences[0]) == 1


def test_settings_are_those_of_autotrace_run(project: Place) -> None:
    settings = "run_dir='there', drain_timeout=0, keep=['errors', 'random=1'], logprobs=True, quiet=True, content=None"
    program(project, f"import autotrace\nautotrace.start('mine.yaml', backend=['jsonl'], {settings})\nautotrace.stop()")
    (run,) = project.cwd.glob("there/*/run.json")
    info: dict[str, Any] = json.loads(run.read_text())
    assert (info["drain_timeout"], info["keep"], info["backends"]) == (0, ["errors", "random=1"], ["jsonl"])
    assert info["origins"]["backends"] == "option --backend" and info["origins"]["project"] == "default"
    plan = json.loads((run.parent / "plan.json").read_text())
    assert plan["settings"]["logprobs"] is True and plan["settings"]["content"] == "full"


def test_children_are_recorded_while_the_run_goes_on(project: Place) -> None:
    code = """
import multiprocessing, os, subprocess, sys
import tools, autotrace

def children():
    subprocess.run([sys.executable, "-c", "import tools; tools.Agent().answer('c')"], check=True)
    for method in ("fork", "spawn", "forkserver"):
        child = multiprocessing.get_context(method).Process(target=tools.Agent().answer, args=("c",))
        child.start(); child.join(); assert child.exitcode == 0

if __name__ == "__main__":
    with autotrace.start("mine.yaml", backend="jsonl"):
        tools.Agent().answer("p")
        children()
    subprocess.run([sys.executable, "-c", "import sys; print('autotrace' in sys.modules)"])
"""
    assert program(project, code) == "False\n"
    (run,) = project.runs()
    assert spans(run) == [["Agent.answer", "look_up"]] * 5


def test_a_spawned_child_that_runs_start_again_joins_the_run(project: Place) -> None:
    code = """
import multiprocessing
import tools, autotrace
run = autotrace.start("mine.yaml", backend="jsonl")  # not below `if __name__`: the child comes here too
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=tools.Agent().answer, args=("c",))
    child.start(); child.join(); assert child.exitcode == 0
autotrace.stop()
"""
    program(project, code)
    (run,) = project.runs()
    assert spans(run) == [["Agent.answer", "look_up"]]


def test_a_forked_child_does_not_end_its_parents_run(project: Place) -> None:
    code = """
import os, sys
import tools, autotrace
with autotrace.start("mine.yaml", backend="jsonl") as run:
    if not os.fork():
        tools.Agent().answer("c")
        autotrace.stop()
        sys.exit()
    os.wait()
    print(os.path.exists(run.folder + "/drain"))
    tools.Agent().answer("p")
"""
    assert program(project, code).splitlines()[-1] == "False"
    (run,) = project.runs()
    assert spans(run) == [["Agent.answer", "look_up"]] * 2


ACTORS = """
import ray, tools

@ray.remote
class Worker:
    def work(self, x):
        return tools.Agent().answer(x)

@ray.remote
def task(x):
    return tools.Agent().answer(x)
"""


@pytest.mark.long
def test_actors_of_ray(project: Place) -> None:
    project.write("actors.py", ACTORS)
    code = """
import os, runpy, time
import actors, autotrace, ray, tools
runpy.run_path(os.environ["RAY_WAITS"])
def delivered(path):
    return len(open(path).readlines()) if os.path.exists(path) else 0
with autotrace.start("mine.yaml", backend="jsonl", drain_timeout=120) as run:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    print(ray.get([actors.Worker.remote().work.remote("a"), actors.task.remote("t")]))
    while delivered(run.folder + "/trajectories.jsonl") < 2:  # it kills workers, and the last 0.2 s of them
        time.sleep(0.05)
    ray.shutdown()
print(hasattr(ray.init, "__wrapped__") and "autotrace" in ray.init.__code__.co_filename)
"""
    said = program(project, code, PYTHONPATH=str(project.cwd), RAY_USAGE_STATS_ENABLED="0")
    assert said == "['A!', 'T!']\nFalse\n"
    (run,) = project.runs()
    assert spans(run) == [["Agent.answer", "look_up"]] * 2


def test_without_stop_the_run_ends_with_the_process(project: Place) -> None:
    project.write("program.py", START + "tools.Agent().answer('a')\nraise SystemExit(7)\n")
    done = project.run(["python", "program.py"])
    assert done.returncode == 7
    (run,) = project.runs()
    assert re.search(rf"autotrace: saved 1 trajectory to jsonl \(.*{run.name}.*autotrace ls", done.stderr)
    assert spans(run) == [["Agent.answer", "look_up"]]


def test_an_error_in_the_block_passes_and_ends_the_run(project: Place) -> None:
    project.write("program.py", "import autotrace, tools\nwith autotrace.start('mine.yaml', backend='jsonl'):\n"
                  "    tools.Agent().answer(None)\n")  # fmt: skip
    done = project.run(["python", "program.py"])
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "AttributeError: 'NoneType' object has no attribute 'upper'"
    (run,) = project.runs()
    assert json.loads((run / "trajectories.jsonl").read_text())["spans"][0]["status"] == "ERROR"


def test_inside_of_a_run_that_goes_on_it_is_that_run(project: Place) -> None:
    project.write("program.py", "import tools, autotrace, os\nwith autotrace.start('other.yaml') as run:\n"
                  "    tools.Agent().answer('a')\ntools.Agent().answer('b')\n"
                  "print(run.active, run.folder == os.environ['AUTOTRACE_RUN_FOLDER'])\n")  # fmt: skip
    done = project.launch(["python", "program.py"], ["--spec", "mine.yaml"])
    assert done.stdout == "False True\n", done.stderr
    (run,) = project.runs()
    assert spans(run) == [["Agent.answer", "look_up"]] * 2


def test_the_variable_switches_it_off(project: Place) -> None:
    code = "import autotrace, tools\nrun = autotrace.start('none.yaml')\nprint(run.folder, tools.Agent().answer('a'))\n"
    assert program(project, code, AUTOTRACE="0") == "None A!\n"
    assert not project.runs()


def test_a_timeout_of_the_programs_ends_the_wait_of_stop(project: Place) -> None:
    code = """
import json, os, signal, time
import autotrace, tools
class TooLong(Exception): pass
def late(*_): raise TooLong
signal.signal(signal.SIGALRM, late)
code = tools.look_up.__code__
run = autotrace.start("mine.yaml", backend="jsonl", quiet=True)
while not os.path.exists(run.folder + "/status.json"): time.sleep(0.02)
shipper = json.load(open(run.folder + "/status.json"))["pid"]
os.kill(shipper, signal.SIGSTOP)  # delivery is waited for
tools.Agent().answer("a")
signal.alarm(2)
try:
    autotrace.stop()
except TooLong:
    print("too long", tools.look_up.__code__ is code, "AUTOTRACE" in os.environ)
os.kill(shipper, signal.SIGCONT)
"""
    assert program(project, code) == "too long True False\n"


def test_a_checkout_that_is_not_installed(project: Place) -> None:
    """Children activate by a folder on ``PYTHONPATH``, as under the launcher."""
    venv.create(project.cwd / "bare", symlinks=True)
    (packages,) = project.cwd.glob("bare/lib/python*/site-packages")
    (packages / "_found.pth").write_text("\n".join([str(ROOT), *site.getsitepackages()]) + "\n")
    project.write(
        "program.py",
        """
import os, subprocess, sys
import autotrace, tools
with autotrace.start("mine.yaml", backend="jsonl"):
    subprocess.run([sys.executable, "-c", "import tools; tools.Agent().answer('c')"], check=True)
print("PYTHONPATH" in os.environ)
""",
    )
    done = project.run([str(project.cwd / "bare/bin/python"), "program.py"])
    assert done.stdout == "False\n", done.stderr
    (run,) = project.runs()
    assert spans(run) == [["Agent.answer", "look_up"]]


class TestCost:
    def test_importing_the_package_imports_nothing(self, project: Place) -> None:
        code = "import sys; before = {*sys.modules}; import autotrace; print({*sys.modules} - before)"
        assert project.run(["python", "-c", code]).stdout == "{'autotrace'}\n"

    def test_start_imports_what_a_traced_process_does(self, project: Place) -> None:
        slow = ("yaml", "click", "rich", "autotrace.spec", "autotrace.launch", "autotrace.ship", "autotrace.sinks")
        code = START + f"import sys; print([name for name in {slow} if name in sys.modules])"
        assert program(project, code) == "[]\n"


def test_its_names(project: Place) -> None:
    import autotrace

    assert sys.modules["autotrace"] is autotrace
    with pytest.raises(AttributeError, match="no attribute 'begin'"):
        autotrace.begin  # noqa: B018
