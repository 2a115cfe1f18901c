"""What ``CONTRIBUTING.md`` says of how little a new thing takes: each is added to a copy of the package, and taken out
again. ``tests/browser/test_newcomer.py`` adds a column of the page."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.package_copy import Copy
from tests.run_folder import recorded
from tests.ship.spools import Process

COMPARE = '    "compare": ("autotrace.cli.compare", "compare"),\n'
TRAJECTORIES = "autotrace/tables/trajectories.py"
LONGEST = """\
    Column("longest_call", "int64", "ns of its longest call", head="longest", tag=True,
           of=lambda one: max(call.span.duration_ns or 0 for call in one.spans)),
"""
SHORT = '"AT-SHORT": 1.0, '
PASSES = """\
    _fact("passes", "int64", "tests that its answer passes", head="passes", tag=True),
    _fact("solved", "bool", "it passes all"),
"""
COUNTED = """\
import json, sys
from click.testing import CliRunner
from autotrace.cli.main import main
from autotrace.ship.live import Live

loaded, load = [], Live.load
Live.load = lambda self, trace_id, **more: loaded.append(trace_id) or load(self, trace_id, **more)
done = CliRunner().invoke(main, sys.argv[1:], catch_exceptions=False)
print(json.dumps([done.stdout, len(loaded)]))
"""
"""Runs a command, and counts the trajectories that it assembles."""
SHOWN = """\
import json, sys
from contextlib import closing
from pathlib import Path
from autotrace.ship.readers import of_run
from autotrace.sinks.mlflow.info import tags_of
from autotrace.view import columns

with closing(of_run(Path(sys.argv[1]))) as reader:
    print(json.dumps([tags_of(reader.load(sys.argv[2])), columns.names(reader)["numbers"]]))
"""
"""Prints the tags of a trajectory in MLflow, and the numbers that the page offers."""
BACKEND = '''\
"""The descriptor of the backend ``ids``."""

from autotrace.sinks.backend import Backend


class IdsBackend(Backend):
    """See ``Backend``."""

    name = "ids"
    summary = "the ids in a file of the run folder"

    def make(self, info, run_folder, memory):
        """See ``Backend``."""
        from autotrace.sinks.ids.sink import IdsSink

        return IdsSink(run_folder)


BACKEND = IdsBackend()
'''
SINK = '''\
"""The sink of the backend ``ids``."""

from autotrace.sinks.protocol import Sink


class IdsSink(Sink):
    """See ``Sink``."""

    name, sent = "ids", 0

    def __init__(self, run_folder):
        self.path = run_folder / "ids.txt"

    def deliver(self, trajectories):
        """See ``Sink``."""
        with self.path.open("a") as file:
            file.writelines(f"{one.trace_id}\\n" for one in trajectories)
'''


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """A copy of the package that may be changed."""
    return Copy(tmp_path / "copy").make()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run, of which nothing was delivered."""
    return recorded(tmp_path, backends=["mlflow"])


def counted(copy: Copy, *words: object) -> tuple[str, int]:
    """What a command prints, and how many trajectories it assembles."""
    printed, loaded = json.loads(copy.python("-c", COUNTED, *words))
    return printed, loaded


def later(folder: Path, *facts: tuple[str, Any, str]) -> None:
    """Another process says something: name of a fact, its value, the trajectory."""
    number = next(number for number in range(2, 9) if not list(folder.glob(f"spool/node-{number}-*")))
    process = Process(folder, f"node-{number}-bb", run_id=folder.name)
    process.at *= number
    for name, value, trace_id in facts:
        process.fact(name, value, bytes.fromhex(trace_id))
    process.exit()


def test_a_field_of_a_trajectory_is_one_column(copy: Copy, folder: Path) -> None:
    copy.insert(TRAJECTORIES, '    _fact("num_turns"', LONGEST)
    copy.ship(folder)
    listed = copy.rows("ls", folder)
    assert len(listed) == 8 and all(row["longest_call"] > 0 for row in listed)
    assert "longest" in copy.autotrace("ls", folder)
    most = max(row["longest_call"] for row in listed)
    found = copy.rows("ls", folder, "--where", f"longest_call = {most}", "--sort", "longest_call")
    assert found and {row["longest_call"] for row in found} == {most}
    assert copy.rows("sql", "SELECT max(longest_call) AS most FROM trajectories", folder) == [{"most": most}]
    tags, numbers = json.loads(copy.python("-c", SHOWN, folder, listed[0]["trace_id"]))
    assert int(tags["longest_call"]) == listed[0]["longest_call"] and "longest_call" in numbers


