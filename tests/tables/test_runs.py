"""``autotrace.open``: runs as objects and tables, from the run folder and from Parquet files."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import autotrace
from autotrace.config.installation import installer
from autotrace.config.plan import Plan, Settings
from autotrace.run import layout
from autotrace.run.status import Status
from autotrace.ship.live import Live
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.ship.store.state import State
from autotrace.spool.reader import segments
from autotrace.tables import writer
from autotrace.tables.commits import FILE, Added, Commit, snapshot
from autotrace.tables.errors import QueryError
from autotrace.tables.runs import Runs
from autotrace.tables.schema import TABLES
from autotrace.tables.storage import StorageError
from autotrace.tables.writer import TableWriter
from autotrace.trajectory.model import Trajectory
from tests.run_folder import recorded
from tests.tables.test_writer import made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one run."""
    monkeypatch.delenv("AUTOTRACE_TABLES", raising=False)
    recorded(tmp_path)
    return tmp_path


def test_a_run_and_all_runs_of_a_folder(folder: Path) -> None:
    recorded(folder, "20261122-000000-aaaaaa")
    runs = autotrace.open(folder)
    assert [run.run_id for run in runs] == ["20261121-064412-3f9c1a", "20261122-000000-aaaaaa"]
    assert runs.latest.run_id == "20261122-000000-aaaaaa" and len(runs[:1]) == 1
    assert len(autotrace.open(runs.latest.folder)) == 1
    assert runs.table().num_rows == 16 and runs[0].table().num_rows == 8
    assert set(runs.table(columns=["run_id"])["run_id"].to_pylist()) == {run.run_id for run in runs}


def test_trajectories_are_read_when_they_are_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = autotrace.open(folder)
    loaded = []
    load = Live.load

    def counted(self: Live, trace_id: str, *, texts: bool = True) -> Trajectory:
        loaded.append(trace_id)
        return load(self, trace_id, texts=texts)

    monkeypatch.setattr(Live, "load", counted)
    ones = runs.trajectories(step=2)
    assert len(ones) == 4 and not loaded and runs.steps() == [1, 2]
    assert ones[1].attributes["step"] == 2 and len(loaded) == 1
    assert [one.turns for one in ones] == [2] * 4 and len(ones[1:3]) == 2
    assert len(runs.latest.trajectories(step=7)) == 0


def test_tables_of_the_run_folder(folder: Path) -> None:
    runs = autotrace.open(folder)
    counts = {name: runs.table(name).num_rows for name in TABLES}
    assert counts == {"trajectories": 8, "turns": 16, "spans": 49, "facts": 38, "tokens": 4, "chains": 8, "metrics": 8}
    entropy, longest, *followed = runs.table("metrics", step=2).to_pylist()
    assert list(entropy.values()) == [runs.latest.run_id, 2, "trainer", "actor/entropy", 0.5, 1]
    assert longest["name"] == "length" and {row["source"] for row in followed} == {"token_facts"}
    assert runs.sql("SELECT count(*) AS n FROM metrics")["n"].to_pylist() == [8]
    frame = runs.to_polars("turns", step=2, columns=["turn", "prompt_tokens", "cached_tokens", "response_mask"])
    assert frame.sort("turn")["prompt_tokens"].to_list() == [4] * 4 + [9] * 4
    assert runs.to_pandas(columns=["reward"])["reward"].mean() == 0.375


