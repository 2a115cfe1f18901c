"""The backend ``parquet`` in a local folder: whole files, each trajectory once, whatever happens in between."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

from autotrace.sinks.parquet import dataset, partition, store
from autotrace.sinks.parquet.backend import BACKEND
from autotrace.sinks.parquet.location import VARIABLE, check, segment
from autotrace.sinks.parquet.sink import ParquetSink
from autotrace.sinks.protocol import Refused, Unavailable
from autotrace.tables.schema import OF_TRAJECTORIES
from autotrace.trajectory.model import Trajectory
from tests.sinks.rollouts import group, info, trajectory

Made = Callable[..., ParquetSink]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """``made(run_id=...)``: a sink of a run in ``tmp_path``."""
    monkeypatch.delenv(VARIABLE, raising=False)

    def make(**known: Any) -> ParquetSink:
        run = tmp_path / str(known.get("run_id", "20261121-1"))
        run.mkdir(exist_ok=True)
        return ParquetSink(info(**known), run, {})

    return make


def files(root: Path, table: str = "*") -> list[Path]:
    return sorted(root.glob(f"parquet/{table}/**/*.parquet"))


def read(root: Path, table: str = "trajectories") -> pl.DataFrame:
    """As anybody would."""
    return pl.read_parquet(f"{root}/parquet/{table}/**/*.parquet")


def steps(*numbers: int, sample: int = 1) -> list[Trajectory]:
    return [trajectory(step=step, sample=sample, reward=1.0) for step in numbers]


def deliver_singly(sink: ParquetSink, samples: Iterable[int]) -> None:
    """Each into files of its own, all of step 1."""
    for sample in samples:
        sink.deliver(steps(1, sample=sample))


def test_a_delivery_is_one_file_a_table_and_step(made: Made, tmp_path: Path) -> None:
    sink = made()
    sink.deliver([*group(3), *group(4)])
    assert [str(path.parent.relative_to(tmp_path / "parquet")) for path in files(tmp_path)] == [
        f"{table}/rl/20261121-1/step-{step}" for table in sorted(OF_TRAJECTORIES) for step in (3, 4)
    ]
    assert read(tmp_path).height == 4 and read(tmp_path, "turns").height == 8 and read(tmp_path, "spans").height == 20
    assert {oct(path.stat().st_mode & 0o777) for path in files(tmp_path)} == {"0o600"}
    assert (tmp_path / "parquet/turns/rl").stat().st_mode & 0o777 == 0o700
    assert not list(tmp_path.rglob("*.part*"))
    metadata = pq.read_metadata(files(tmp_path)[0])
    assert metadata.row_group(0).column(0).compression == "ZSTD" and sink.sent > 1_000


def test_a_folder_whose_name_is_no_unicode(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / os.fsdecode(b"caf\xe9")
    monkeypatch.setenv(VARIABLE, str(place))
    made().deliver(group(3))
    (file,) = place.glob("trajectories/**/*.parquet")
    assert pl.read_parquet(file.read_bytes()).height == 2


def test_a_message_of_arrow_ends_with_what_the_system_says() -> None:
    said = f"Error writing bytes to file {'x' * 280}. Detail: [errno 28] No space left on device"
    assert str(store.failed("/data", OSError(said))) == "cannot write to /data: No space left on device"


def test_what_was_delivered_is_freed_at_once(made: Made) -> None:
    """A shipper looks for cycles of objects only now and then, and by then these would have been hundreds of MB."""
    sink, one = made(), trajectory(step=3)
    alive = [weakref.ref(one), *map(weakref.ref, one.spans)]
    gc.disable()
    try:
        sink.deliver([one])
        del one
        assert [ref() for ref in alive] == [None] * len(alive)
    finally:
        gc.enable()


def test_what_is_delivered_again_replaces_itself(made: Made, tmp_path: Path) -> None:
    sink = made()
    first = group(3, 17) + group(3, 18)
    sink.deliver(first)
    large = {path: path.stat().st_mtime_ns for table in ("turns", "spans") for path in files(tmp_path, table)}
    for one in first[1:3]:
        one.facts |= {"advantage": 0.5}
    sink.deliver(first[1:3])
    rewards = read(tmp_path).sort("sample_index", "rollout_n")
    assert rewards["advantage"].to_list() == [None, 0.5, 0.5, None]
    assert read(tmp_path, "facts").filter(pl.col("name") == "advantage").height == 2
    assert {path: path.stat().st_mtime_ns for path in large} == large, "late facts leave the large tables alone"
    first[1].spans.append(first[1].spans[-1].__class__("9" * 16, None, "late", "span", "k", 0, 1, "OK"))
    sink.deliver(first[:2])
    assert read(tmp_path, "spans")["span_id"].n_unique() == read(tmp_path, "spans").height == 21


def test_another_process_goes_on_where_one_was_killed(made: Made, tmp_path: Path) -> None:
    made().deliver(group(3))  # delivered, but not acknowledged
    sink = made()
    sink.deliver([*group(3), *group(3, 18)])
    for table, count in (("trajectories", 4), ("turns", 8), ("spans", 20)):
        assert read(tmp_path, table).height == count


def test_a_trajectory_whose_step_was_unknown_moves(made: Made, tmp_path: Path) -> None:
    sink = made()
    one = trajectory(reward=1.0)
    one.attributes.pop("step")
    sink.deliver([one])
    assert "no-step" in str(files(tmp_path, "trajectories")[0])
    sink.deliver([trajectory(reward=1.0)])
    assert read(tmp_path)["step"].to_list() == [3] and read(tmp_path, "turns").height == 2


def test_a_replacement_that_was_killed_half_way_is_undone(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = made()
    ones = group(3, 17) + group(3, 18)
    sink.deliver(ones)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    if (pid := os.fork()) == 0:
        ones[0].facts["advantage"] = 0.5
        sink.deliver(ones[:1])
        os._exit(0)
    monkeypatch.undo()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert read(tmp_path).height == 8, "old and new file are there"
    made().deliver(group(5))  # whatever comes next
    assert read(tmp_path).filter(step=3)["trace_id"].n_unique() == read(tmp_path).filter(step=3).height == 4
    assert read(tmp_path)["advantage"].drop_nulls().to_list() == [0.5], "the newer one stayed"


def test_small_files_are_merged_when_there_are_many_and_when_the_step_is_behind(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "MANY", 6)
    sink = made()
    deliver_singly(sink, range(5))
    assert len(files(tmp_path, "turns")) == 5
    sink.deliver(steps(1, sample=5))
    assert len(files(tmp_path, "turns")) == 1
    deliver_singly(sink, range(6, 10))
    sink.deliver(steps(3))
    assert len([path for path in files(tmp_path) if path.parent.name == "step-1"]) == len(OF_TRAJECTORIES)
    sink.deliver(steps(3, sample=2))
    sink.close()
    assert len(files(tmp_path, "trajectories")) == 2
    assert read(tmp_path).height == 12 and read(tmp_path, "spans").height == 60


def test_full_files_are_left_alone(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "FULL_BYTES", 1)
    monkeypatch.setattr(dataset, "MANY", 3)
    sink = made()
    deliver_singly(sink, range(4))
    assert len(files(tmp_path, "turns")) == 4
    sink.close()
    assert len(files(tmp_path, "trajectories")) == 4


def test_large_tables_of_a_step_that_is_over_keep_files_of_a_useful_size(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "USEFUL_BYTES", 1)
    sink = made()
    deliver_singly(sink, range(5))
    sink.close()
    assert {table: len(files(tmp_path, table)) for table in ("trajectories", "facts", "turns", "spans")} == {
        "trajectories": 1, "facts": 1, "turns": 5, "spans": 5,
    }  # fmt: skip


def test_a_late_fact_of_a_step_long_past(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "MOST_PARTITIONS", 2)
    sink = made()
    for step in range(1, 7):
        sink.deliver(steps(step))
    (late,) = steps(1)
    late.facts["trained_in_step"] = 9
    sink.deliver([late])
    sink.close()
    assert read(tmp_path).height == 6 and read(tmp_path).filter(step=1)["trained_in_step"].to_list() == [9]


def test_two_shippers_of_one_run(made: Made, tmp_path: Path) -> None:
    one, other = made(), made()
    mine, theirs = group(3, 17), group(3, 18)
    one.deliver(mine)
    other.deliver(theirs)
    for sink, ones in ((one, mine), (other, theirs), (one, mine)):
        for each in ones:
            each.facts["advantage"] = each.facts.get("advantage", 0) + 1
        sink.deliver(ones)
    one.close()
    other.close()
    assert sorted(read(tmp_path)["advantage"].to_list()) == [1, 1, 2, 2] and read(tmp_path, "turns").height == 8


def test_a_file_that_another_shipper_replaces_meanwhile_is_no_reason_to_stop(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made().deliver(steps(3))
    listed = store.LocalStore.sizes

    def late(self: store.LocalStore, folder: str) -> dict[str, int]:
        gone = {f"{folder}/1-gone.parquet": 1} if folder.endswith("step-3") else {}
        return {**listed(self, folder), **gone}

    monkeypatch.setattr(store.LocalStore, "sizes", late)
    sink = made()
    with pytest.raises(Unavailable, match=r"another shipper of this run has just replaced .*1-gone\.parquet$"):
        sink.deliver(steps(3))
    monkeypatch.undo()
    sink.deliver(steps(3))
    assert read(tmp_path).height == 1


def test_files_that_could_not_be_removed_are_repaired_by_the_next_try(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = made()
    ones = steps(3, 4, 5)
    sink.deliver(ones)
    for one in ones:
        one.facts["advantage"] = 0.5

    def failing(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(Unavailable, match="Input/output error"):
        sink.deliver(ones)
    monkeypatch.undo()
    sink.deliver(ones)
    assert read(tmp_path)["advantage"].to_list() == [0.5, 0.5, 0.5]


def test_a_full_disk_leaves_nothing_half_written(made: Made, tmp_path: Path) -> None:
    """``RLIMIT_FSIZE`` fails a write in the middle, as a full disk does."""
    sink = made()
    sink.deliver(group(3))
    before = {path: path.read_bytes() for path in files(tmp_path)}
    ones = group(3, 18)
    for one in ones:
        one.spans[1].output = {"large": os.urandom(200_000).hex()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(Unavailable, match=r"^cannot write to .*parquet: File too large$"):
            sink.deliver(ones)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert {path: path.read_bytes() for path in files(tmp_path)} == before
    assert not list(tmp_path.rglob("*.part*"))
    sink.deliver(ones)
    assert read(tmp_path).height == 4


def test_a_failure_while_files_get_their_names_takes_all_of_them_back(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = made()
    sink.deliver(group(3))
    before = files(tmp_path)
    replace, calls = os.replace, iter([True, True])

    def failing(*words: Any) -> None:
        if not next(calls, False):
            raise OSError(28, "No space left on device")
        replace(*words)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(Unavailable, match="No space left"):
        sink.deliver(group(3, 18))
    monkeypatch.undo()
    assert files(tmp_path) == before and not list(tmp_path.rglob("*.part*"))


def test_the_folder_of_another_run_is_refused(made: Made, tmp_path: Path) -> None:
    made(created="2026-11-20T06:00:00+00:00").deliver(group(3))
    before = files(tmp_path)
    with pytest.raises(Refused, match=r"has files of another run called 20261121-1 \(started 2026-11-20T06"):
        made().deliver(group(3))
    assert files(tmp_path) == before
    made(run_id="20261121-2").deliver([])  # another run beside it is what the folder is for


def test_a_folder_with_other_things_is_refused(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "home"))
    with pytest.raises(Refused, match=r"home holds what autotrace did not write \(thesis.tex\)"):
        made().deliver(group(3))
    assert os.listdir(tmp_path / "home") == ["thesis.tex"]


def test_files_of_a_newer_release_are_left_alone(made: Made, tmp_path: Path) -> None:
    made().deliver(group(3))
    owner = tmp_path / "parquet/_runs/20261121-1.json"
    owner.write_text(json.dumps({**json.loads(owner.read_text()), "schema": 99}))
    with pytest.raises(Refused, match=r"written by a newer autotrace \(schema 99"):
        made().deliver(group(3))


def test_files_of_an_older_release_get_the_new_columns(made: Made, tmp_path: Path) -> None:
    sink = made()
    sink.deliver(group(3))
    (path,) = files(tmp_path, "trajectories")
    pq.write_table(pq.read_table(path).drop_columns(["advantage"]), path)
    sink = made()
    sink.deliver(group(3)[:1])
    assert read(tmp_path)["advantage"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("ftp://host/x", "unknown scheme ftp://; choose from s3,"),
        ("s3://", "a bucket is missing; write s3://BUCKET/FOLDER"),
        ("gs://bucket/x", "needs gcsfs, which is not installed: pip install gcsfs"),
        ("/etc/hostname", "this is a file; name a folder"),
    ],
)
def test_a_wrong_place_is_known_before_the_run_starts(given: str, says: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE) as caught:
        check(given, lambda library: None)
    assert says in str(caught.value)


def test_names_of_projects_become_names_of_folders() -> None:
    assert segment("a/b=c ../..", "x") == "a-b-c" and segment("..", "x") == "x" and segment("_hidden", "x") == "hidden"
    assert segment("ü" * 300, "x") == "x" and len(segment("a" * 300, "x")) == 100


def test_the_project_is_what_it_is_called_at_the_first_delivery(made: Made, tmp_path: Path) -> None:
    sink = made()
    sink.bind("config", {"project_name": "reported"})
    sink.deliver(group(3))
    sink.bind("config", {"project_name": "later"})
    sink.deliver(group(4))
    assert {path.parts[-4] for path in files(tmp_path)} == {"reported"}


def test_every_reader_counts_the_same(made: Made, tmp_path: Path) -> None:
    made().deliver([*group(3), *group(4)])
    pattern = f"{tmp_path}/parquet/turns/**/*.parquet"
    assert duckdb.sql(f"SELECT count(*), sum(len(response_ids)) FROM '{pattern}'").fetchall() == [(8, 322)]
    assert read(tmp_path, "turns")["response_ids"].list.len().sum() == 322
    assert pq.read_table(tmp_path / "parquet/turns").num_rows == 8
    assert BACKEND.health(None).ok  # type: ignore[arg-type]


def test_names_of_files_grow() -> None:
    names = [partition.new_name("w") for _ in range(100)]
    assert sorted(names) == names and len(set(names)) == 100