@pytest.mark.long
def test_ls_of_a_run_that_is_in_no_table_yet_assembles_nothing_for_it(copy: Copy, folder: Path) -> None:
    without, _ = counted(copy, "ls", folder)
    copy.insert(TRAJECTORIES, '    _fact("num_turns"', LONGEST + PASSES)
    assert counted(copy, "ls", folder) == (without, 0)
    printed, loaded = counted(copy, "ls", folder, "--json")
    assert loaded == 0 and [json.loads(line)["longest_call"] for line in printed.splitlines()] == [None] * 8
    printed, loaded = counted(copy, "ls", folder, "--json", "--where", "longest_call > 0")
    assert loaded and all(json.loads(line)["longest_call"] > 0 for line in printed.splitlines())
    assert len(printed.splitlines()) == 8, "a question about it is answered"
    assert copy.rows("sql", "SELECT count(longest_call) AS known FROM trajectories", folder) == [{"known": 8}]


@pytest.mark.long
def test_a_release_without_it_reads_the_tables_that_have_it(copy: Copy, folder: Path) -> None:
    copy.insert(TRAJECTORIES, '    _fact("num_turns"', LONGEST + PASSES)
    first, *_ = copy.rows("ls", folder)
    later(folder, ("passes", 7, first["trace_id"]))
    copy.ship(folder)
    with_it = copy.rows("ls", folder)
    copy.make()
    (table,) = (folder / "tables" / "trajectories").glob("*.parquet")
    assert {"longest_call", "passes"} <= set(pq.read_schema(table).names)
    without = [
        {name: value for name, value in row.items() if name not in ("longest_call", "passes")} for row in with_it
    ]
    assert copy.rows("ls", folder) == without
    assert "there is no column" in copy.autotrace("ls", folder, "--where", "passes = 7", code=2)
    assert "longest_call" in copy.autotrace("sql", "SELECT longest_call FROM trajectories", folder, code=2)
    later(folder, ("reward", 0.75, first["trace_id"]))
    copy.ship(folder)  # which makes one file of those with it and those without
    rewards = {row["trace_id"]: row["reward"] for row in copy.rows("ls", folder)}
    assert len(rewards) == 8 and rewards[first["trace_id"]] == 0.75


@pytest.mark.long
def test_a_fact_is_one_column(copy: Copy, folder: Path) -> None:
    first, second, *_ = copy.rows("ls", folder)
    later(folder, ("passes", 7, first["trace_id"]), ("solved", False, first["trace_id"]))
    copy.insert(TRAJECTORIES, '    _fact("num_turns"', PASSES)

    def is_told(passes: int, of: str) -> None:
        wanted = f"passes = {passes}"
        ids = [row["trace_id"] for row in copy.rows("ls", folder, "--where", wanted)]
        asked = copy.rows("sql", f"SELECT trace_id FROM trajectories WHERE {wanted}", folder)
        assert ids == [row["trace_id"] for row in asked] == [of]
        assert {row["trace_id"]: row["passes"] for row in copy.rows("ls", folder)}[of] == passes
        printed, loaded = counted(copy, "ls", folder)
        assert re.search(r"\bpasses\b", printed) and loaded == 0

    is_told(7, first["trace_id"])  # from the segments
    copy.ship(folder)
    is_told(7, first["trace_id"])  # from the row of the tables
    later(
        folder, ("passes", 8, first["trace_id"]), ("passes", 9, second["trace_id"]), ("solved", True, first["trace_id"])
    )
    is_told(9, second["trace_id"])
    copy.ship(folder)
    is_told(8, first["trace_id"])  # from the facts, which came after the rows were written
    is_told(9, second["trace_id"])
    solved = copy.rows("ls", folder, "--where", "solved")
    assert [row["trace_id"] for row in solved] == [first["trace_id"]], "it was not, at first"
    with closing(sqlite3.connect(folder.parent / "mlflow.db")) as database:
        tags = database.execute("SELECT request_id, value FROM trace_tags WHERE key = 'passes'").fetchall()
    assert dict(tags) == {f"tr-{first['trace_id']}": "8", f"tr-{second['trace_id']}": "9"}


