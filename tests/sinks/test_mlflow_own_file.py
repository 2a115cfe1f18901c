"""Rows in the SQLite file that autotrace created: a person sees no difference, and nothing is lost on the way."""

from __future__ import annotations

import copy
import json
import multiprocessing
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import both_ways
import pytest
from mlflow.entities import Span
from rollouts import info, trajectory

from autotrace.sinks.mlflow.own_file import OwnFile
from autotrace.sinks.mlflow.rows import Contents, json_text
from autotrace.sinks.mlflow.sink import MlflowSink
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.mlflow.uri import MARK, initialise, is_own
from autotrace.sinks.protocol import Refused, Unavailable
from tests.cases import examples
from tests.postgres import Postgres
from tests.waiting import DEADLINE, until

PER_TRACE = len(trajectory().spans)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without anything in it; MLflow takes seconds to make one."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    initialise(f"sqlite:///{path}")
    return path


@pytest.fixture
def fresh(empty: Path, tmp_path: Path) -> Callable[[str], str]:
    """``fresh(name)``: the URI of a store of the test's own."""

    def copied(name: str) -> str:
        shutil.copy(empty, tmp_path / f"{name}.db")
        return f"sqlite:///{tmp_path}/{name}.db"

    return copied


@pytest.fixture
def uri(fresh: Callable[[str], str]) -> str:
    return fresh("mlflow")


def make(uri: str) -> MlflowSink:
    return MlflowSink(info(tracking_uri=uri, project="p", backends=["mlflow"]), Path("/tmp/run"))


def spans_of(path: str) -> dict[str, tuple[int, int]]:
    """Trace id -> how many spans and tags it has."""
    query = (
        "SELECT request_id, (SELECT count(*) FROM spans WHERE trace_id = request_id), "
        "(SELECT count(*) FROM trace_tags AS tags WHERE tags.request_id = trace_info.request_id) FROM trace_info"
    )
    with sqlite3.connect(path.removeprefix("sqlite:///"), timeout=30) as db:
        return {trace: (spans, tags) for trace, spans, tags in db.execute(query)}


