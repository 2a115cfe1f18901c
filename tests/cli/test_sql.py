"""``autotrace sql`` as people and other programs read it."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run, trajectory


def test_a_table(call: Call, run: Path) -> None:
    done = call("sql", "SELECT step, avg(reward) AS mean FROM trajectories GROUP BY step ORDER BY step")
    assert done.exit_code == 0
    assert next(line.split() for line in done.output.splitlines() if line.strip()) == ["step", "mean"]
    assert done.output.split()[-4:] == ["1", "0.375", "2", "0.875"]


def test_csv_and_json(call: Call, run: Path) -> None:
    query = "SELECT turn, response_ids, error FROM turns ORDER BY trace_id, turn LIMIT 2"
    rows = list(csv.reader(call("sql", query, "--csv").output.splitlines()))
    assert rows == [["turn", "response_ids", "error"], ["1", "[10, 11, 12]", ""], ["2", "[30, 31, 32, 33]", ""]]
    lines = [json.loads(line) for line in call("sql", query, "--json").output.splitlines()]
    assert lines[0] == {"turn": 1, "response_ids": [10, 11, 12], "error": None}


def test_a_spreadsheet_runs_no_text_of_csv(call: Call, runs: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "1-1", "'", ""]
    process = Process(new_run(runs, "20261122-000000-aaaaaa"))
    for number, text in enumerate(texts):
        trajectory(process, uid=text, reward=-0.5, trace=bytes([number + 1]) * 16)
    process.exit()
    query = 'SELECT uid, reward, [uid] AS "=2" FROM trajectories ORDER BY trace_id'
    names, *rows = csv.reader(io.StringIO(call("sql", query, "--csv").stdout_bytes.decode(), newline=""))
    assert names == ["uid", "reward", "'=2"] and {row[1] for row in rows} == {"-0.5"}
    assert [row[0] for row in rows] == [f"'{text}" for text in texts[:7]] + texts[7:]
    given = [json.loads(line) for line in call("sql", query, "--json").output.splitlines()]
    assert [row["uid"] for row in given] == texts


def test_all_runs_of_a_folder_or_the_one_that_is_named(call: Call, run: Path, runs: Path) -> None:
    other = new_run(runs, "20261122-000000-aaaaaa")
    process = Process(other)
    trajectory(process)
    process.exit()
    query = "SELECT count(*) AS n FROM trajectories"
    counts = {name: call("sql", query, *words, "--csv").output.split()[-1]
              for name, words in (("newest", []), ("all", [runs]), ("named", [run.name]))}  # fmt: skip
    assert counts == {"newest": "1", "all": "6", "named": "5"}


def test_the_run_may_come_before_the_question(call: Call, run: Path) -> None:
    query = "SELECT count(*) AS n FROM trajectories"
    assert call("sql", run.name, query, "--csv").output == call("sql", query, run.name, "--csv").output == "n\n5\n"


def test_mistakes_end_with_one_line(call: Call, run: Path, runs: Path) -> None:
    for words, says in (
        (["SELECT nope FROM trajectories"], "autotrace: there is no column nope; did you mean notes?"),
        (["DROP TABLE trajectories"], "DROP is not possible"),
        (["SELECT 1", runs / "nothing"], "no such folder"),
        (["SELECT 1", run / "spool"], "holds no autotrace run"),
    ):
        done = call("sql", *words)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert says in done.stderr


def test_what_a_model_wrote_is_escaped(call: Call, runs: Path) -> None:
    folder = new_run(runs, "20261122-000000-aaaaaa")
    process = Process(folder)
    trajectory(process, uid="\x1b]0;owned\x07[red]")
    process.exit()
    shown = call("sql", 'SELECT uid AS "\x1b[2J" FROM trajectories').output
    assert "\\x1b]0;owned\\x07[red]" in shown and "\x1b" not in shown


def test_columns_of_one_name_are_all_there(call: Call, run: Path) -> None:
    joined = "trajectories a JOIN turns b USING (trace_id)"
    query = f"SELECT a.step, b.step, sum(b.turn), sum(b.turn) FROM {joined} GROUP BY 1, 2"
    names = ["step", "step_1", "sum(b.turn)", "sum(b.turn)_1"]
    assert next(csv.reader(call("sql", query, "--csv").output.splitlines())) == names
    assert list(json.loads(call("sql", query, "--json").output.splitlines()[0])) == names


def test_json_without_numbers_that_json_lacks(call: Call, run: Path) -> None:
    assert call("sql", "SELECT 'nan'::DOUBLE AS x", "--json").output == '{"x": "nan"}\n'


@pytest.mark.parametrize("query", [
    "SELECT * FROM range(1000000000)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
])  # fmt: skip
def test_a_question_without_end_takes_no_memory_and_can_be_interrupted(query: str, run: Path) -> None:
    command = [sys.executable, "-m", "autotrace", "sql", query, str(run), "--json"]
    asked = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    ticks = 0
    while ticks < 4 * os.sysconf("SC_CLK_TCK"):  # of CPU: a second to start, then the question
        assert asked.poll() is None, asked.communicate()
        time.sleep(0.05)
        ticks = sum(map(int, Path(f"/proc/{asked.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    (most,) = (line for line in Path(f"/proc/{asked.pid}/status").read_text().splitlines() if "VmHWM" in line)
    asked.send_signal(signal.SIGINT)
    assert asked.communicate(timeout=60)[1].strip() == "Aborted!" and asked.returncode == 1
    assert int(most.split()[1]) < 500_000, most
