"""Tables as they are written: each trajectory once, in its newest version, whatever happens on the way."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from autotrace.insight.examine import examine
from autotrace.insight.profile import encode
from autotrace.insight.settings import TrainerSettings
from autotrace.run import files
from autotrace.tables import writer
from autotrace.tables.commits import FILE, Added, Commit, Snapshot, folded, snapshot
from autotrace.tables.committed import Committed
from autotrace.tables.errors import Gone
from autotrace.tables.reader import Reader
from autotrace.tables.schema import TABLES
from autotrace.tables.writer import TableWriter, to_merge
from autotrace.trajectory.model import Trajectory
from tests.sinks.rollouts import group, trajectory
from tests.tables.reading import committed, rows, table, trajectories
from tests.tables.test_rebuild import fields

RUN = "20261121-1"


def made(step: int = 3, sample: int = 17, version: int = 1, **facts: Any) -> Trajectory:
    one = trajectory(step, sample, reward=1.0)
    one.attributes["sample_index"] = str(sample)
    one.version = version
    one.facts |= facts
    return one


def changed() -> Trajectory:
    """A later version of ``made()``, all of which is written again."""
    one = made(version=2, advantage=0.5)
    one.spans[-1].status = "ERROR"
    return one


def same(folder: Path, *expected: Trajectory) -> None:
    """These are there, and nothing else."""
    found = trajectories(folder)
    assert {id: fields(one) for id, one in found.items()} == {one.trace_id: fields(one) for one in expected}


def test_log_probabilities_are_sorted_by_the_places_of_their_bytes(tmp_path: Path) -> None:
    TableWriter(tmp_path, RUN).write([made()])
    (path,) = (tmp_path / "tables" / "turns").glob("*.parquet")
    group = parquet.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n).encodings for n in range(group.num_columns)}
    assert "BYTE_STREAM_SPLIT" in columns["rollout_log_probs.list.element"]


@pytest.mark.parametrize("column", ["response_ids", "new_prompt_ids", "rollout_log_probs"])
def test_a_list_of_a_stranger_that_lacks_a_number(tmp_path: Path, column: str) -> None:
    one = made()
    TableWriter(tmp_path, RUN).write([one])
    (path,) = (tmp_path / "tables" / "turns").glob("*.parquet")
    rows = parquet.read_table(path)
    place = rows.schema.get_field_index(column)
    lists = [values and [None, *values[1:]] for values in rows[column].to_pylist()]
    kind = rows.schema.field(place)
    parquet.write_table(rows.set_column(place, kind, pa.array(lists, kind.type)), path)
    with pytest.raises(Gone, match="was not written by autotrace"):
        Committed(tmp_path).load(one.trace_id)


# -- versions and facts ------------------------------------------------------------------------------------------------


def test_a_batch_is_a_file_a_table_and_one_line(tmp_path: Path) -> None:
    tables = TableWriter(tmp_path, RUN)
    tables.write([made(), made(sample=18)])
    tables.write([made(step=4)])
    first, second = committed(tmp_path).commits
    assert (first.batch, second.batch, first.trajectories) == (1, 2, 2)
    assert set(first.files) == {"trajectories", "turns", "spans", "facts", "tokens", "chains"}
    assert [added.name for added in first.files.values()] == ["000001.parquet"] * 6
    same(tmp_path, made(), made(sample=18), made(step=4))


def test_a_late_fact_appends_facts_and_what_follows_from_them(tmp_path: Path) -> None:
    tables = TableWriter(tmp_path, RUN)
    tables.write([made()])
    late = made(version=2, advantage=0.5)
    chains = [row for row in rows(tmp_path, "chains")]
    late.profile = encode(examine(late, TrainerSettings()))
    known = replace(late, spans=[late.root])
    tables.write_facts([known])
    last = committed(tmp_path).commits[-1]
    assert set(last.files) == {"facts", "chains"} and not last.supersedes and not last.trajectories
    (one,) = trajectories(tmp_path).values()
    assert one.facts == late.facts and len(one.spans) == len(late.spans)
    again = rows(tmp_path, "chains")[len(chains) :]
    assert again == [{**row, "version": 2, "advantage": 0.5 if row["row"] == 0 else None} for row in chains]


def test_a_fact_that_is_taken_back_is_gone(tmp_path: Path) -> None:
    tables = TableWriter(tmp_path, RUN)
    tables.write([made(advantage=0.5)])
    tables.write_facts([made(version=2)])
    (one,) = trajectories(tmp_path).values()
    assert one.facts == made().facts
    bare = made(version=3)
    bare.facts.clear()
    tables.write([bare])
    same(tmp_path, bare)


def test_a_late_call_writes_the_trajectory_again(tmp_path: Path) -> None:
    tables = TableWriter(tmp_path, RUN)
    tables.write([made(), made(sample=18)])
    grown = made(version=2)
    grown.spans[-1].status = "ERROR"
    tables.write([grown])
    assert committed(tmp_path).superseded == {grown.trace_id: 2}
    same(tmp_path, grown, made(sample=18))


def test_what_was_committed_before_a_kill_is_not_written_again(tmp_path: Path) -> None:
    TableWriter(tmp_path, RUN).write([made(), made(sample=18)])
    again = TableWriter(tmp_path, RUN)
    again.write([made(), made(sample=18), made(sample=19)])
    assert committed(tmp_path).commits[-1].trajectories == 1
    same(tmp_path, made(), made(sample=18), made(sample=19))


def test_metrics_of_a_step_count_in_their_newest_version(tmp_path: Path) -> None:
    tables = TableWriter(tmp_path, RUN)
    tables.write_metrics(1, {"metrics": {"loss": 1.0}})
    tables.write_metrics(1, {"metrics": {"loss": 1.0, "kl": 0.5}})
    found = rows(tmp_path, "metrics")
    newest = max(row["version"] for row in found)
    assert {row["name"] for row in found if row["version"] == newest} == {"loss", "kl"}


# -- lines -------------------------------------------------------------------------------------------------------------


def lines() -> bytes:
    return b"".join(
        Commit(n, n, {"spans": Added(f"{n:06}.parquet", 1, 1)}, [], {"a" * 32: n}, 1).line() for n in (1, 2)
    )


def test_a_line_that_is_torn_anywhere_does_not_count() -> None:
    text, first = lines(), len(Commit(1, 1, {"spans": Added("000001.parquet", 1, 1)}, [], {"a" * 32: 1}, 1).line())
    for end in range(len(text)):
        found = snapshot(text[:end])
        assert (found.batch, found.size) == ((1, first) if end >= first else (0, 0))
    assert snapshot(text).batch == 2


def test_a_line_that_is_damaged_anywhere_does_not_count() -> None:
    text = lines()
    for place in range(len(text)):
        found = snapshot(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        assert found.batch < 2, place


# -- compaction --------------------------------------------------------------------------------------------------------


def small(at: Path) -> None:
    tables = TableWriter(at, RUN)
    for sample in range(4):
        tables.write([made(sample=sample)])
    tables.write([made(sample=2, version=2, advantage=0.5)])
    again = made(sample=3, version=2)
    again.spans[-1].status = "ERROR"
    tables.write([again])


def compacted(at: Path) -> None:
    TableWriter(at, RUN).finish()


def test_many_small_files_become_one_and_readers_of_the_old_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = TableWriter(tmp_path, RUN)
    for sample in range(writer.MANY + writer.LATEST):
        assert not tables.compact()
        tables.write([made(sample=sample)])
    before, reader = committed(tmp_path), set(tmp_path.rglob("*.parquet"))
    while tables.compact():
        pass
    after = committed(tmp_path)
    assert {name: len(of) for name, of in after.files.items()} == dict.fromkeys(after.files, 1 + writer.LATEST)
    assert len(trajectories(tmp_path)) == writer.MANY + writer.LATEST
    assert reader <= set(tmp_path.rglob("*.parquet")), "who read the lines before finds all files"
    assert len(before.files["spans"]) == writer.MANY + writer.LATEST
    monkeypatch.setattr(writer, "LINGERS", 0.0)
    tables.compact()
    assert len(set(tmp_path.rglob("*.parquet"))) == sum(map(len, after.files.values()))


@pytest.mark.parametrize("size", [20 << 10, 600 << 10, 1_100 << 10, 2_500 << 10, 40 << 20])
def test_files_stay_few_however_much_a_commit_writes(size: int) -> None:
    found, again = Snapshot(), 0

    def commit(name: str, size: int, removes: list[str]) -> None:
        found.add(Commit(found.batch + 1, 0, {"turns": Added(name, 1, size)}, removes))

    def merged(everything: bool) -> int:
        chosen = to_merge(found, everything)
        if chosen is None:
            return 0
        size = sum(found.files["turns"][path].bytes for path in chosen[1])
        commit(f"{found.batch + 1:06}.c.parquet", size, chosen[1])
        return size

    for number in range(1, 1_001):
        commit(f"{found.batch + 1:06}.parquet", size, [])
        again += merged(False)
        full = number * size / writer.FULL
        assert len(found.files["turns"]) <= full + 2 * writer.MANY + writer.LATEST
    assert again <= 4 * 1_000 * size, "a row is written about three times"
    while merged(True):
        pass
    assert sum(file.bytes < 1 << 20 for file in found.files["turns"].values()) <= 1


def test_who_asks_while_the_files_are_made_one_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TableWriter(tmp_path, RUN)
    tables.write([made(sample=0)])
    reader = Reader([Committed(tmp_path)])
    provide, sample = reader.views.provide, 0

    def late(*given: Any) -> str:
        view = provide(*given)
        if not late_once:
            late_once.append(True)
            tables.write([made(sample=sample)])
            tables.finish()
        return view

    monkeypatch.setattr(reader.views, "provide", late)
    asked: tuple[Callable[[], int], ...] = (
        lambda: len(reader.select()), reader.count, lambda: sum(reader.steps().values()),
        lambda: reader.table().num_rows,
    )  # fmt: skip
    for ask in asked:
        late_once: list[bool] = []
        sample += 1
        assert ask() == sample + 1


def test_rows_that_do_not_count_leave_with_a_compaction(tmp_path: Path) -> None:
    small(tmp_path)
    compacted(tmp_path)
    assert len([*tmp_path.rglob("*.parquet")]) == 6, "whoever reads all files reads what counts"
    (path,) = committed(tmp_path).files["trajectories"]
    assert committed(tmp_path).files["trajectories"][path].rows == 4
    assert table(tmp_path, "trajectories").num_rows == 4


def test_large_files_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SIZES", ((0, 1), (1, writer.FULL)))
    for sample in range(3):
        TableWriter(tmp_path, RUN).write([made(sample=sample)])
    compacted(tmp_path)
    assert {len(of) for of in committed(tmp_path).files.values()} == {3}


def test_a_group(tmp_path: Path) -> None:
    ones = group(rewards=(1.0, 0.0, None))
    TableWriter(tmp_path, RUN).write(ones)
    assert len(trajectories(tmp_path)) == 3


# -- folded lines ------------------------------------------------------------------------------------------------------


def test_the_lines_of_a_long_run_stay_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit every two seconds for days: every reader reads all of them."""
    monkeypatch.setattr(writer, "MANY", 4)
    monkeypatch.setattr(writer, "LINGERS", 0.0)
    tables = TableWriter(tmp_path, RUN)
    most = 0
    for sample in range(60):
        tables.write([made(sample=sample)])
        grown = made(sample=sample, version=2)
        grown.spans[-1].status = "ERROR"
        tables.write([grown])
        while tables.compact():
            pass
        found = committed(tmp_path)
        most = max(most, len(found.commits))
        assert found == tables._snapshot, "what the next commit is appended to"
    assert most < 90
    assert trajectories(tmp_path).keys() == {made(sample=sample).trace_id for sample in range(60)}
    assert {one.version for one in trajectories(tmp_path).values()} == {2}
    tables.finish()
    last = committed(tmp_path)
    assert (len(last.commits), last.batch) == (6, tables._opened().batch) and len(last.superseded) == 60
    again = TableWriter(tmp_path, RUN)
    again.write([made(sample=60)])
    assert len(trajectories(tmp_path)) == 61 and again._opened().batch == last.batch + 1