def test_both_ways_leave_the_same_without_the_data_libraries(fresh: Callable[[str], str]) -> None:
    """In a process of its own, as the shipper's."""
    done = subprocess.run(
        [sys.executable, str(Path(both_ways.__file__)), fresh("one"), fresh("other")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["spans"][0] >= 20 and result["differences"] == []
    assert result["libraries"] == []


def test_a_database_of_others_gets_the_same_through_mlflows_store_class(
    postgres: Postgres, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """PostgreSQL, and an SQLite file without autotrace's mark."""
    own, others = fresh("own"), fresh("others")
    with sqlite3.connect(tmp_path / "others.db") as db:
        assert db.execute("PRAGMA application_id").fetchone() == (MARK,)
        db.execute("PRAGMA application_id = 0")
    assert is_own(str(tmp_path / "own.db")) and not is_own(str(tmp_path / "others.db"))
    both_ways.deliver(own)
    for other in (others, postgres.uri("others")):
        with both_ways.counted() as spans:
            both_ways.deliver(other)
        assert spans == []
        assert both_ways.differences(own, other) == []


def test_the_comparison_sees_a_difference(fresh: Callable[[str], str], tmp_path: Path) -> None:
    one, other = fresh("one"), fresh("other")
    for place in (one, other):
        both_ways.deliver(place)
    with sqlite3.connect(tmp_path / "one.db") as db:
        db.execute("UPDATE spans SET content = replace(content, 'What is 6', 'What is 9')")
        db.execute("UPDATE trace_info SET total_tokens = 0 WHERE total_tokens = 232")
    found = "\n".join(both_ways.differences(one, other))
    assert "What is 9" in found and "total_tokens" in found and "client" in found


def test_two_writers_of_the_same_trajectories_leave_each_whole(uri: str) -> None:
    writers = [_writer(uri, samples) for samples in (range(0, 40), range(20, 60))]
    for writer in writers:
        writer.join(DEADLINE)
        assert writer.exitcode == 0
    stored = spans_of(uri)
    assert len(stored) == 60
    assert {spans for spans, _ in stored.values()} == {PER_TRACE}


def test_a_killed_writer_leaves_each_trajectory_whole_or_not_at_all(uri: str) -> None:
    for _ in range(examples(4)):
        before = len(spans_of(uri))
        writer = _writer(uri, range(before, before + 4000))
        until(lambda before=before, writer=writer: len(spans_of(uri)) >= before + 3 or not writer.is_alive())  # type: ignore[misc]
        assert writer.is_alive(), damage(uri)
        writer.kill()
        writer.join()
    stored = spans_of(uri)
    assert {spans for spans, _ in stored.values()} == {PER_TRACE}
    assert len({tags for _, tags in stored.values()}) == 1
    make(uri).deliver([trajectory(sample=sample) for sample in range(len(stored) + 20)])
    assert {spans for spans, _ in spans_of(uri).values()} == {PER_TRACE}


def _writer(uri: str, samples: range) -> Any:
    """Another shipper, that delivers ``samples`` seven at a time. A new process, as each shipper is: SQLite does not
    promise to work in a fork of one that has used it."""
    writer = multiprocessing.get_context("spawn").Process(target=_write, args=(uri, samples))
    writer.start()
    return writer


def _write(uri: str, samples: range) -> None:
    sink = make(uri)
    for start in samples[::7]:
        sink.deliver([trajectory(sample=n) for n in range(start, min(start + 7, samples.stop))])


def damage(uri: str) -> list[Any]:
    """What SQLite says of the file."""
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as db:
        return db.execute("PRAGMA integrity_check").fetchall()


def test_a_batch_is_stored_whole_or_not_at_all(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = make(uri)
    sink.deliver([trajectory(sample=900)])
    upsert = OwnFile._upsert

    def failing(self: OwnFile, db: Any, table: str, rows: Any) -> None:
        if table == "spans":
            raise sqlite3.OperationalError("the disk is full")
        upsert(self, db, table, rows)

    monkeypatch.setattr(OwnFile, "_upsert", failing)
    with pytest.raises(Unavailable):
        sink.deliver([trajectory(sample=sample, reward=1.0) for sample in range(5)])
    assert len(spans_of(uri)) == 1
    monkeypatch.undo()
    sink.deliver([trajectory(sample=sample, reward=1.0) for sample in range(5)])
    assert {spans for spans, _ in spans_of(uri).values()} == {PER_TRACE}


def test_a_store_that_is_migrated_meanwhile_is_not_written_until_its_release_is_installed(uri: str) -> None:
    sink = make(uri)
    sink.deliver([trajectory(sample=1)])
    path = uri.removeprefix("sqlite:///")
    with sqlite3.connect(path) as db:
        (revision,) = db.execute("SELECT version_num FROM alembic_version").fetchone()
        db.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    with pytest.raises(Refused, match="migrated from schema"):
        sink.deliver([trajectory(sample=2)])
    assert len(spans_of(uri)) == 1
    with sqlite3.connect(path) as db:
        db.execute("UPDATE alembic_version SET version_num = ?", [revision])
    sink.deliver([trajectory(sample=2)])
    assert len(spans_of(uri)) == 2


def test_a_release_that_was_not_compared_is_left_to_mlflow(uri: str) -> None:
    with both_ways.store_class(), both_ways.counted() as spans:
        make(uri).deliver([trajectory(sample=1), trajectory(sample=2)])
    assert spans == []
    assert {spans for spans, _ in spans_of(uri).values()} == {PER_TRACE}


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "",
        '"quoted"',
        "[1, 2]",
        "{}",
        "{not",
        "  [1]",
        "12",
        "true",
        json.dumps(json.dumps([1])),
        7,
        True,
        "é\0",
    ],
)
def test_an_attribute_is_stored_as_a_server_would(value: str | int | bool) -> None:
    from mlflow.tracing.otel import translation

    given = {"name": json.dumps(value, ensure_ascii=False)}
    for _ in range(3):
        given = translation.sanitize_attributes(given)
    assert json_text(value) == given["name"]


def test_text_nested_beyond_what_can_be_parsed_is_text() -> None:
    assert json.loads(json_text("[" * 100_000)) == "[" * 100_000


def test_a_span_that_mlflow_would_change_is_left_to_it() -> None:
    contents = Contents(ascii_only=False)
    sent = trajectory()
    assert all(contents.text(span) is not None for span in encode(sent))
    priced = copy.deepcopy(sent)
    priced.attributes["model"] = "gpt-4o"
    texts = [contents.text(span) for span in encode(priced)]
    assert [text is None for text in texts] == [span.role == "llm" for span in priced.spans]
    text = contents.text(encode(sent)[2])
    assert text is not None and Span.from_dict(json.loads(text)).span_id == sent.spans[2].span_id
