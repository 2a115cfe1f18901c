"""The programs of `docs/spec-reference.md`, run as the page says: each gives the tree that stands below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import some
from tests.docs.printed_trees import PAGES, shape
from tests.waiting import DEADLINE

_TRACE = re.compile(
    r"### A trace with `(?P<key>\w+)`\n.*?```python\n(?P<program># (?P<name>\w+)\.py\n.*?)```\n"
    r".*?```yaml\n(?P<spec>.*?)```\n.*?```\n(?P<tree>.*?)```",
    re.S,
)
TRACES = {found["key"]: found for found in _TRACE.finditer((PAGES / "spec-reference.md").read_text() + "\n")}


def test_each_key_that_needs_one_has_a_trace() -> None:
    assert TRACES.keys() == {"rows", "of", "inside", "group"}


@pytest.mark.parametrize("key", some(TRACES, "rows"))
def test_the_program_gives_the_tree_of_the_page(key: str, tmp_path: Path) -> None:
    name = TRACES[key]["name"]
    (tmp_path / f"{name}.py").write_text(TRACES[key]["program"])
    (tmp_path / f"{name}.yaml").write_text(TRACES[key]["spec"])
    kept = {variable: value for variable, value in os.environ.items() if not variable.startswith("AUTOTRACE")}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("autotrace.launch.main", "--backend", "jsonl", "--spec", f"{name}.yaml", sys.executable, f"{name}.py")
    printed = run("autotrace", "ls", "--tree")
    assert sorted(shape(printed)) == sorted(shape(TRACES[key]["tree"])), printed
    notes = re.findall(r"^! .*$", TRACES[key]["tree"], re.M)
    assert re.findall(r"^! .*$", printed, re.M) == notes
