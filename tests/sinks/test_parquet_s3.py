"""The backend ``parquet`` and a server that speaks S3: another process, asked as users ask it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import polars as pl
import pytest
import s3fs
from click.testing import CliRunner
from starlette.testclient import TestClient

import autotrace
from autotrace.cli.main import main
from autotrace.config import environment as env
from autotrace.export.parquet import write
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.sinks.parquet.sink import ParquetSink
from autotrace.sinks.protocol import Refused, Unavailable
from autotrace.tables.commits import FILE, snapshot
from autotrace.tables.schema import OF_TRAJECTORIES
from autotrace.tables.writer import TableWriter
from autotrace.trajectory.model import Trajectory
from autotrace.view.app import application
from tests.http_server import QuietServer
from tests.places import ROOT, Place, installation, place  # noqa: F401 - fixtures
from tests.run_folder import recorded
from tests.sinks.rollouts import group, info
from tests.waiting import DEADLINE

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
Use = Callable[[str], s3fs.S3FileSystem]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of an S3 server."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    assert process.stdin and process.stdout
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.stdin.close()
    process.wait(DEADLINE)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """``use(url)``: the environment points there; a client of it."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "canary" * 7, "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    def point(url: str) -> s3fs.S3FileSystem:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        return s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)

    return point


