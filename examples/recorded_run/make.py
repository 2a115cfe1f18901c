"""Record the run of ``autotrace demo`` anew, into ``run/`` beside this file: ``python examples/recorded_run/make.py``.

Needs the development environment (``make environment``), a minute, and no GPU. ``program.py`` says what is real in it.
What is stored are the run's tables, as they were recorded: only the names of this machine and its folders are replaced,
and the tables are compressed harder.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from autotrace.run import layout
from autotrace.run.info import RunInfo, find_runs
from autotrace.tables.commits import FILE, FOLDER, Added, Commit, snapshot

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUN = HERE / "run"
STATUS = "status.json"


def record(folder: Path) -> Path:
    """Run ``program.py`` under autotrace-run; its run folder."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(folder), "--backend", "jsonl", "--quiet"]
    facts = ["--project", "autotrace-demo", "--logprobs", "1", "--token-facts", "all", "--"]
    subprocess.run([*launch, *facts, sys.executable, str(HERE / "program.py")], env=environ, cwd=ROOT, check=True)
    return find_runs(folder)[0][-1]


def neutral(text: str, names: dict[str, str]) -> str:
    """Replace the names of this machine and its folders."""
    for before, after in names.items():
        text = text.replace(before, after)
    return "trainer" if text == platform.node() else text


def tables(run: Path, to: Path, names: dict[str, str], steps: range | None = None) -> None:
    """Write the tables of ``run``, or of some steps, with neutral names and compressed harder. No empty tables."""

    def column(values: Any) -> Any:
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return values
        return pa.chunked_array([[value and neutral(value, names) for value in values.to_pylist()]], values.type)

    committed = snapshot((run / FOLDER / FILE).read_bytes())
    added, last = {}, committed.superseded
    for table in sorted(committed.files):
        whole = pa.concat_tables(pq.read_table(run / FOLDER / path) for path in sorted(committed.files[table]))
        if steps is not None:  # the last versions of the rows of the steps
            rows = zip(*(whole[name].to_pylist() for name in ("step", "version", "trace_id")
                         if name in whole.column_names), strict=True)  # fmt: skip
            kept = [at in steps and version >= last.get("".join(trace), 0) for at, version, *trace in rows]
            whole = whole.filter(pa.array(kept, pa.bool_()))
        whole = pa.table([column(values) for values in whole.columns], schema=whole.schema)
        if steps is not None and not whole.num_rows:
            continue
        file = to / FOLDER / table / "000001.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(whole, file, compression="zstd", compression_level=19)
        added[table] = Added(file.name, whole.num_rows, file.stat().st_size)
    count = sum(commit.trajectories for commit in committed.commits) if steps is None else added["trajectories"].rows
    supersedes = last if steps is None else {}
    commit = Commit(1, time.time_ns(), added, supersedes=supersedes, trajectories=count)
    (to / FOLDER / FILE).write_bytes(commit.line())


def publish(run: Path, to: Path) -> None:
    """Write what readers need of ``run``."""
    names = {str(run): "/home/you/autotrace-runs/demo", str(ROOT): "/home/you/project", sys.base_prefix: "/usr",
             str(Path.home()): "/home/you"}  # fmt: skip
    shutil.rmtree(to, ignore_errors=True)
    tables(run, to, names)
    info = RunInfo.read(run)
    ((name, kept),) = ((path.name, path) for path in (run / layout.BLOBS).glob("tokenizer-*"))
    (to / layout.BLOBS / name).mkdir(parents=True)
    shutil.copy(kept / "tokenizer.json", to / layout.BLOBS / name)
    info.tokenizer, info.tokenizers = "/home/you/model", {"/home/you/model": name}
    info.command, info.host = ["python", "examples/recorded_run/program.py"], "trainer"
    info.write(to)
    (to / STATUS).write_text(neutral((run / STATUS).read_text(), names).replace(f'"{platform.node()}"', '"trainer"'))
    assert (to / layout.RUN_JSON).exists()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="recorded-") as made:
        publish(record(Path(made)), RUN)
    print(f"{RUN}: {sum(path.stat().st_size for path in RUN.rglob('*') if path.is_file()):,} bytes")
