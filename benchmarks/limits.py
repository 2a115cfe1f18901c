"""Measure the limit of delivery that an MLflow server sets: its own rate.

    python benchmarks/limits.py server [--trajectories 40] [--rounds 3]

``server``: one server after the other, each fresh, gets the same requests from a client that has them ready, and from
the shipper.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


from autotrace.run.info import RunInfo  # noqa: E402
from autotrace.ship.readers import of_run  # noqa: E402
from autotrace.sinks.mlflow import sink as sinks  # noqa: E402
from autotrace.sinks.mlflow.server import ServerStore  # noqa: E402
from benchmarks.spools import TURNS, Spools, spans  # noqa: E402
from tests.mlflow_server import MlflowServer  # noqa: E402

SPANS = spans(1)
NEAR = 1.1
"""Times as long as the ready requests take, the shipper may."""


class Recorder(httpx.BaseTransport):
    """Answers as an MLflow server does that takes everything, and keeps what it was sent."""

    def __init__(self, release: str) -> None:
        self.requests: list[httpx.Request] = []
        self._release = release

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See ``httpx``."""
        if request.url.path == "/version":
            return httpx.Response(200, text=self._release)
        if request.method == "GET":
            return httpx.Response(200, json={"experiment": {"experiment_id": "1", "lifecycle_stage": "active"}})
        self.requests.append(request)
        return httpx.Response(200, json={})


def ready(run: Path, release: str) -> list[httpx.Request]:
    """What the sink sends of all trajectories of ``run``."""
    recorder = Recorder(release)
    sink = sinks.MlflowSink(RunInfo.read(run), run)
    sink._store = ServerStore("http://127.0.0.1", httpx.Client(transport=recorder))
    reader = of_run(run)
    sink.deliver([reader.load(row.trace_id) for row in reader.select(roots=True)])
    return recorder.requests


def replayed(url: str, requests: list[httpx.Request]) -> float:
    """Seconds that the server at ``url`` takes for them."""
    with httpx.Client(timeout=60) as client:
        client.post(f"{url}/api/2.0/mlflow/experiments/create", json={"name": "bench"}).raise_for_status()
        _send(client, url, requests[:2])
        began = time.perf_counter()
        _send(client, url, requests)
        return time.perf_counter() - began


def _send(client: httpx.Client, url: str, requests: list[httpx.Request]) -> None:
    for request in requests:
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        client.request(request.method, url + request.url.path, content=request.content, headers=headers)\
            .raise_for_status()  # fmt: skip


def delivered(folders: list[Path]) -> list[dict[str, Any]]:
    """What the shipper takes for each of ``folders``, in one process."""
    command = [sys.executable, str(ROOT / "benchmarks/ship_program.py"), "real", *map(str, folders)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    answer: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["folders"]
    return answer


def server_rate(spools: Spools, folder: Path, trajectories: int) -> tuple[float, str]:
    """Spans a second that a fresh server in ``folder`` takes of requests that are ready; the release of MLflow."""
    folder.mkdir(parents=True)
    mlflow = MlflowServer(folder)
    try:
        mlflow.start()
        with httpx.Client() as client:
            release = client.get(f"{mlflow.url}/version").text
        run = spools.copy(folder / "run", "mlflow", mlflow.url, trajectories, TURNS)
        return spans(trajectories) / replayed(mlflow.url, ready(run, release)), release
    finally:
        mlflow.stop()


def server(options: argparse.Namespace) -> int:
    """Rates of the ready requests and of the shipper, in turns; 1 if the shipper is further away than ``NEAR``."""
    count = options.trajectories or 40
    bare, ours, cpu = [], [], []
    with tempfile.TemporaryDirectory(prefix="autotrace-limits-") as name:
        spools = Spools(Path(name))
        for number in range(options.rounds):
            folder = Path(name, str(number))
            rate, release = server_rate(spools, folder / "bare", count)
            bare.append(rate)
            (folder / "ours").mkdir()
            mlflow = MlflowServer(folder / "ours")
            try:
                mlflow.start()
                runs = [
                    spools.copy(folder / f"run{n}", "mlflow", mlflow.url, trajectories, TURNS)
                    for n, trajectories in enumerate((1, 1, count))
                ]
                _, fixed, used = delivered(runs)
            finally:
                mlflow.stop()
            assert used["delivered"] == count, used
            ours.append(spans(count - 1) / (used["wall_s"] - fixed["wall_s"]))
            cpu.append((used["cpu_s"] - fixed["cpu_s"]) / spans(count - 1) * 1e6)
    ratio = statistics.median(bare) / statistics.median(ours)
    print(f"MLflow {release}, {count} trajectories of {SPANS} spans, {options.rounds} rounds, medians")
    print(f"ready requests    {statistics.median(bare):8.0f} spans/s {_all(bare)}")
    print(f"shipper           {statistics.median(ours):8.0f} spans/s {_all(ours)}")
    print(f"shipper's CPU     {statistics.median(cpu):8.0f} us a span {_all(cpu)}")
    print(f"the limit is {ratio:.2f} times the shipper's rate: {'met' if ratio <= NEAR else 'NOT MET'} (goal {NEAR})")
    return 0 if ratio <= NEAR else 1


def _all(values: list[float]) -> str:
    return f"({', '.join(f'{value:.0f}' for value in sorted(values))})"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("what", choices=["server"])
    parser.add_argument("--trajectories", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    return server(parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