def test_lines_that_cannot_be_folded_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: what was committed is, and nothing is left behind."""
    tables = TableWriter(tmp_path, RUN)
    for sample in range(3):
        tables.write([made(sample=sample)])
    overwrite = files.overwrite

    def full(path: Path) -> int:
        if path.name.endswith(f"{FILE}.part"):
            path.write_text("{")
            raise OSError(errno.ENOSPC, "No space left on device")
        return overwrite(path)

    with monkeypatch.context() as context:
        context.setattr(files, "overwrite", full)
        tables.finish()
    assert len(committed(tmp_path).commits) > 6 and not list(tmp_path.rglob("*.part"))
    tables.write([made(sample=3)])
    assert len(trajectories(tmp_path)) == 4


def test_what_a_reader_may_still_open_outlives_folding_and_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MANY", 4)
    tables = TableWriter(tmp_path, RUN)
    for sample in range(30):
        tables.write([made(sample=sample)])
        while tables.compact():
            pass
    reader = Reader([Committed(tmp_path)])
    before = {path for name in TABLES for path in reader.run.files(name)}
    for sample in range(30, 40):
        tables.write([made(sample=sample)])
        while tables.compact():
            pass
    assert len(committed(tmp_path).commits) < tables._opened().batch, "lines were folded"
    TableWriter(tmp_path, RUN).write([made(sample=40)])
    assert all(Path(path).exists() for path in before)
    assert len(list(reader.rows("spans", ("trace_id",)))) == 30 * len(made().spans)
    reader.close()


@pytest.mark.parametrize("count", range(12))
@pytest.mark.parametrize("since_ns", [0, 4, 100])
def test_folded_lines_say_the_same(count: int, since_ns: int) -> None:
    commits = [
        Commit(1, 1, {"spans": Added("000001.parquet", 1, 1), "turns": Added("000001.parquet", 1, 1)}, [], {}, 1),
        Commit(2, 2, {"spans": Added("000002.parquet", 1, 1)}, [], {"a" * 32: 2}, 1),
        Commit(3, 3, {"spans": Added("000003.c.parquet", 2, 2)}, ["spans/000001.parquet", "spans/000002.parquet"]),
        Commit(4, 4, {"turns": Added("000004.parquet", 1, 1)}, [], {"a" * 32: 3, "b" * 32: 2}, 2),
        Commit(5, 5, {}, ["turns/000001.parquet", "turns/000004.parquet"]),
        *(Commit(number, number, {"facts": Added(f"{number:06}.parquet", 1, 1)}) for number in range(6, 12)),
    ][:count]
    before = snapshot(b"".join(commit.line() for commit in commits))
    lines = folded(before, since_ns)
    after = snapshot(b"".join(commit.line() for commit in lines))
    kept = {table: files for table, files in before.files.items() if files}
    assert {table: files for table, files in after.files.items() if files} == kept
    assert (after.superseded, after.batch) == (before.superseded, before.batch)
    assert {line.batch for line in lines} <= {line.batch for line in commits}
    removed = {path for commit in commits if commit.at_ns >= since_ns for path in commit.removes}
    assert {path for line in lines for path in line.removes} == removed
    if since_ns == 100 and count > 4:
        assert [line.batch for line in lines] == [3, *range(max(5, min(count, 6)), count + 1)]
