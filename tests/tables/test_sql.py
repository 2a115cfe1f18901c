"""SQL over a run: only reads, only the tables, and only what it needs of them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import autotrace
from autotrace.ship.live import Live
from autotrace.tables import sql
from autotrace.tables.errors import QueryError
from autotrace.tables.runs import Runs
from tests.run_folder import recorded


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """One run."""
    folder = tmp_path_factory.mktemp("runs")
    recorded(folder)
    return autotrace.open(folder)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT nope FROM trajectories", "there is no column nope; did you mean notes?"),
        ("SELECT rewards FROM trajectories", "there is no column rewards; did you mean reward?"),
        ("SELECT t.promt_tokens FROM turns t", "there is no column promt_tokens; did you mean prompt_tokens?"),
        ("SELECT * FROM trajectorie", "there is no table trajectorie; did you mean trajectories?"),
        ("SELECT * FROM '/etc/passwd'", "there is no table /etc/passwd; choose from trajectories, turns, spans, facts"),
        ("SELECT * FROM read_csv('/etc/passwd')", "only the tables of the run are read here"),
        ("SELECT * FROM glob('/etc/*')", "only the tables of the run are read here"),
        ("COPY trajectories TO '/tmp/stolen.csv'", "COPY is not possible: the tables of a run are only read"),
        ("INSERT INTO trajectories VALUES (1)", "INSERT is not possible"),
        ("DELETE FROM trajectories", "DELETE is not possible"),
        ("WITH gone AS (DELETE FROM facts RETURNING *) SELECT * FROM gone", "DELETE is not possible"),
        ("CREATE TABLE mine AS SELECT 1", "CREATE is not possible"),
        ("ATTACH 'mine.db'", "ATTACH is not possible"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/stolen.csv'", "EXPLAIN is not possible"),
        ("EXPLAIN SELECT 1", "EXPLAIN is not possible"),
        ("SET threads = 1", "SET is not possible"),
        (
            "FROM json_execute_serialized_sql(json_serialize_sql('SELECT count(*) FROM trajectories'))",
            "JSON_EXECUTE_SERIALIZED_SQL is not possible",
        ),
        ("SELECT count(*) FROM duckdb_table_sample('turns')", "DUCKDB_TABLE_SAMPLE is not possible"),
        (
            "SELECT 1 WHERE 0 = (SELECT count(*) FROM pragma_storage_info('turns'))",
            "PRAGMA_STORAGE_INFO is not possible",
        ),
        ("PIVOT trajectories ON step USING count(*)", "PIVOT needs the values of its columns, for example ON step IN"),
        ("SELECT 1; SELECT 2", "this is 2 statements; ask one SELECT at a time"),
        ("", "this is no statements"),
        ("SELEC 1", "syntax error"),
        ("SELECT step FROM trajectories WHERE reward = 'high'", "high"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(runs: Runs, query: str, says: str) -> None:
    with pytest.raises(QueryError, match=says) as caught:
        runs.sql(query)
    assert "\n" not in str(caught.value)


def test_answers(runs: Runs) -> None:
    query = "SELECT step, avg(reward) AS mean, count(*) AS n FROM trajectories GROUP BY step ORDER BY step"
    assert runs.sql(query).to_pylist() == [{"step": 1, "mean": 0.375, "n": 4}, {"step": 2, "mean": 0.375, "n": 4}]
    total = runs.sql("SELECT sum(response_tokens) AS total FROM turns;").to_pylist()
    assert total == [{"total": 56}] and type(total[0]["total"]) is int
    assert runs.sql("SHOW TABLES")["name"].to_pylist() == [
        "chains", "facts", "metrics", "spans", "tokens", "trajectories", "turns",
    ]  # fmt: skip
    assert runs.sql("DESCRIBE turns").num_rows > 30
    assert runs.sql("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": 49}]
    pivot = "PIVOT (SELECT step FROM trajectories) ON step IN (1, 2) USING count(*)"
    assert runs.sql(pivot).to_pylist() == [{"1": 4, "2": 4}]


def test_only_what_is_needed_is_read(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a segment was read")

    monkeypatch.setattr(Live, "load", refuse)
    assert runs.sql("SELECT max(reward) AS best FROM trajectories WHERE status = 'OK'").to_pylist() == [{"best": 1.0}]
    assert runs.sql("SELECT count(*) AS n FROM facts WHERE name = 'advantage'").to_pylist() == [{"n": 8}]


@pytest.mark.parametrize(
    ("query", "needs"),
    [
        ("SELECT count(*) FROM spans", {"spans": ["run_id"]}),
        ("SELECT step FROM trajectories WHERE reward > 3", {"trajectories": ["run_id", "step", "reward"]}),
        ("WITH all_of AS (SELECT * FROM turns) SELECT turn FROM all_of", {"turns": ["run_id", "turn"]}),
        ("SELECT 1", {}),
    ],
)
def test_needs(query: str, needs: dict[str, list[str]]) -> None:
    with contextlib.closing(sql._planner()) as planner:
        assert sql._needs(planner, query) == needs


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    from tests.run_folder import rollout
    from tests.ship.spools import Process, new_run

    folder = new_run(tmp_path)
    process = Process(folder)
    rollout(process, step=1, rollout=0, uid="u", reward=1.0)
    runs = autotrace.open(folder)
    count = "SELECT count(*) AS n FROM trajectories"
    assert runs.sql(count).to_pylist() == [{"n": 1}]
    rollout(process, step=1, rollout=1, uid="u", reward=0.0)
    open_one = b"o" * 16
    process.open(open_one, "trajectory", attributes={"step": 2})
    assert runs.sql(count).to_pylist() == [{"n": 3}]
    assert runs.sql("SELECT status FROM trajectories WHERE step = 2").to_pylist() == [{"status": "OPEN"}]
    process.exit()
