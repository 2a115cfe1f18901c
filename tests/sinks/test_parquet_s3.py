"""The backend ``parquet`` and a server that speaks S3: another process, asked as users ask it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import polars as pl
import pytest
import s3fs

import autotrace
from autotrace.export.parquet import write
from autotrace.ship.shipper import ship
from autotrace.sinks.parquet.location import VARIABLE
from autotrace.sinks.parquet.sink import ParquetSink
from autotrace.sinks.parquet.store import ABANDONED, PART, PARTS
from autotrace.sinks.protocol import Refused, Unavailable
from autotrace.tables.schema import OF_TRAJECTORIES
from tests.http_server import QuietServer
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


def test_a_run_goes_to_s3_and_is_read_from_there(
    server: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = use(server)
    client.mkdir("rollouts")
    monkeypatch.setenv(VARIABLE, "s3://rollouts/of/mine")
    folder = recorded(tmp_path, backends=["parquet"])
    assert ship(folder, once=True).state == "done"
    paths = client.find("rollouts/of/mine/trajectories")
    assert [path.split("/")[3:6] for path in paths] == [["trajectories", "proj", folder.name]] * 2
    options = {"aws_endpoint_url": server, "aws_access_key_id": "me", "aws_secret_access_key": "x",
               "aws_region": "us-east-1", "aws_allow_http": "true"}  # fmt: skip
    frame = pl.read_parquet("s3://rollouts/of/mine/turns/**/*.parquet", storage_options=options)
    assert frame.height == 16
    monkeypatch.delenv(VARIABLE)
    answer = autotrace.open(folder).sql("SELECT step, avg(reward) AS mean FROM trajectories GROUP BY ALL ORDER BY ALL")
    assert answer.to_pylist() == [{"step": 1, "mean": 0.375}, {"step": 2, "mean": 0.375}]
    assert not list(tmp_path.rglob("*.parquet"))


def test_what_is_delivered_again_replaces_itself(
    server: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = use(server)
    client.mkdir("again")
    monkeypatch.setenv(VARIABLE, "s3://again")
    ones = group(3)
    ParquetSink(info(), tmp_path, {}).deliver(ones)
    ones[0].facts["advantage"] = 0.5
    sink = ParquetSink(info(), tmp_path, {})
    sink.deliver(ones)
    sink.close()
    (path,) = client.find("again/trajectories")
    with client.open(path) as file:
        assert pl.read_parquet(file.read())["advantage"].to_list() == [0.5, None]
    assert [len(client.find(f"again/{table}")) for table in ("turns", "spans", "facts")] == [1, 1, 1]
    with pytest.raises(Refused, match="another run called 20261121-1"):
        ParquetSink(info(created="2025-01-01"), tmp_path, {}).deliver(ones)


def test_no_text_stays_on_this_machine(server: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what a shipper that was killed while it wrote has left, nor that of a sink that nobody closes."""
    use(server).mkdir("clean")
    monkeypatch.setenv(VARIABLE, "s3://clean")
    left = tmp_path / f"{PARTS}killed"
    left.mkdir()
    for name, age in (("old", 2 * ABANDONED), ("new", 0)):
        (left / f"{name}{PART}").touch()
        os.utime(left / f"{name}{PART}", times=(0, time.time() - age))
    ParquetSink(info(), tmp_path, {}).deliver(group(3))
    gc.collect()
    assert list(tmp_path.rglob(f"{PARTS}*")) == [left] and os.listdir(left) == [f"new{PART}"]


def test_an_export_to_s3(server: str, use: Use, tmp_path: Path) -> None:
    client = use(server)
    client.mkdir("exported")
    for _ in range(2):
        written = write(iter([*group(3), *group(4)]), "s3://exported/run")
        assert (written.trajectories, written.files) == (4, 2 * len(OF_TRAJECTORIES))
    assert len(client.find("exported/run")) == 2 * len(OF_TRAJECTORIES)


def test_a_bucket_that_is_not_there(server: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server)
    monkeypatch.setenv(VARIABLE, "s3://nowhere/x")
    with pytest.raises(Refused, match=r"^cannot write to s3://nowhere/x: .*; create the bucket first$"):
        ParquetSink(info(), tmp_path, {}).deliver(group(3))


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
    monkeypatch.setenv(VARIABLE, "s3://busy/x")
    sink = ParquetSink(info(), tmp_path, {})
    with pytest.raises(Unavailable, match=r"^cannot write to s3://busy/x: .*[Rr]educe your") as caught:
        sink.deliver(group(3))
    assert "\n" not in str(caught.value) and "canary" not in str(caught.value)
    sink.close()
    server.shutdown()
    server.server_close()
    assert threading.active_count() < 50 and os.listdir(tmp_path) == []