def test_what_the_state_answers_is_what_the_segments_say(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = autotrace.open(folder)
    (place,) = runs._places
    source = place.open()
    for name in ("trajectories", "facts"):
        short = [column.name for column in TABLES[name].columns if source.lines(name, [column.name], None) is not None]
        assert len(short) > len(TABLES[name].columns) * 0.6
        quick = runs.table(name, columns=short)
        with monkeypatch.context() as context:
            context.setattr(Live, "lines", lambda *_: None)
            assert runs.table(name, columns=short).sort_by("trace_id") == quick.sort_by("trace_id")


def test_a_folder_of_tables_says_the_same_as_the_run_folder(folder: Path) -> None:
    recorded(folder, "20261122-000000-aaaaaa", backends=["parquet"])
    before = autotrace.open(folder).latest
    expected = {name: before.table(name) for name in TABLES}
    assert ship(before.folder, once=True).state == "done"
    files = autotrace.open(folder / "parquet")
    for name, table in expected.items():
        columns = [column for column in table.column_names if (name, column) != ("metrics", "version")]
        order = [(column, "ascending") for column in ("trace_id", "start_ns", "step", "name") if column in columns]
        found = files.table(name, columns=columns)
        assert found.sort_by(order).to_pylist() == table.select(columns).sort_by(order).to_pylist()
    query = "SELECT run_id, count(*) AS n FROM turns JOIN trajectories USING (run_id, trace_id) GROUP BY ALL"
    assert files.sql(query)["n"].to_pylist() == [16]


def test_a_run_at_rest_is_read_without_its_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = autotrace.open(folder).latest
    (run.folder / layout.PLAN_JSON).write_text(Plan((), Settings()).dumps())  # whose default it is that segments go

    def rows() -> dict[str, list[str]]:
        names = {name: [one.name for one in table.columns] for name, table in TABLES.items()}
        names["metrics"].remove("version")
        return {name: sorted(map(str, run.table(name, columns=own).to_pylist())) for name, own in names.items()}

    before = rows()
    ship(run.folder, once=True)
    assert Status.read(run.folder).in_tables and not segments(run.folder)
    opened = list[object]()
    read_only = State.read_only
    monkeypatch.setattr(State, "read_only", lambda path: opened.append(path) or read_only(path))
    for left in ("all of it", "a copy without a state", "a copy without a word about its end"):
        assert rows() == before and not opened, left
        (run.folder / (layout.STATE_DB if left == "all of it" else layout.STATUS_JSON)).unlink(missing_ok=True)


def test_a_reader_goes_on_when_the_files_of_its_run_are_made_one(folder: Path) -> None:
    run = autotrace.open(folder).latest.folder
    ship(run, once=True)  # its segments stay, so it is not at rest: its state is open
    tables = run / "tables"
    with contextlib.closing(of_run(run)) as reader:
        asked: dict[str, Callable[[], object]] = {
            "select": lambda: sorted(row.trace_id for row in reader.select()),
            "sql": lambda: reader.sql("SELECT count(*), sum(response_tokens) FROM turns").rows(),
            "metrics": lambda: reader.table("metrics").num_rows,
            "each": lambda: [one is not None for _, one in reader.each(reader.select())],
            "binds": lambda: len(reader.run.binds()),
            "deliveries": lambda: {one: set(reader.run.deliveries(one)) for one in ids},
            "pages": lambda: reader.run.pages(),
        }
        ids = [row.trace_id for row in reader.select()]
        before = {name: ask() for name, ask in asked.items()}
        for name, ask in asked.items():
            commits = snapshot((tables / FILE).read_bytes())
            paths = [path for of in commits.files.values() for path in of]
            again = TableWriter(run, reader.run.info.run_id)
            for path in paths:  # as the end of a run does it
                table = path.partition("/")[0]
                file = f"{again._opened().batch + 1:06}.c.parquet"
                shutil.copy(tables / path, tables / table / file)
                added = commits.files[table][path]
                commit = Commit(again._opened().batch + 1, 0, {table: Added(file, added.rows, added.bytes)}, [path])
                with (tables / FILE).open("ab") as lines:
                    lines.write(commit.line())
                (tables / path).unlink()
                again = TableWriter(run, reader.run.info.run_id)
            assert ask() == before[name], name


def test_numbers_that_the_tables_did_not_take_are_read_from_the_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = autotrace.open(folder).latest
    before = run.table("metrics", columns=["step", "source", "name", "value"])
    (run.folder / layout.PLAN_JSON).write_text(Plan((), Settings()).dumps())
    monkeypatch.setattr(TableWriter, "write_metrics", _full)
    ship(run.folder, once=True)
    status = Status.read(run.folder)
    assert status.state == "done" and not status.in_tables and not segments(run.folder)
    assert run.table("metrics", columns=before.column_names).num_rows == before.num_rows == 8


def _full(*_: object) -> None:
    raise StorageError("no space left on the device", refused=True)


def test_runs_and_tables_of_other_runs_in_one_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    recorded(other, "20261120-000000-bbbbbb", backends=["parquet"])
    for place in (folder, other):
        assert ship(autotrace.open(place).latest.folder, once=True).state == "done"
    (stored,) = (other / "parquet").glob("*/*/")
    shutil.copytree(stored, folder / "of-a-colleague")
    shutil.copytree(autotrace.open(folder).latest.folder / "tables", folder / "a-copy" / "tables")
    found = sorted(run.run_id for run in autotrace.open(folder))
    assert found == ["20261120-000000-bbbbbb", "20261121-064412-3f9c1a"], "and its copy not once more"


def test_the_files_that_count_are_named_for_other_tools(tmp_path: Path) -> None:
    """A glob finds rows twice after a compaction and where a trajectory was written again, and late facts nowhere."""
    folder = tmp_path / "run"
    tables = TableWriter(folder, folder.name)
    count = writer.MANY + writer.LATEST
    for sample in range(count):
        tables.write([made(sample=sample)])
    again = made(sample=count - 1, version=2)
    again.spans[-1].status = "ERROR"
    tables.write([again])
    tables.write_facts([made(sample=1, version=2, advantage=0.5)])
    while tables.compact():
        pass
    run = autotrace.open(folder).latest

    def rows(files: Sequence[str | Path], column: str = "version") -> list[dict[str, Any]]:
        return pa.concat_tables(pq.read_table(file, columns=["trace_id", column]) for file in files).to_pylist()

    def found() -> list[Path]:
        return [*(folder / "tables" / "trajectories").glob("*.parquet")]

    assert len(rows(found())) > count + writer.MANY
    files = run.files()
    assert set(files) < set(map(str, found())) and len(rows(files)) == count + 1
    assert max(Counter(row["trace_id"] for row in rows(files)).values()) == 2, "in its two versions"
    tables.finish()
    assert run.files() == [*map(str, found())] and len(rows(found())) == count
    assert len(rows(run.files("facts"))) > count, "in each version"
    assert {row["advantage"] for row in rows(run.files(), "advantage")} == {None}
    assert set(run.table(columns=["advantage"])["advantage"].to_pylist()) == {None, 0.5}
    assert run.files("metrics") == []
    with pytest.raises(QueryError, match="there is no table turn; did you mean turns"):
        run.files("turn")


def test_all_runs_name_their_files(folder: Path) -> None:
    recorded(folder, "20261122-000000-aaaaaa")
    runs = autotrace.open(folder)
    assert runs.files() == [], "nothing is committed yet"
    for run in runs:
        assert ship(run.folder, once=True).state == "done"
    assert runs.files("turns") == [*runs[0].files("turns"), *runs[1].files("turns")]
    assert [Path(file).parent for file in runs.files("metrics")] == [run.folder / "tables/metrics" for run in runs]


def test_wrong_names_say_what_there_is(folder: Path, tmp_path: Path) -> None:
    runs = autotrace.open(folder)
    with pytest.raises(QueryError, match="there is no table turn; did you mean turns"):
        runs.table("turn")
    with pytest.raises(QueryError, match="there is no column of turns called promt_tokens; did you mean prompt_tokens"):
        runs.table("turns", columns=["promt_tokens"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no autotrace run"):
        autotrace.open(tmp_path / "empty")


def test_a_missing_library_is_named_with_the_remedy(folder: Path) -> None:
    program = (
        "import sys; sys.modules['polars'] = None\n"
        "import autotrace; runs = autotrace.open(sys.argv[1])\n"
        "assert len(runs.trajectories()) == 8 and runs.steps() == [1, 2]\n"
        "try: runs.to_polars()\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == f"this needs polars, which is not installed: {installer()} polars\n"


def test_the_package_itself_imports_nothing() -> None:
    program = (
        "import sys; before = set(sys.modules); import autotrace\n"
        "print(sorted(set(sys.modules) - before)); print(hasattr(autotrace, 'nonsense'), autotrace.__version__ != '')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['autotrace']", "False True"]
    assert isinstance(autotrace.open, type(recorded)) and Runs.__doc__