def test_a_backend_is_two_files(copy: Copy, tmp_path: Path) -> None:
    """Its entry point, which ``tests/sinks/test_registry.py`` wants, is for installed packages."""
    for name, text in {"__init__": "", "backend": BACKEND, "sink": SINK}.items():
        copy.write(f"autotrace/sinks/ids/{name}.py", text)
    folder = recorded(tmp_path, backends=["ids"])
    copy.ship(folder)
    rows = copy.rows("ls", folder)
    delivered = (folder / "ids.txt").read_text().splitlines()
    assert len(rows) == 8 and {row["trace_id"] for row in rows} < set(delivered)
    assert "ids (the ids in a file of the run folder)" in " ".join(
        copy.python("-m", "autotrace.launch.main", "--help").split()
    )
    copy.make()
    assert copy.rows("ls", folder) == rows, "a run can be read where its backend is gone"


def test_a_command_is_a_module_and_a_line(copy: Copy, folder: Path) -> None:
    copy.write(
        "autotrace/cli/count.py",
        '"""``autotrace count``."""\n\nimport click\n\nfrom autotrace.cli import runs\n\n\n'
        '@click.command(short_help="Count the trajectories of a run.")\n@runs.argument\n'
        "def count(named: tuple[str, ...]) -> None:\n"
        '    """Count the trajectories of a run."""\n    click.echo(runs.reader(named).count())\n',
    )
    copy.insert("autotrace/cli/main.py", COMPARE, COMPARE.replace("compare", "count"))
    assert copy.autotrace("count", folder) == "8\n"
    assert "Count the trajectories" in copy.autotrace("--help")
    copy.make()
    assert "count" in copy.autotrace("count", folder, code=2)


@pytest.mark.long
def test_a_finding_is_a_function_and_its_page(copy: Copy, folder: Path) -> None:
    family = "autotrace/insight/families/responses.py"
    copy.insert(family, '"AT-MASK-EMPTY": 1.0,', SHORT)
    copy.insert(
        family, "def masks(", 'def short(evidence: Evidence) -> Iterator[Mark]:\n    """Of one turn."""\n'
        '    if len(evidence.turns) == 2:\n        yield Mark("AT-SHORT", 2)\n\n\n',
    )  # fmt: skip
    copy.write(family, copy.read(family).replace("OF_TRAJECTORY = (", "OF_TRAJECTORY = (short, "))
    page = copy.read("docs/findings/AT-REPETITION.md")
    page = page.replace("AT-REPETITION", "AT-SHORT").replace("Answers end in a loop.", "Trajectories are short.")
    copy.write("docs/findings/AT-SHORT.md", page)
    copy.ship(folder)
    said = copy.autotrace("diagnose", folder, "--code", "AT-SHORT")
    assert "trajectories are short" in said.lower()
    rows = copy.rows("ls", folder, "--where", "finding = 'AT-SHORT'")
    assert len(rows) == 8
    copy.make()
    assert copy.rows("ls", folder) == rows and "AT-SHORT" in copy.autotrace("diagnose", folder), "it stays in its run"


@pytest.mark.long
def test_make_pages_writes_what_pages_say_of_them(copy: Copy) -> None:
    copy.insert(TRAJECTORIES, '    _fact("num_turns"', LONGEST)
    family = "autotrace/insight/families/responses.py"
    copy.insert(family, '"AT-MASK-EMPTY": 1.0,', SHORT)
    page = copy.read("docs/findings/AT-REPETITION.md")
    copy.write("docs/findings/AT-SHORT.md", page.replace("AT-REPETITION", "AT-SHORT"))
    before = {name: copy.read(name) for name in ("README.md", "docs/commands.md", "docs/data.md", "docs/findings.md")}
    assert copy.python("-m", "tools.pages").split() == list(before)
    assert "| `longest_call` | int64 | ns of its longest call |\n" in copy.read("docs/data.md")
    assert "`longest_call`" in copy.read("docs/commands.md")
    assert "[AT-SHORT](findings/AT-SHORT.md)" in copy.read("docs/findings.md")
    counts = [set(re.findall(r"(\d+) \[?findings\b", text)) for text in (before["README.md"], copy.read("README.md"))]
    assert [int(one) + 1 for one in counts[0]] == [int(one) for one in counts[1]] and len(counts[0]) == 1
    assert copy.python("-m", "tools.pages", "--check") == ""
    (copy.folder / "docs" / "findings" / "AT-SHORT.md").unlink()
    for path in (TRAJECTORIES, family):
        copy.write(path, copy.read(path).replace(LONGEST, "").replace(SHORT, ""))
    assert copy.python("-m", "tools.pages").split() == list(before)
    assert {name: copy.read(name) for name in before} == before
