"""The backend ``parquet`` in a local folder: whole commits, whatever happens in between."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from autotrace.config import environment as env
from autotrace.config.installation import installer
from autotrace.run import layout
from autotrace.sinks.parquet.backend import BACKEND
from autotrace.sinks.parquet.sink import ParquetSink
from autotrace.sinks.protocol import Refused, Unavailable
from autotrace.tables.commits import FILE, FOLDER
from autotrace.tables.schema import OF_TRAJECTORIES
from autotrace.tables.storage import check, segment
from autotrace.tables.writer import TableWriter
from tests.kills import in_child, killed_everywhere
from tests.sinks.rollouts import group, info
from tests.tables.reading import committed, rows, trajectories
from tests.tables.test_writer import changed, made, same

RUN = "20261121-1"
Sink = Callable[..., ParquetSink]


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sink:
    """``sink(...)``: as a new shipper of a run in ``tmp_path`` makes it, which has tables."""
    monkeypatch.delenv(env.TABLES, raising=False)

    def make(**known: Any) -> ParquetSink:
        described = info(**{"project": "rl", **known})
        run = tmp_path / described.run_id
        run.mkdir(exist_ok=True)
        described.write(run)
        return ParquetSink(described, run, {})

    return make


def there(root: Path, project: str = "rl") -> Path:
    """The copy."""
    return root / "parquet" / project / RUN


def write(root: Path, *trajectories: Any) -> None:
    TableWriter(root / RUN, RUN).write(trajectories)


def test_the_tables_are_there_as_they_are_in_the_run_folder(sink: Sink, tmp_path: Path) -> None:
    one = sink()
    write(tmp_path, made(), made(step=4))
    one.deliver(())
    same(there(tmp_path), made(), made(step=4))
    copies = sorted(there(tmp_path).rglob("*.parquet"))
    assert [path.parent.name for path in copies] == sorted(OF_TRAJECTORIES)
    assert {oct(path.stat().st_mode & 0o777) for path in copies} == {"0o600"}
    assert (tmp_path / "parquet/rl").stat().st_mode & 0o777 == 0o700
    assert one.sent == sum(path.stat().st_size for path in copies)
    assert not list(tmp_path.rglob("*.part*"))


def test_what_comes_later_is_copied_and_what_was_merged_goes(sink: Sink, tmp_path: Path) -> None:
    one = sink()
    write(tmp_path, made())
    one.deliver(())
    sent = one.sent
    write(tmp_path, changed(), made(sample=18))
    one.deliver(())
    assert sent < one.sent
    same(there(tmp_path), changed(), made(sample=18))
    TableWriter(tmp_path / RUN, RUN).finish()
    one.close()
    same(there(tmp_path), changed(), made(sample=18))
    assert len([*there(tmp_path).rglob("*.parquet")]) == len(OF_TRAJECTORIES)


def copied(at: Path) -> None:
    ParquetSink(info(project="rl"), at / RUN, {}).deliver(())


def test_a_copy_that_is_killed_anywhere_has_whole_commits(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "before"
    one = sink()
    write(tmp_path, made())
    one.deliver(())
    write(tmp_path, changed(), made(sample=18))
    TableWriter(tmp_path / RUN, RUN).finish()
    shutil.copytree(tmp_path / RUN, before / RUN)
    shutil.copytree(tmp_path / "parquet", before / "parquet")

    def checked(at: Path, whole: bool) -> None:
        found = {one.trace_id: one.version for one in trajectories(there(at)).values()}
        assert found[made().trace_id] == len(found), "one in its first version, or two"
        copied(at)
        same(there(at), changed(), made(sample=18))
        kept = {path for of in committed(there(at)).files.values() for path in of} | {FILE}
        tables = there(at) / FOLDER
        assert {str(path.relative_to(tables)) for path in tables.rglob("*") if path.is_file()} == kept

    assert killed_everywhere(before, copied, checked) > 10


def full(at: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
    with pytest.raises(Unavailable, match=r"cannot write to .*/parquet: File too large"):
        copied(at)
    sys.exit(3)


def test_a_full_disk_leaves_whole_commits(sink: Sink, tmp_path: Path) -> None:
    one = sink()
    write(tmp_path, made())
    one.deliver(())
    write(tmp_path, made(sample=18))

    assert in_child(full, tmp_path) == 3
    same(there(tmp_path), made())
    one.deliver(())
    same(there(tmp_path), made(), made(sample=18))


def test_files_that_nobody_may_write(sink: Sink, tmp_path: Path) -> None:
    write(tmp_path, made())
    one = sink()
    (tmp_path / "parquet").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot write to"):
        one.deliver(())


def test_the_files_of_another_run_are_refused(sink: Sink, tmp_path: Path) -> None:
    write(tmp_path, made())
    sink(created="2026-11-20T06:00:00+00:00").deliver(())
    with pytest.raises(Refused, match=r"has files of another run called 20261121-1 \(started 2026-11-20T06"):
        sink().deliver(())
    (there(tmp_path) / layout.RUN_JSON).write_text("{")
    with pytest.raises(Refused, match=r"run\.json is damaged"):
        sink().deliver(())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("ftp://host/x", "unknown scheme ftp://; choose from s3,"),
        ("s3://", "a bucket is missing; write s3://BUCKET/FOLDER"),
        ("gs://bucket/x", f"needs gcsfs, which is not installed: {installer()} gcsfs"),
        ("/etc/hostname", "is a file; name a folder"),
    ],
)
def test_a_wrong_place_is_known_before_the_run_starts(given: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(given)) as caught:
        check(given, lambda library: None)
    assert says in str(caught.value)


def test_names_of_projects_become_names_of_folders() -> None:
    assert segment("a/b=c ../..", "x") == "a-b-c" and segment("..", "x") == "x" and segment("_hidden", "x") == "hidden"
    assert segment("ü" * 300, "x") == "x" and len(segment("a" * 300, "x")) == 100


def test_the_project_is_what_it_is_called_at_the_first_delivery(sink: Sink, tmp_path: Path) -> None:
    write(tmp_path, made())
    one = sink(project=None)
    one.bind("config", {"project_name": "reported"})
    one.deliver(())
    one.bind("config", {"project_name": "later"})
    write(tmp_path, made(step=4))
    one.deliver(())
    assert os.listdir(tmp_path / "parquet") == ["reported"]
    assert len(rows(there(tmp_path, "reported"))) == 2


def test_every_reader_counts_the_same(sink: Sink, tmp_path: Path) -> None:
    write(tmp_path, *group(3), *group(4))
    sink().deliver(())
    pattern = f"{tmp_path}/parquet/*/*/tables/turns/*.parquet"
    query = f"SELECT count(*), sum(len(response_ids)) FROM '{pattern}' WHERE own"
    assert duckdb.sql(query).fetchall() == [(8, 322)]
    turns = pl.read_parquet(pattern).filter("own")
    assert turns["response_ids"].list.len().sum() == 322
    assert BACKEND.health(None).ok  # type: ignore[arg-type]
