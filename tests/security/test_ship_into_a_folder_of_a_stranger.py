"""Delivery writes into the run folder that a person named, and beside it: a stranger put something else in the place of
a file or folder there, so that files of the reader's would be removed or overwritten, or the command would wait."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from autotrace.run import layout
from tests.cases import in_turns, some
from tests.security import hostile, reading
from tests.ship.spools import Process, trajectory


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The stranger's, the reader's, and the current one."""
    theirs, mine, here = (tmp_path / name for name in ("theirs", "mine", "here"))
    for folder in (theirs, mine, here):
        folder.mkdir()
    for name in ("secret", "a.parquet", "commits.jsonl", "run.json"):
        (mine / name).write_text("{}\n")
    return theirs, mine, here


def instead(path: Path, kind: str, mine: Path) -> None:
    """Put a link to the reader's folder or file, a pipe, or a file of holes at ``path``."""
    was_folder = path.is_dir()
    shutil.rmtree(path) if was_folder else path.unlink()
    if kind == "link":
        path.symlink_to(mine if was_folder else mine / "secret")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(hostile.HOLE)


@pytest.mark.parametrize("kind", some(("link", "pipe", "hole"), "link"))
def test_ship_refuses_a_run_folder_in_which_anything_is_no_file(kind: str, folders: tuple[Path, Path, Path]) -> None:
    """Each file and folder that a delivered run has, in turn."""
    theirs, mine, here = folders
    run, process = hostile.honest(theirs)
    process.exit()
    (delivered,) = reading.run([["ship", str(run), "--backend", "jsonl", "--backend", "parquet"]], here, mine)
    assert not delivered["code"], delivered
    names = [path.relative_to(run) for path in sorted(run.rglob("*")) if str(path.name) != layout.RUN_JSON]
    assert {"tables", "tables/spans", "tables/commits.jsonl", "spool", "state.db"} <= {str(name) for name in names}
    every = []
    for number, name in enumerate(names):
        shutil.copytree(run, copy := theirs / str(number) / "run")
        instead(copy / name, kind, mine)
        every += [["ship", str(copy), *more] for more in ((), ("--backend", "parquet"), ("--tokenizer", "gpt2"))]
    was = reading.files_of(mine)
    answers = reading.run(every, here, mine)
    assert not reading.faults(answers) and reading.files_of(mine) == was
    assert all(one["code"] == 2 and "is a link, or no file of a run; remove it" in one["err"] for one in answers)
    assert len(answers) == len(every)


@pytest.mark.parametrize(
    ("name", "kind"),
    in_turns(("", "run.json", "tables", "tables/commits.jsonl", "tables/spans"), ("link", "pipe", "hole")),
)
def test_ship_neither_waits_nor_leaves_the_parquet_files_beside_the_run(
    name: str, kind: str, folders: tuple[Path, Path, Path]
) -> None:
    theirs, mine, here = folders
    run, process = hostile.honest(theirs)
    process.exit()
    ship = ["ship", str(run), "--backend", "parquet"]
    (delivered,) = reading.run([ship], here, mine)
    assert not delivered["code"], delivered
    (there,) = (theirs / "parquet").glob("*/*")
    instead(there / name, kind, mine)
    was = reading.files_of(mine)
    shutil.rmtree(run / "tables")
    (run / layout.STATE_DB).unlink()
    (again,) = reading.run([ship], here, mine)
    assert again["code"] in (1, 2) and "Traceback" not in again["err"], again
    assert reading.files_of(mine) == was and not any(str(mine) in what for what in again["did"]), again


@pytest.mark.parametrize("column", ["trajectories.trace_id", "spans.name"])
def test_ship_reads_no_tables_that_expand(column: str, folders: tuple[Path, Path, Path]) -> None:
    """Neither to see what was delivered, nor to merge files."""
    theirs, mine, here = folders
    run, process = hostile.honest(theirs)
    process.exit()
    reading.run([["ship", str(run)]], here, mine)
    other = Process(run, "node-2-aa")
    trajectory(other, step=2, rollout=0, uid="w", reward=1.0, trace=b"\xee" * 16)
    other.exit()
    name, _, column = column.partition(".")
    (path,) = (run / "tables" / name).glob("*.parquet")
    table, count = pq.read_table(path), 500
    text = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["x" * 5_000_000]))
    table = pa.concat_tables([table.slice(0, 1)] * count)
    pq.write_table(table.set_column(table.column_names.index(column), column, text), path, compression="zstd")
    assert path.stat().st_size < 100_000
    (shipped,) = reading.run([["ship", str(run)]], here, mine, memory=16 << 30)
    assert not reading.faults([shipped]) and shipped["peak"] < 1 << 30, shipped
    assert (run / "tables" / name / path.name).exists(), "it was merged"
