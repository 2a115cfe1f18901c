"""Whoever made a run folder, a file of lines or a folder of tables: each command that reads writes nothing, runs
nothing, follows no link, asks no address, sends nothing to a terminal but text, and costs in proportion to what it
reads.
"""

from __future__ import annotations

import http.server
import json
import os
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotrace.export import conversation
from autotrace.run import layout
from autotrace.tables import commits
from autotrace.trajectory.markup import prompt_messages, response_message
from autotrace.view.detail import message_item
from tests.security import hostile, reading

TOKEN = "the-readers-own-token"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the reader's."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("secret", "vocab.json", "merges.txt"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The current directory."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(("name", "part"), reading.parts(hostile.PLACES, [*hostile.PLACES][::7]))
def test_reading_does_nothing_else(name: str, part: tuple[int, bool], theirs: Path, mine: Path, here: Path) -> None:
    place = hostile.PLACES[name](theirs, mine)
    before = None if "hole" in name or "no_end" in name else reading.files_of(theirs)
    reads, ships = reading.writing(reading.part_of(reading.commands(place), part))
    answers = reading.run(reads, here, mine)
    assert answers and not reading.faults(answers)
    if before is not None:
        assert reading.files_of(theirs) == before
    was = reading.files_of(mine)
    if (place / layout.RUN_JSON).exists():  # last: it may write into the run folder
        assert not reading.faults(reading.run(ships, here, mine))
        assert reading.files_of(mine) == was


def test_a_hostile_place_is_still_read(theirs: Path, mine: Path, here: Path) -> None:
    """What stands beside what is refused is shown: the checks above would pass if nothing were read at all."""
    place = hostile.PLACES["link_rest"](theirs, mine)
    (listed,) = reading.run([["ls", str(place)]], here, mine)
    assert listed["code"] == 0 and "abababababab" in listed["out"], listed


class Server(http.server.ThreadingHTTPServer):
    """An address that a run folder names; notes who came, and with which credentials."""

    def __init__(self) -> None:
        self.came: list[str] = []
        came = self.came

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                came.append(f"{self.path} {self.headers.get('Authorization')}")
                self.send_error(404)

            do_POST = do_HEAD = do_PUT = do_GET

            def log_message(self, *_: object) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("where", ["run.json", "record", "state"])
def test_credentials_go_to_no_address_that_the_folder_names(
    where: str, theirs: Path, mine: Path, here: Path, server: Server
) -> None:
    given = {"tracking_uri": server.address} if where == "run.json" else {}
    run, process = hostile.honest(theirs, **given)
    if where == "record":
        process.bind("mlflow", run_id="r", experiment_id="1", tracking_uri=server.address)
    process.exit()
    if where == "state":
        reading.run([["ship", str(run)]], here, mine)
        import sqlite3

        with sqlite3.connect(run / layout.STATE_DB) as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('backend:mlflow:place', ?)", (server.address,))
        db.close()
    every = [*reading.commands(run, ships=False), ["ship", str(run), "--backend", "mlflow"]]
    answers = reading.run(every, here, mine, MLFLOW_TRACKING_TOKEN=TOKEN)
    assert not reading.faults(answers) and not server.came
    assert f"--tracking-uri {server.address}" in answers[-1]["out"] + answers[-1]["err"]
    reading.run([["ship", str(run), "--tracking-uri", server.address]], here, mine, MLFLOW_TRACKING_TOKEN=TOKEN)
    assert any(TOKEN in came for came in server.came)  # a person said so


@pytest.mark.parametrize("named", [False, True])
def test_a_pattern_of_the_folder_runs_only_if_a_person_names_it(
    named: bool, theirs: Path, mine: Path, here: Path
) -> None:
    run, process = hostile.honest(theirs)
    hostile.with_tokenizer(run)
    process.bind("tokenizer", path="theirs/model", blob="theirs")
    process.exit()
    plan = {"version": 1, "targets": [], "settings": {"redact_patterns": ["a11"]}, "digest": ""}
    (run / layout.PLAN_JSON).write_text(json.dumps(plan))
    environ = {"AUTOTRACE_REDACT_PATTERNS": "a11"} if named else {}
    (shown,) = reading.run([["show", "ab", str(run), "--full"]], here, mine, **environ)
    assert "a11" not in shown["out"]
    assert ("a10" in shown["out"], "AUTOTRACE_REDACT_PATTERNS" in shown["out"]) == (named, not named), shown


def test_a_wheel_costs_what_it_holds(theirs: Path, mine: Path, here: Path) -> None:
    wheel = hostile.wheel_that_expands(theirs)
    (here / "list.yaml").write_text("- theirs.m1.f\n")
    (checked,) = reading.run([["check", "list.yaml", "--wheel", str(wheel)]], here, mine)
    assert not reading.faults([checked]) and "times its size" in checked["err"], checked