@pytest.mark.long  # test_parquet_gs.py reads a bucket, too
def test_a_run_goes_to_s3_and_is_read_from_there(
    server: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = use(server)
    client.mkdir("rollouts")
    monkeypatch.setenv(env.TABLES, "s3://rollouts/of/mine")
    folder = recorded(tmp_path, backends=["parquet"])
    assert ship(folder, once=True).state == "done"
    at = f"rollouts/of/mine/proj/{folder.name}"
    assert client.find(f"{at}/tables/trajectories") and client.exists(f"{at}/run.json")
    options = {"aws_endpoint_url": server, "aws_access_key_id": "me", "aws_secret_access_key": "x",
               "aws_region": "us-east-1", "aws_allow_http": "true"}  # fmt: skip
    frame = pl.read_parquet(f"s3://{at}/tables/turns/*.parquet", storage_options=options)
    assert frame.filter("own").height == 16
    second = recorded(tmp_path, "20261122-000000-aaaaaa", backends=["parquet"])
    assert ship(second, once=True).state == "done"
    shutil.rmtree(second)
    lake = autotrace.open("s3://rollouts/of/mine")
    assert [run.run_id for run in lake] == [folder.name, second.name] and lake.steps() == [1, 2]
    here = autotrace.open(folder)
    assert lake[0].table("turns").num_rows == here.table("turns").num_rows == 16
    assert [one.trace_id for one in lake[0].trajectories(step=2)] == [one.trace_id for one in here.trajectories(step=2)]
    assert sum(one.facts["reward"] for one in lake.trajectories(where="step = 2")) == 3.0
    (shown,) = re.findall(r"^    autotrace sql (.*) s3://bucket/lake$", (ROOT / "docs/data.md").read_text(), re.M)
    asked = CliRunner().invoke(
        main, ["sql", *shlex.split(shown), "s3://rollouts/of/mine/", "--csv"], catch_exceptions=False
    )
    assert asked.output.splitlines()[1:] == [
        f"{run},{step},0.375" for run in (folder.name, second.name) for step in (1, 2)
    ]
    with TestClient(application("s3://rollouts/of/mine")) as page:
        assert {run["run"] for run in page.get("/api/runs").json()["runs"]} == {folder.name, second.name}
        trace = here.trajectories()[0].trace_id
        assert page.get(f"/api/runs/{folder.name}/traces/{trace}").json()["trace_id"] == trace
    told = CliRunner().invoke(main, ["status", f"s3://{at}"], catch_exceptions=False)
    assert told.exit_code == 2 and "what was bound and delivered is told in the run folder" in told.stderr
    for command in (["ls", "--json"], ["grep", "no answer", "--json"], ["steps", "--json"], ["diagnose", "--json"]):
        there, local = (CliRunner().invoke(main, [*command, path], catch_exceptions=False).stdout
                        for path in (f"s3://{at}", str(folder)))  # fmt: skip
        assert there.count("\n") == local.count("\n") > 0, command


def test_a_run_in_a_bucket_is_delivered_again(
    server: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = use(server)
    client.mkdir("once-more")
    monkeypatch.setenv(env.TABLES, "s3://once-more/lake")
    run = recorded(tmp_path, "one", backends=["parquet"])
    assert ship(run, once=True).state == "done"
    said = CliRunner().invoke(main, ["ship", "s3://once-more/lake/proj/one", "--backend", "jsonl"])
    assert said.exit_code == 2 and "copy it into a folder here and deliver from that" in said.stderr
    copied = tmp_path / "here" / "one"
    client.get("once-more/lake/proj/one/", str(copied), recursive=True)
    for _ in range(2):
        shipped = CliRunner().invoke(main, ["ship", str(copied), "--backend", "jsonl"], catch_exceptions=False)
        assert "jsonl: 9 delivered, 0 left" in shipped.stdout
    lines = list(map(json.loads, (copied / "trajectories.jsonl").read_text().splitlines()))
    assert {line["trace_id"] for line in lines} == {row.trace_id for row in of_run(run).select(roots=True)}


def test_what_is_no_lake_is_said_in_a_sentence(server: str, use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    client = use(server)
    client.mkdir("nothing")
    for url, says in (
        ("s3://nothing/x", "holds no autotrace run"),
        ("s3://nowhere-at-all", "s3://nowhere-at-all"),
        ("abfs://c/x", "adlfs"),
    ):
        done = CliRunner().invoke(main, ["sql", "SELECT 1", url], catch_exceptions=False)
        assert (done.exit_code, done.output.count("\n")) == (2, 1) and says in done.output, done.output


def test_runs_at_once_go_to_one_bucket(server: str, use: Use, place: Place) -> None:  # noqa: F811
    client = use(server)
    client.mkdir("lake")
    place.write("steps.py", "def step(number): return number\n")
    place.write("spec.yaml", "- {target: steps.step, role: trajectory}\n")
    program = ["python", "-c", "import steps; steps.step(1)"]
    options = ["--spec", "spec.yaml", "--tables", "s3://lake/"]
    with ThreadPoolExecutor() as threads:
        ended = list(threads.map(lambda _: place.launch(program, options), range(2)))
    assert [done.returncode for done in ended] == [0, 0], ended[0].stderr
    assert all("1 trajectory to jsonl" in done.stderr for done in ended), ended[0].stderr
    assert all("parquet (s3://lake)" in done.stderr for done in ended), ended[0].stderr
    found = {path.split("/")[2] for path in client.glob("lake/*/*/tables/trajectories/*.parquet")}
    assert found == {run.name for run in place.runs()} and len(found) == 2


def prepared(folder: Path, *batches: list[Trajectory]) -> ParquetSink:
    """The sink of a run that has tables of these."""
    run = folder / "20261121-1"
    run.mkdir(exist_ok=True)
    info(project="p").write(run)
    for batch in batches:
        TableWriter(run, "20261121-1").write(batch)
    return ParquetSink(info(project="p"), run, {})


def test_commits_are_there_whole_and_what_was_merged_goes(
    server: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = use(server)
    client.mkdir("again")
    monkeypatch.setenv(env.TABLES, "s3://again")
    prepared(tmp_path, group(3)).deliver(())
    sink = prepared(tmp_path, group(4))
    sink.deliver(())
    at = "again/p/20261121-1/tables"
    there = snapshot(client.cat_file(f"{at}/{FILE}"))
    assert len(there.files["trajectories"]) == 2
    client.pipe_file(f"{at}/turns/000099.parquet", b"what a killed shipper copied")
    TableWriter(tmp_path / "20261121-1", "20261121-1").finish()
    other = prepared(tmp_path)
    other.deliver(())
    there = snapshot(client.cat_file(f"{at}/{FILE}"))
    assert sorted(client.find(at)) == sorted(
        [f"{at}/{FILE}", *(f"{at}/{path}" for of in there.files.values() for path in of)]
    )
    with pytest.raises(Refused, match="another run called 20261121-1"):
        info(project="p", created="2025-01-01").write(tmp_path / "20261121-1")
        ParquetSink(info(project="p", created="2025-01-01"), tmp_path / "20261121-1", {}).deliver(())


def test_an_export_to_s3(server: str, use: Use, tmp_path: Path) -> None:
    client = use(server)
    client.mkdir("exported")
    for _ in range(2):
        written = write(iter([*group(3), *group(4)]), "s3://exported/run")
        assert (written.trajectories, written.files) == (4, len(OF_TRAJECTORIES))
    assert len(client.find("exported/run")) == len(OF_TRAJECTORIES) + 1


def test_a_bucket_that_is_not_there(server: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server)
    monkeypatch.setenv(env.TABLES, "s3://nowhere/x")
    with pytest.raises(Refused, match=r"^cannot write to s3://nowhere/x: .*; create the bucket first$"):
        prepared(tmp_path, group(3)).deliver(())


class Overloaded(BaseHTTPRequestHandler):
    """Answers 503 to whatever would write."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b'<?xml version="1.0"?><ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>'
                     if "list-type" in self.path else b"", missing="list-type" not in self.path)  # fmt: skip

    def do_HEAD(self) -> None:
        self._answer(404, b"")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(
            503, b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"
        )

    do_POST = do_DELETE = do_PUT

    def _answer(self, status: int, body: bytes, missing: bool = False) -> None:
        if missing:
            status, body = 404, b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_server_that_is_overloaded(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = QuietServer(Overloaded)
    server.start()
    use(server.url)
    monkeypatch.setenv(env.TABLES, "s3://busy/x")
    sink = prepared(tmp_path, group(3))
    with pytest.raises(Unavailable, match=r"^cannot write to s3://busy/x: .*[Rr]educe your") as caught:
        sink.deliver(())
    assert "\n" not in str(caught.value) and "canary" not in str(caught.value)
    sink.close()
    server.shutdown()
    server.server_close()
    assert threading.active_count() < 50
