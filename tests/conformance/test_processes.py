"""Wrapped functions as targets of real processes, and the functions of the program itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from tests.cases import some
from tests.waiting import DEADLINE

from .conftest import Host
from .processes import PROGRAM, ROOT, run

WORK = "- work.leaf\n- work.pid\n- work.put\n- work.Tool.*\n- pools.Mine.method\n"
STARTED = "- started.plain\n- started.decorated\n- started.asynchronous\n- started.conditional\n- started.Agent.run\n"

LOOKING = '''"""A program that looks at itself."""
from __future__ import annotations

import inspect
import sys


def look(x: list) -> list:
    names = {name: repr(value) for name, value in globals().items() if name.startswith("__")}
    return sorted(item for item in names.items() if item[0] != "__builtins__")


def main() -> None:
    print(*look([]), sep="\\n")


main()
print(sys.argv, sys.path, len(sys.path_hooks), [path for path in sys.path_importer_cache if path.endswith(".py")])
print(look.__module__, look.__annotations__, inspect.getsource(look), sys.flags, inspect.stack()[0][:3])
print(main.__code__.co_filename, inspect.getsourcefile(main), main.__code__.co_firstlineno)
'''


@pytest.mark.parametrize("method", some(["fork", "spawn", "forkserver"], "fork", "spawn"))
def test_processes_of_every_start_method(tmp_path: Path, method: str) -> None:
    ran = run(tmp_path, WORK, str(PROGRAM / "pools.py"), method)
    assert "all answers right" in ran.stdout
    calls = ran.calls()
    assert len({pid for pid, _ in calls}) > 5
    names = [name for _, name in calls]
    # started directly, by ProcessPoolExecutor, and by Pool; by each the leaf below
    assert names.count("Mine.method") == 3 and names.count("Tool.static") == names.count("Tool.made") == 2
    assert names.count("Tool.method") == 2 and names.count("pid") == 1 and names.count("put") == 1
    assert names.count("leaf") == 1 + 6 + 4 + 4 + 2


def test_functions_of_python_m(tmp_path: Path) -> None:
    ran = run(tmp_path, STARTED, "-m", "started")
    assert "all answers right" in ran.stdout
    assert [name for _, name in ran.calls()][:6] == [
        "plain", "decorated", "conditional", "Agent.run", "plain", "asynchronous",
    ]  # fmt: skip
    assert {state for state, _ in ran.reports().values()} == {"bound"}


def test_a_glob_over_python_m(tmp_path: Path) -> None:
    ran = run(tmp_path, "- started.**\n", "-m", "started")
    assert {"plain", "decorated", "conditional", "run", "Agent.run"} <= {name for _, name in ran.calls()}


@pytest.mark.parametrize("name", ["started", "__main__"])
def test_functions_of_a_script(tmp_path: Path, name: str) -> None:
    ran = run(tmp_path, STARTED.replace("started", name), str(PROGRAM / "started.py"))
    assert "all answers right" in ran.stdout
    assert [call for _, call in ran.calls()][:6] == [
        "plain", "decorated", "conditional", "Agent.run", "plain", "asynchronous",
    ]  # fmt: skip
    assert {state for state, _ in ran.reports().values()} == {"bound"}


def test_a_glob_over_a_script(tmp_path: Path) -> None:
    ran = run(tmp_path, "- started.**\n", str(PROGRAM / "started.py"))
    assert {"plain", "decorated", "conditional", "run", "Agent.run"} <= {name for _, name in ran.calls()}


@pytest.mark.parametrize("method", some(["spawn", "forkserver"], "spawn"))
def test_functions_of_a_script_in_the_children_that_run_it_again(tmp_path: Path, method: str) -> None:
    ran = run(tmp_path, "- pools.square\n", str(PROGRAM / "pools.py"), method)
    assert "all answers right" in ran.stdout
    assert len({pid for pid, name in ran.calls() if name == "square"}) > 1


@pytest.mark.parametrize("flags", [(), ("-O", "-X", "dev")], ids=" ".join)
def test_a_script_with_targets_sees_what_it_sees_without(tmp_path: Path, flags: tuple[str, ...]) -> None:
    script = tmp_path / "looking.py"
    script.write_text(LOOKING)
    link = tmp_path / "linked" / "looking.py"
    link.parent.mkdir()
    link.symlink_to(script)
    for path in (script, link):
        bare = subprocess.run(
            [sys.executable, *flags, str(path), "an argument"],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
        traced = run(tmp_path, "- looking.look\n", *flags, str(path), "an argument", python_path=False)
        assert _without_addresses(traced.stdout) == _without_addresses(bare.stdout)


def _without_addresses(text: str) -> list[str]:
    """Also without what the launcher puts on ``PYTHONPATH`` where autotrace is not in site-packages."""
    for folder in (ROOT / "autotrace" / "bootstrap" / "sitecustomize", ROOT):
        text = text.replace(f"'{folder}', ", "")
    return re.sub(r"0x\w+", "", text).splitlines()


def test_a_script_that_is_no_python_or_ends_badly_says_what_it_says_without(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    for text, error in (
        ("def answer():\n    return 1\nprint(answer(\n", "SyntaxError"),
        ("def answer():\n    raise SystemExit(3)\nanswer()\n", ""),
        ("def answer():\n    return 1 / 0\nanswer()\n", 'broken.py", line 2, in answer'),
    ):
        script.write_text(text)
        bare = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        traced = run(tmp_path, "- broken.answer\n", str(script), code=bare.returncode)
        assert (
            error in bare.stderr
            and bare.stderr.splitlines()[-3:]
            == [line for line in traced.stderr.splitlines() if not line.startswith("autotrace: ")][-3:]
        )


def test_a_wrapper_pickled_by_value_passes_through_where_there_is_no_autotrace(host: Host, tmp_path: Path) -> None:
    host.watch("shipped.**")
    module = host.load(
        "shipped",
        """
import asyncio
class Agent:
    def __init__(self): self.on_done = self.done
    def done(self, x): return x
    async def run(self, x): return self.on_done(x)
    def stream(self, x):
        yield from range(x)
    async def astream(self, x):
        for number in range(x): yield number
async def everything(agent):
    return await agent.run(1), list(agent.stream(2)), [number async for number in agent.astream(2)]
def main(agent): return asyncio.run(everything(agent))
""",
    )
    cloudpickle.register_pickle_by_value(module)
    try:
        data = cloudpickle.dumps((module.main, module.Agent()))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    (tmp_path / "data").write_bytes(data)
    code = (
        "import pickle, sys\n"
        "class NoAutotrace:\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name.startswith(('autotrace', 'wrapt')): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NoAutotrace)\n"
        f"main, agent = pickle.load(open({str(tmp_path / 'data')!r}, 'rb'))\n"
        "print(main(agent))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, cwd=ROOT.parent, check=False
    )
    assert done.stdout.strip() == "(1, [0, 1], [0, 1])", done.stderr
    assert module.main(module.Agent()) == (1, [0, 1], [0, 1])