@pytest.mark.parametrize("value", ["not " * 200_000 + "1", "-" * 90_000 + "1", "(" * 99_999 + ")" * 99_999,
                                   "a" + ".a" * 50_000, "1" + "+1" * 200_000, "\0"])  # fmt: skip
def test_a_source_that_is_nested_is_told_in_a_sentence(value: str, theirs: Path, mine: Path, here: Path) -> None:
    (here / "program.py").write_text(f"x = {value}\nclass Agent:\n    def run(self): ...\n")
    with zipfile.ZipFile(here / "theirs-1.0-py3-none-any.whl", "w") as archive:
        archive.write(here / "program.py", "theirs/program.py")
        archive.writestr("theirs-1.0.dist-info/METADATA", "Name: theirs\nVersion: 1.0\n")
    (here / "list.yaml").write_text("- theirs.program.Agent.run\n")
    every = [["init", "program.py", "--out", "-"], ["check", "list.yaml", "--wheel", "theirs-1.0-py3-none-any.whl"]]
    answers = reading.run(every, here, mine)
    assert not any("Traceback" in one["err"] or "this is a bug" in one["err"] or one["code"] < 0 for one in answers), (
        answers
    )


def test_a_long_range_of_versions_is_refused_at_once(theirs: Path, mine: Path, here: Path) -> None:
    (here / "list.yaml").write_text(f"- {{target: json.dumps, versions: 'verl{'>=0.5,' * 30_000}>=1'}}\n")
    (checked,) = reading.run([["check", "list.yaml"]], here, mine)
    assert checked["code"] and checked["seconds"] < 5, checked


def test_a_path_that_a_person_typed_may_be_a_link(theirs: Path, mine: Path, here: Path) -> None:
    run, process = hostile.honest(theirs)
    process.exit()
    (here / "link").symlink_to(run)
    lines = here / "stored.jsonl"
    lines.symlink_to(hostile.PLACES["lines_obeyed"](theirs, mine))
    ls, view = reading.run([["ls", "link"], ["view", "stored.jsonl", "--export", "page.html"]], here, mine)
    assert ls["code"] == view["code"] == 0 and "abababababab" in ls["out"], (ls, view)
    assert os.path.getsize(here / "page.html")


@pytest.mark.parametrize("kind", ["project", "lines", "root"])
def test_ship_touches_nothing_beside_the_parquet_files_of_the_run(
    kind: str, theirs: Path, mine: Path, here: Path
) -> None:
    run, process = hostile.honest(theirs, backends=["parquet"])
    process.exit()
    place = theirs / "parquet"
    if kind == "root":
        place.symlink_to(mine)
    elif kind == "project":
        place.mkdir()
        (place / "no-project").symlink_to(mine)
    else:
        (run / "tables").mkdir()
        elsewhere = "spans/../../../../mine/secret.parquet"
        line = commits.Commit(1, 1, {"spans": commits.Added(elsewhere[6:], 1, 1)}, [elsewhere]).line()
        (run / "tables" / "commits.jsonl").write_bytes(line)
    was = reading.files_of(mine)
    (shipped,) = reading.run([["ship", str(run)]], here, mine)
    assert reading.files_of(mine) == was and "Traceback" not in shipped["err"], shipped
    assert kind == "lines" or shipped["code"], shipped


def test_ship_copies_nothing_to_a_place_that_the_folder_names(theirs: Path, mine: Path, here: Path) -> None:
    run, process = hostile.honest(theirs, backends=["parquet"], tables=str(mine / "lake"))
    process.exit()
    (shipped,) = reading.run([["ship", str(run)]], here, mine)
    assert shipped["code"] and f"--tables {mine / 'lake'}" in shipped["out"] + shipped["err"], shipped
    assert not (mine / "lake").exists()
    (shipped,) = reading.run([["ship", str(run), "--tables", str(mine / "lake")]], here, mine)
    assert not shipped["code"] and list((mine / "lake").glob("*/*/run.json")), shipped  # a person said so


@pytest.mark.parametrize("begin", ["", "<tool_call>", "<tool_response>", "# Tools\n<tools>", "<think>"])
def test_texts_are_read_in_time(begin: str) -> None:
    """Expressions over a model's text go through it once."""
    for text in (begin + " " * 100_000 + "x", (begin + "\n") * 10_000 + "x"):
        began = time.process_time()
        prompt_messages(text)
        response_message(text)
        message_item({"role": "assistant", "content": text})
        conversation._written(text)
        conversation._offered([{"role": "system", "content": text}])
        assert time.process_time() - began < 2
