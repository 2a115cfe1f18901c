"""What ``CONTRIBUTING.md`` says of how little a new thing takes: each is added to a copy of the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotrace.ship.shipper import ship
from tests.run_folder import recorded

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 600
COMPARE = '    "compare": ("autotrace.cli.compare", "compare"),\n'
Run = Callable[..., str]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package that may be changed."""
    ignored = shutil.ignore_patterns("__pycache__", "recorded_run")
    shutil.copytree(ROOT / "autotrace", tmp_path / "copy" / "autotrace", ignore=ignored)
    for beside in ("patch_specs", "docs"):
        (tmp_path / "copy" / beside).symlink_to(ROOT / beside)
    return tmp_path / "copy"


@pytest.fixture
def run(copy: Path) -> Run:
    """Runs Python with the copy."""

    def python(*words: str) -> str:
        environ = {**os.environ, "PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
        done = subprocess.run(
            [sys.executable, *words], env=environ, cwd=copy.parent, capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return python


def inserted(path: Path, before: str, text: str) -> None:
    """Lines put in front of others that stand there once."""
    source = path.read_text()
    assert source.count(before) == 1
    path.write_text(source.replace(before, text + before))


def test_a_field_of_a_trajectory_is_one_column(copy: Path, run: Run, tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    inserted(
        copy / "autotrace" / "tables" / "trajectories.py", '    Column("num_turns"',
        '    Column("longest_call", "int64", "ns of its longest call", head="longest", tag=True,\n'
        "           of=lambda one: max(call.span.duration_ns or 0 for call in one.spans)),\n",
    )  # fmt: skip
    assert "state" in run("-c", f"from autotrace.ship.shipper import ship; from pathlib import Path\n"
                                f"print(ship(Path({str(folder)!r}), once=True))")  # fmt: skip
    cli = ("-m", "autotrace")
    listed = [json.loads(line) for line in run(*cli, "ls", str(folder), "--json").splitlines()]
    assert listed and all(row["longest_call"] > 0 for row in listed)
    assert "longest" in run(*cli, "ls", str(folder))
    most = max(row["longest_call"] for row in listed)
    found = run(*cli, "ls", str(folder), "--json", "--where", f"longest_call = {most}", "--sort", "longest_call")
    assert [json.loads(line)["longest_call"] for line in found.splitlines()]
    asked = run(*cli, "sql", "SELECT max(longest_call) AS most FROM trajectories", str(folder), "--json")
    assert json.loads(asked)["most"] == most
    program = (
        "import json\nfrom pathlib import Path\nfrom autotrace.ship.readers import of_run\n"
        "from autotrace.sinks.mlflow.info import tags_of\nfrom autotrace.tables import schema\n"
        "from autotrace.view import columns\n"
        f"reader = of_run(Path({str(folder)!r}))\n"
        f"one = reader.load({listed[0]['trace_id']!r})\n"
        "print(json.dumps([tags_of(one)['longest_call'], columns.names(reader)['numbers']]))"
    )
    tag, names = json.loads(run("-c", program))
    assert int(tag) == listed[0]["longest_call"] and "longest_call" in names
    assert "ns of its longest call" in run("-m", "autotrace.tables.schema")


def test_without_it_the_run_is_read_as_before(tmp_path: Path) -> None:
    """Tables of a release that had one column more."""
    folder = recorded(tmp_path)
    assert ship(folder, once=True).state == "done"
    asked = subprocess.run(
        [sys.executable, "-m", "autotrace", "sql", "SELECT longest_call FROM trajectories", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    assert asked.returncode == 2 and "longest_call" in asked.stderr


def test_a_command_is_a_module_and_a_line(copy: Path, run: Run) -> None:
    (copy / "autotrace" / "cli" / "count.py").write_text(
        '"""``autotrace count``."""\n\nimport click\n\nfrom autotrace.cli import runs\n\n\n'
        '@click.command(short_help="Count the trajectories of a run.")\n@runs.argument\n'
        "def count(named: tuple[str, ...]) -> None:\n"
        '    """Count the trajectories of a run."""\n    click.echo(runs.reader(named).count())\n'
    )
    inserted(copy / "autotrace" / "cli" / "main.py", COMPARE, COMPARE.replace("compare", "count"))
    folder = recorded(copy.parent)
    assert run("-m", "autotrace", "count", str(folder)) == "8\n"
    assert "Count the trajectories" in run("-m", "autotrace", "--help")


def test_a_finding_is_a_function_and_its_page(copy: Path, run: Run) -> None:
    family = copy / "autotrace" / "insight" / "families" / "responses.py"
    inserted(family, '    Code.of("AT-MASK-EMPTY", 1.0),\n', '    Code.of("AT-SHORT", 1.0),\n')
    inserted(
        family, "def masks(", 'def short(evidence: Evidence) -> Iterator[Mark]:\n    """Of one turn."""\n'
        '    if len(evidence.turns) == 2:\n        yield Mark("AT-SHORT", 2)\n\n\n',
    )  # fmt: skip
    family.write_text(family.read_text().replace("OF_TRAJECTORY = (", "OF_TRAJECTORY = (short, "))
    (copy / "docs").unlink()
    shutil.copytree(ROOT / "docs" / "findings", copy / "docs" / "findings")
    page = (ROOT / "docs" / "findings" / "AT-REPETITION.md").read_text()
    page = page.replace("AT-REPETITION", "AT-SHORT").replace("Answers end in a loop.", "Trajectories are short.")
    (copy / "docs" / "findings" / "AT-SHORT.md").write_text(page)
    folder = recorded(copy.parent)
    run(
        "-c",
        f"from autotrace.ship.shipper import ship; from pathlib import Path\nship(Path({str(folder)!r}), once=True)",
    )
    said = run("-m", "autotrace", "diagnose", str(folder), "--code", "AT-SHORT")
    assert "Trajectories are short" in said or "trajectories are short" in said
    assert run("-m", "autotrace", "ls", str(folder), "--json", "--where", "finding = 'AT-SHORT'")
