"""The backend ``parquet`` and a server that speaks Google Cloud Storage's interface, through gcsfs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from autotrace.config import environment as env
from autotrace.ship.shipper import ship
from autotrace.tables.commits import FILE, snapshot
from tests.run_folder import recorded
from tests.waiting import DEADLINE

SERVER = """
import sys
from gcp_storage_emulator.server import create_server
server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="rollouts")
server.start()
print(server._api._httpd.server_address[1], flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket, which the environment makes everybody reach without credentials."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    assert process.stdin and process.stdout
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{process.stdout.readline().strip()}")
    # gcsfs asks over gRPC what kind of bucket it is, which takes a minute to fail here
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    monkeypatch.setitem(fsspec.config.conf, "gcs", {"token": "anon"})
    yield "gs://rollouts"
    process.stdin.close()
    process.wait(DEADLINE)


def test_a_run_goes_to_google_cloud_storage_and_is_read_from_there(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(env.TABLES, f"{bucket}/of/mine")
    folder = recorded(tmp_path, backends=["parquet"])
    assert ship(folder, once=True).state == "done"
    client, _ = fsspec.core.url_to_fs(bucket, skip_instance_cache=True, use_listings_cache=False)
    paths = client.find("rollouts/of/mine")
    at = f"rollouts/of/mine/proj/{folder.name}"
    assert {path.split("/")[6] for path in paths if "/tables/" in path} >= {"trajectories", "turns", "commits.jsonl"}
    there = snapshot(client.cat_file(f"{at}/tables/{FILE}"))
    assert {f"{at}/tables/{path}" for of in there.files.values() for path in of} <= set(paths)
