"""The import contract of ``pyproject.toml`` can fail: each of its rules breaks where an import goes against it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]
LINT = Path(sys.executable).with_name("lint-imports")

VIOLATIONS = {
    "The rooms, highest first": ("config/written.py", "from autotrace.cli import main"),
    "The rooms of ship, highest first": ("ship/store/state.py", "from autotrace.ship import shipper"),
    "What a traced process imports is small": ("adapters/verl/facts.py", "def later():\n    import mlflow"),
    "patch knows no library by name": ("patch/binder.py", "from autotrace.adapters import torch"),
    "The agent knows no specs, no delivery and no command": (
        "bootstrap/activate.py", "def later():\n    from autotrace.spec import compiler"),
    "Sinks know no training framework and nothing of how records were made": ("sinks/jsonl/sink.py", "import verl"),
    "trajectory knows only config": ("trajectory/model.py", "from autotrace.run import layout"),
}  # fmt: skip
"""Contract -> a file and a line of code that breaks it."""


def broken(folder: Path) -> set[str]:
    """The contracts that ``folder``, which holds a copy of the package, breaks."""
    done = subprocess.run(
        [LINT, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    verdicts = [line for line in done.stdout.splitlines() if line.endswith((" KEPT", " BROKEN"))]
    assert verdicts, done.stdout + done.stderr
    return {line.removesuffix(" BROKEN") for line in verdicts if line.endswith(" BROKEN")}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its contract, to be changed."""
    shutil.copytree(ROOT / "autotrace", tmp_path / "autotrace", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_each_rule_finds_its_violation(copy: Path) -> None:
    for file, code in VIOLATIONS.values():
        path = copy / "autotrace" / file
        path.write_text(f"{path.read_text()}\n{code}\n")
    assert set(VIOLATIONS) <= broken(copy)


def test_cycles_are_found_at_every_depth(copy: Path) -> None:
    packages = ["autotrace.sinks.mlflow", "autotrace.spec"]
    for package in packages:
        folder = copy.joinpath(*package.split("."))
        (folder / "one.py").write_text(f"from {package} import two\n")
        (folder / "two.py").write_text(f"from {package} import one\n")
    done = subprocess.run([LINT, "--no-cache"], cwd=copy, capture_output=True, text=True, timeout=DEADLINE, check=False)
    for package in packages:
        assert f"No cycles are allowed in {package}." in done.stdout
