"""Functions of a program that another one runs: profilers, debuggers, coverage, IPython, a notebook, ``python -c``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import Place
from tests.waiting import DEADLINE

PROGRAM = '''"""Text."""
from __future__ import annotations
import sys
HELD = {}
def held(function):
    HELD[function.__name__] = function
    return function

@held
def tool(q: Unknown):
    return q.upper()

class Agent:
    def run(self, q):
        return HELD["tool"](q)

if __name__ == "__main__":
    print(Agent().run("hello"), tool.__annotations__, __name__, __file__, sys.argv[1:])
    if "fail" in sys.argv:
        tool(None)
'''
RUNNERS = {
    "cProfile": ["python", "-m", "cProfile", "-o", "out", "prog.py"],
    "profile": ["python", "-m", "profile", "-o", "out", "prog.py"],
    "trace": ["python", "-m", "trace", "--count", "-C", "counted", "prog.py"],
    "coverage": ["python", "-m", "coverage", "run", "--branch", "prog.py"],
    "pdb": ["python", "-m", "pdb", "-c", "continue", "-c", "quit", "prog.py"],
    "ipython": ["python", "-m", "IPython", "--no-banner", "--colors=nocolor", "--simple-prompt", "prog.py"],
    "runpy": ["python", "-c", "import runpy, sys; sys.argv[:1] = []; runpy.run_path('prog.py', None, '__main__')",
              "prog.py"],
    "own": ["python", "runner.py", "prog.py"],
    "python -m": ["python", "-m", "pack.prog"],
    "cProfile -m": ["python", "-m", "cProfile", "-o", "out", "-m", "pack.prog"],
    "trace -m": ["python", "-m", "trace", "--count", "-C", "counted", "--module", "pack.prog"],
    "coverage -m": ["python", "-m", "coverage", "run", "-m", "pack.prog"],
    "pdb -m": ["python", "-m", "pdb", "-c", "continue", "-c", "quit", "-m", "pack.prog"],
    "ipython -m": ["python", "-m", "IPython", "--no-banner", "--colors=nocolor", "--simple-prompt", "-m", "pack.prog"],
}  # fmt: skip
EVERY = """
import json, subprocess, sys
said = {}
for name, command in json.loads(sys.argv[1]).items():
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said[name] = [done.returncode, done.stdout, done.stderr]
print(json.dumps(said))
"""
OWN = """
import sys
sys.argv[:] = sys.argv[1:]
with open(sys.argv[0]) as file:
    exec(compile(file.read(), sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
"""


@pytest.fixture
def project(place: Place) -> Place:
    place.write("prog.py", PROGRAM)
    place.write("pack/__init__.py", "")
    place.write("pack/prog.py", PROGRAM)
    place.write("runner.py", OWN)
    return place


def listed(place: Place, *names: str) -> list[str]:
    """The options for a list that calls the program by each of ``names``."""
    entries = (f"- {{target: '{name}:Agent.run', role: trajectory}}\n- {name}:tool\n" for name in names)
    place.write("own.yaml", "".join(entries))
    return ["--spec", "own.yaml", "--quiet"]


def spans(place: Place) -> list[list[str]]:
    (run,) = place.runs()
    lines = (run / "trajectories.jsonl").read_text().splitlines()
    return [[span["name"] for span in json.loads(line)["spans"]] for line in lines]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("prog", "pack.prog"), id="by its file's name"),
        pytest.param(("__main__",), id="as __main__", marks=pytest.mark.long),  # `python -c` and IPython below have it
    ],
)
def test_functions_and_classes_are_recorded_and_the_program_says_the_same(
    project: Place, names: tuple[str, ...]
) -> None:
    """One program starts all of ``RUNNERS``; the other tests start some of the runners alone."""
    command = ["python", "-c", EVERY, json.dumps(RUNNERS)]
    bare, traced = project.run(command), project.launch(command, listed(project, *names))
    assert bare.returncode == traced.returncode == 0, traced.stderr
    expected, said = json.loads(bare.stdout), json.loads(traced.stdout)
    for runner, (code, stdout, _) in expected.items():
        assert said[runner] == expected[runner], runner
        assert code == 0 and "HELLO {'q': 'Unknown'} __main__ " in stdout, runner
    assert spans(project) == [["Agent.run", "tool"]] * len(RUNNERS)


@pytest.mark.parametrize("runner", ["cProfile", pytest.param("coverage", marks=pytest.mark.long), "own"])
def test_a_traceback_has_no_line_of_ours(project: Place, runner: str) -> None:
    command = [*RUNNERS[runner], "fail"]
    bare = project.run(command)
    traced = project.launch(command, listed(project, "prog"))
    assert bare.returncode == traced.returncode == 1
    if sys.version_info >= (3, 11):  # before, a bare `raise` enters our frame again
        assert traced.stderr == bare.stderr
    assert spans(project) == [["Agent.run", "tool"], ["tool"]]


def test_coverage_counts_the_same_lines(project: Place) -> None:
    measured = []
    for launch in (project.run, lambda command: project.launch(command, listed(project, "prog"))):
        launch(["python", "-m", "coverage", "run", "--branch", "prog.py"])
        done = project.run(["python", "-m", "coverage", "json", "-o", "-", "--quiet"])
        measured.append(json.loads(done.stdout)["files"]["prog.py"])
    assert measured[0] == measured[1]


def test_cprofile_counts_the_calls_of_the_program(project: Place) -> None:
    project.launch(["python", "-m", "cProfile", "-o", "out", "prog.py"], listed(project, "prog"))
    code = (
        "import pstats; stats = pstats.Stats('out').stats\n"
        "print(sorted((name, stats[file, line, name][0]) for file, line, name in stats if file.endswith('prog.py')))"
    )
    assert "('run', 1), ('tool', 1)" in project.run(["python", "-c", code]).stdout


def test_what_is_imported_is_compiled_as_ever(project: Place) -> None:
    """A script on the command line that is imported: nothing of ours is in its cache."""
    project.write("runner.py", "import prog; print(prog.Agent().run('a'))")
    done = project.launch(["python", "runner.py", "prog.py"], listed(project, "prog"))
    assert done.stdout == "A\n" and spans(project) == [["Agent.run", "tool"]]
    (cache,) = project.cwd.glob("__pycache__/prog.*.pyc")
    assert b"autotrace" not in cache.read_bytes()


def test_compile_itself_is_what_it_was(project: Place) -> None:
    """While it is ours: what it takes from ``__future__`` of its caller, and its errors."""
    code = """
from __future__ import annotations
import sys, traceback
for dont_inherit in (False, True):
    try:
        names = {}
        exec(compile("def f(x: unknown): pass", "x", "exec", dont_inherit=dont_inherit), names)
        print(names["f"].__annotations__)
    except NameError as error:
        print(error)
for source, filename in (("1 +", "x"), ("1", 2)):
    try:
        compile(source, filename, "exec")
    except Exception as error:
        print(traceback.format_exc() if sys.version_info >= (3, 11) else error)  # 3.10: `raise` enters our frame again
"""
    project.write("runner.py", code)
    bare = project.run(["python", "runner.py", "prog.py"])
    traced = project.launch(["python", "runner.py", "prog.py"], listed(project, "prog"))
    assert traced.stdout == bare.stdout != ""


def test_functions_of_python_c(project: Place) -> None:
    code = "import sys\n" + PROGRAM.partition("import sys\n")[2].replace(": Unknown", "").replace(", __file__", "")
    code += "\nprint(sys.gettrace())"
    bare = project.run(["python", "-c", code, "a"])
    traced = project.launch(["python", "-c", code, "a"], listed(project, "__main__"))
    assert traced.stdout == bare.stdout and bare.stdout.endswith("['a']\nNone\n")
    assert spans(project) == [["Agent.run", "tool"]]


def test_what_could_not_be_seen_is_reported(project: Place) -> None:
    """A program that Python reads from stdin."""
    command = [*project.command(["python", "-"], listed(project, "__main__"))]
    done = subprocess.run(
        command, cwd=project.cwd, env=project.environ(), input=PROGRAM.replace("__file__", "1"), text=True,
        capture_output=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert spans(project) == [["Agent.run"]]
    status = json.loads(project.cli("status", "--json").stdout)
    assert "autotrace did not see the program define `tool`" in json.dumps(status)


CELLS = (
    "import autotrace\ndef tool(q):\n    return q.upper()\nHELD = [tool]",
    "run = autotrace.start('own.yaml', backend='jsonl')",
    "class Agent:\n    def run(self, q):\n        return later(q) + HELD[0](q)\n"
    "def later(q):\n    return await_(q)\nasync def asked(q):\n    return Agent().run(q)\n"
    "def await_(q): return q\nawait asked('a')",
    "def later(q):\n    return 'again '\nprint(await asked('b'))",
    "autotrace.stop()\nprint(await asked('c'))",
)


def test_a_notebook(project: Place) -> None:
    """``start`` in one cell; functions of the cells before and after, also defined anew."""
    project.write(
        "own.yaml", "- {target: __main__:asked, role: trajectory}\n- __main__:tool\n- __main__:later\n"
        "- __main__:Agent.run\n"
    )  # fmt: skip
    execute = f"""
import nbformat.v4 as form
from nbclient import NotebookClient
book = form.new_notebook(cells=[form.new_code_cell(cell) for cell in {CELLS!r}])
NotebookClient(book, timeout=120, kernel_name="python3").execute()
outputs = [part for cell in book.cells for part in cell.outputs]
print([part["text"] for part in outputs if part.get("name") == "stdout"])
"""
    kernels = Path(project.cwd, "share/kernels/python3/kernel.json")
    kernels.parent.mkdir(parents=True)
    kernels.write_text(json.dumps({"argv": [project.python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                                   "display_name": "here", "language": "python"}))  # fmt: skip
    done = project.run(["python", "-c", execute], {"JUPYTER_PATH": str(project.cwd / "share")})
    assert done.stdout == "['again B\\n', 'again C\\n']\n", done.stderr
    assert spans(project) == [["asked", "Agent.run", "later", "tool"]] * 2


def test_ipython_under_autotrace_run(project: Place) -> None:
    cell = "def tool(q):\n    return q.upper()\n\nclass Agent:\n    def run(self, q):\n        return tool(q)\n"
    command = ["python", "-m", "IPython", "--no-banner", "-c", f"{cell}print(Agent().run('a'))"]
    done = project.launch(command, listed(project, "__main__"))
    assert done.stdout == "A\n", done.stderr
    assert spans(project) == [["Agent.run", "tool"]]
