"""``docs/data.md``: its questions are asked, its programs run."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.ship.shipper import ship
from autotrace.tables import schema
from tests.run_folder import recorded

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
QUESTIONS = re.findall(r"^    (autotrace sql .*\")$", PAGE, re.M)
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ``autotrace-runs`` is, with one run that was delivered as Parquet."""
    parent = tmp_path_factory.mktemp("here")
    os.environ.pop("AUTOTRACE_TABLES", None)
    (parent / "autotrace-runs").mkdir()
    run = recorded(parent / "autotrace-runs", backends=["parquet"])
    assert ship(run, once=True).state == "done"
    return parent


EXPECTED = {
    "avg(reward) FROM": [["1", "0.375"], ["2", "0.375"]],
    "AS spread": [["1", "0.375", "0.4330127018922193", "4"], ["2", "0.375", "0.4330127018922193", "4"]],
    "without_variance": [["1", "0.5"], ["2", "0.5"]],
    "their_reward": [["1", "0.25", "0.0"], ["2", "0.25", "0.0"]],
    "error_type": [["search", "TimeoutError", "2", "no answer from the index"]],
    "AS written": [["1", "4.0", "3.0", "8"], ["2", "9.0", "4.0", "8"]],
    "AS cached": [["1", "0.5"], ["2", "0.7777777777777778"]],
    "AS behind": [["2", "6"]],
    "AS format": [["1", "0.25"], ["2", "0.25"]],
    "AS entropy": [["1", "0.25", "0.375"], ["2", "0.5", "0.375"]],
    "AS thousands": [["0", "0.375", "8"]],
    "AS why": [["1", "OK", "1"], ["2", "OK", "1"]],
    "AS mismatch": [["u1", "2", "3", "1.5"], ["u2", "2", "3", "1.5"]],
    "mean_log_prob": [["1", "-0.5"], ["2", ""]],
}


@pytest.mark.parametrize("question", QUESTIONS, ids=[str(number) for number in range(len(QUESTIONS))])
def test_a_question_has_its_answer(question: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("AUTOTRACE_RUN_DIR", raising=False)
    done = CliRunner().invoke(main, [*shlex.split(question)[1:], "--csv"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = list(csv.reader(io.StringIO(done.stdout)))[1:]
    if "ORDER BY duration_s DESC" in question:
        assert len(rows) == 8 and all(float(row[2]) > 0 and row[4] == "0.25" and row[5] == "1.0" for row in rows)
        return
    (expected,) = [rows for words, rows in EXPECTED.items() if words in question]
    assert rows == expected


def test_there_are_ten_questions() -> None:
    assert len(set(QUESTIONS)) >= 10


LOCAL_CLUSTER = """
import os, ray, runpy
from ray.data.context import DataContext, ShuffleStrategy
runpy.run_path(os.environ["RAY_WAITS"])
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
DataContext.get_current().shuffle_strategy = ShuffleStrategy.SORT_SHUFFLE_PULL_BASED
"""
"""With one worker, which sorts: by default there are more, and actors that hash, each a process that imports Ray."""


@pytest.mark.parametrize(
    "program", [pytest.param(text, marks=pytest.mark.long if "import ray" in text else []) for text in PROGRAMS]
)
def test_a_program_runs(program: str, folder: Path) -> None:
    """In a process of its own: Ray starts a local cluster in it."""
    lines = program.splitlines()
    last = [number for number, line in enumerate(lines) if line and not line.startswith(("import", "from", " ", "#"))]
    for number in last:
        if re.match(r"[\w.]+\(", lines[number]):
            lines[number] = f"print({lines[number].partition('  #')[0].rstrip()})"
    environ = {**os.environ, "RAY_DATA_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1", "AUTOTRACE": "0"}
    environ |= {"HF_DATASETS_CACHE": str(folder / "cache"), "RAY_USAGE_STATS_ENABLED": "0"}
    text = (LOCAL_CLUSTER if "ray.data" in program else "") + "\n".join(lines)
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, env=environ, capture_output=True, text=True,
                          timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for words in SAYS[next(word for word in SAYS if word in program)]:
        assert re.search(words, done.stdout), done.stdout


SAYS: dict[str, tuple[str, ...]] = {
    "runs.steps()": (r"\b1\.0 2\n", r"\[1, 2\]", "new_prompt_ids", r"shape: \(4, \d+\)", r"RayPPOTrainer\.step +0"),
    "import polars": (r"│ 1 +┆ 0\.375", r"16", r"0\.375", r"num_rows: 16"),
    "ray.data": (r"'step': 1, 'mean\(reward\)': 0\.375", r"'step': 2, 'mean\(reward\)': 0\.375"),
}
"""What the output of a program has."""


def test_the_paths_are_those_of_the_page(folder: Path) -> None:
    top = folder / "autotrace-runs"
    paths = [path.relative_to(top).parts for path in top.rglob("*.parquet")]
    copies = {path[1:] for path in paths if path[0] == "parquet"}
    assert {path[0] for path in copies} == {"proj"} and {path[1:] for path in copies} == {
        path for path in paths if path[0] != "parquet"
    }
    assert {path[2] for path in paths if path[1] == "tables"} == set(schema.TABLES)
