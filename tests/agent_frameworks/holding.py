"""Functions that a framework holds (as a tool, a reward, a handler), called through the framework: `python -m
tests.agent_frameworks.holding MODULE` prints, for each of ``MODULE.HELD``, what the call gave and what the object under
its name is, and bare and traced it prints the same.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from autotrace.cli.main import main
from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]


def said(module: Any) -> list[list[str]]:
    """A row for each function: its name, what its call gave, its type and signature, and how it is pickled."""
    rows = []
    for name, call in module.HELD.items():
        result = call()
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        held = getattr(module, name)
        rows.append([name, repr(result), type(held).__name__, _signature(held), _pickled(held)])
    return rows


async def _awaited(result: Any) -> Any:
    return await result


def _signature(held: Any) -> str:
    try:
        return str(inspect.signature(held))
    except (TypeError, ValueError) as error:
        return type(error).__name__


def _pickled(held: Any) -> str:
    try:
        return f"is the same: {pickle.loads(pickle.dumps(held)) is held}"
    except Exception as error:
        return type(error).__name__


def check(python: str, module: str, folder: Path) -> None:
    """Every function of ``module.HELD`` is recorded as often as it is called, and nothing else is different."""
    command = [python, "-m", "tests.agent_frameworks.holding", module]
    bare = _run(command, folder)
    rows = [json.loads(line) for line in bare.splitlines() if line.startswith("[")]
    (folder / "traced.yaml").write_text("".join(f"- {module}.{name}\n" for name, *_ in rows))
    launcher = [python, "-m", "autotrace.launch.main", "--backend", "jsonl", "--quiet", "--spec", "traced.yaml"]
    assert rows and _run([*launcher, *command], folder) == bare
    (run,) = folder.rglob("run.json")
    status = json.loads(CliRunner().invoke(main, ["status", str(run.parent), "--json"], catch_exceptions=False).output)
    targets = {row["key"]: row for row in status["status"]["targets"]}
    for name, *_ in rows:
        target = targets[f"{module}.{name}"]
        assert set(target["states"]) == {"bound"} and target["calls"], target


def _run(command: list[str], folder: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")}
    environ["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


if __name__ == "__main__":
    for row in said(importlib.import_module(sys.argv[1])):
        print(json.dumps(row))
