"""A function of a registry in the workers of pools, however they start; and what a profiler from outside sees."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import some

from .processes import run

REWARDS = """
REWARDS = {}
def register(function):
    REWARDS[function.__name__] = function
    return function
@register
def exact(x): return [x]
class Task:
    def score(self, x): return [x]
"""
POOLS = {
    "fork": "multiprocessing.get_context('fork').Pool(2)",
    "spawn": "multiprocessing.get_context('spawn').Pool(2)",
    "forkserver": "multiprocessing.get_context('forkserver').Pool(2)",
    "executor": "Executor(2)",
    "loky": "Loky(2)",
}
PROGRAM = """
import concurrent.futures, multiprocessing, rewards
class Executor(concurrent.futures.ProcessPoolExecutor):
    def map(self, *given): return list(super().map(*given))
class Loky:
    def __init__(self, n): self.n = n
    def __enter__(self): return self
    def __exit__(self, *error):
        from joblib.externals.loky import get_reusable_executor
        get_reusable_executor().shutdown(wait=True)
    def map(self, function, items):
        import joblib
        return joblib.Parallel(n_jobs=self.n, backend="loky")(joblib.delayed(function)(item) for item in items)
    close = join = lambda self: None
def own(x): return [x]
if __name__ == "__main__":
    with POOL as pool:
        out = [pool.map(one, [1, 2]) for one in (rewards.REWARDS["exact"], rewards.Task().score, own)]
        if hasattr(pool, "close"):
            pool.close(); pool.join()
    print(out)
"""


@pytest.mark.parametrize("pool", some(POOLS, "spawn", "loky"))
def test_the_workers_of_a_pool(tmp_path: Path, pool: str) -> None:
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "pooled.py").write_text(PROGRAM.replace("POOL as", f"{POOLS[pool]} as"))
    ran = run(tmp_path, "- rewards.**\n- pooled.own\n", str(tmp_path / "pooled.py"))
    assert ran.stdout == "[[[1], [2]], [[1], [2]], [[1], [2]]]\n"
    names = [name for _, name in ran.calls()]
    assert {name: names.count(name) for name in names} == {"exact": 2, "Task.score": 2, "own": 2}


BUSY = """
import sys, time
def busy(until):
    while time.monotonic() < until:
        sum(range(1000))
def sampled():
    busy(time.monotonic() + 600)
if __name__ == "__main__":
    print("ready", flush=True)
    sampled()
"""


def test_py_spy_names_the_function_and_its_file(tmp_path: Path) -> None:
    from autotrace.run.info import find_runs

    (tmp_path / "watched.py").write_text(BUSY)
    (tmp_path / "spec.yaml").write_text("- watched.busy\n- watched.sampled\n")
    launcher = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--drain-timeout", "0", "--quiet"]
    command = [*launcher, "--run-dir", str(tmp_path), "--spec", str(tmp_path / "spec.yaml"), "--", sys.executable]
    pid = tmp_path / "pid"
    (tmp_path / "watched.py").write_text(f"import os\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n{BUSY}")
    with subprocess.Popen([*command, "watched.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None and program.stdout.readline() == "ready\n"
            spy = shutil.which("py-spy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
            assert spy is not None
            dumped = subprocess.run(
                [spy, "dump", "--pid", pid.read_text()], capture_output=True, text=True, check=True
            ).stdout
        finally:
            program.terminate()
    lines = [line.strip() for line in dumped.splitlines() if "watched.py" in line or "busy" in line]
    assert any(line.startswith("busy (watched.py:") for line in lines), dumped
    assert sum(line.startswith("sampled (") for line in lines) == 2, "the function and its wrapper"
    assert find_runs(tmp_path)
