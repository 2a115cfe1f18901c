"""Wrapped functions as targets of real processes, and the functions of the program itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from .conftest import Host
from .processes import PROGRAM, ROOT, run

WORK = "- work.leaf\n- work.pid\n- work.put\n- work.Tool.*\n- pools.Mine.method\n"
STARTED = "- started.plain\n- started.decorated\n- started.asynchronous\n- started.conditional\n- started.Agent.run\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
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


def test_functions_of_a_script_are_reported_its_classes_traced(tmp_path: Path) -> None:
    ran = run(tmp_path, STARTED, str(PROGRAM / "started.py"))
    assert "all answers right" in ran.stdout
    assert {name for _, name in ran.calls()} == {"Agent.run"}
    state, reason = ran.reports()["started:plain"]
    assert state == "failed" and "python -m started" in reason


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
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT.parent, check=False
    )
    assert done.stdout.strip() == "(1, [0, 1], [0, 1])", done.stderr
    assert module.main(module.Agent()) == (1, [0, 1], [0, 1])
