"""A recorded function's file is the one that it stands in, for whoever asks its code for it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Host
from .processes import run


def test_the_file_of_a_function_leads_to_its_own(host: Host) -> None:
    host.watch("filed.f")
    module = host.load("filed", "def f(x): return [x]\n")
    own = module.__file__
    assert own is not None
    for found in (module.f.__code__.co_filename, inspect.getfile(module.f), inspect.getsourcefile(module.f)):
        assert found is not None
        assert os.path.samefile(found, own) and os.path.abspath(found) == own
        assert Path(found).resolve().parent == Path(own).parent
        assert Path(found).read_text() == "def f(x): return [x]\n"
    assert inspect.getabsfile(module.f) == own and inspect.getmodule(module.f.__code__) is module


def test_a_function_of_no_file(host: Host) -> None:
    host.watch("filed.f")
    module = host.load("filed", "exec(compile('def f(x): return [x]', '<made>', 'exec'))\n")
    assert module.f(1) == [1] and host.opened() == ["f"]
    with pytest.raises(OSError):
        inspect.getsource(module.f)


MAIN = """
import hydra
@hydra.main(config_path="conf", config_name="of", version_base=None)
def main(config):
    print("found", config.number)
if __name__ == "__main__":
    main()
"""


def test_hydra_finds_its_configuration_beside_the_main_function(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "of.yaml").write_text("number: 5\n")
    (tmp_path / "trained.py").write_text(MAIN)
    ran = run(tmp_path, "- trained.main\n", str(tmp_path / "trained.py"))
    assert ran.stdout == "found 5\n" and [name for _, name in ran.calls()] == ["main"]


LIBRARY = """
import contextlib, functools
def one(x): return x if x else 0
def two(x):
    if x:
        y = 1
    else:
        y = 2
    return y
class A:
    @property
    def p(self):
        for i in range(3):
            if i > 5:
                return 1
        return 2
    @staticmethod
    def s(x): return [y for y in range(x) if y]
async def co(x):
    if x: return 1
def gen(x):
    while x:
        yield x
        x -= 1
@contextlib.contextmanager
def man(x):
    try:
        yield x
    finally:
        x = 3
@functools.lru_cache
def cached(x):
    return x
def never(x):
    return x
"""
COVERED = """
import asyncio, covered
covered.one(1); covered.two(1); covered.A().p; covered.A.s(3); asyncio.run(covered.co(0)); covered.cached(1)
list(covered.gen(2))
with covered.man(1): pass
"""


@pytest.mark.parametrize("branches", [[], ["--branch"]], ids=["lines", "branches"])
@pytest.mark.parametrize("core", ["ctrace", "pytrace", *(["sysmon"] if sys.version_info >= (3, 12) else [])])
def test_the_same_lines_are_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, core: str, branches: list[str]
) -> None:
    (tmp_path / "covered.py").write_text(LIBRARY)
    (tmp_path / "covers.py").write_text(COVERED)
    monkeypatch.setenv("COVERAGE_CORE", core)
    command = ["-m", "coverage", "run", *branches, "--include=*/covered.py", "covers.py"]

    def covered() -> str:
        report = [sys.executable, "-m", "coverage", "report", "--show-missing"]
        return subprocess.run(report, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    subprocess.run([sys.executable, *command], cwd=tmp_path, check=True, capture_output=True)
    bare = covered()
    ran = run(tmp_path, "- covered.**\n- covered.cached\n", *command)
    assert covered() == bare and "never" not in {name for _, name in ran.calls()}
    assert {"one", "two", "A.s", "co", "gen", "man", "cached"} <= {name for _, name in ran.calls()}
