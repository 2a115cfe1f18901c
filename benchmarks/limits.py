"""What bounds delivery from outside: an MLflow server's own rate, and the cores that several processes use.

    python benchmarks/limits.py server [--trajectories 40] [--rounds 3]
    python benchmarks/limits.py shippers [--backend mlflow] [--trajectories 1600] [--rounds 3]

``server``: one server after the other, each fresh, gets the same requests from a client that has them ready, and from
the shipper. ``shippers``: the same spool with one process and with two; besides the clock, what each of them spends,
from which follows what they deliver on cores of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


from autotrace.run.info import RunInfo  # noqa: E402
from autotrace.ship.readers import of_run  # noqa: E402
from autotrace.sinks.mlflow import sink as sinks  # noqa: E402
from autotrace.sinks.mlflow.server import ServerStore  # noqa: E402
from benchmarks.spools import SERVERS, TURNS, Spools, spans, uri  # noqa: E402
from tests.mlflow_server import MlflowServer  # noqa: E402

SPANS = spans(1)
NEAR = 1.1
"""Times as long as the ready requests take, the shipper may."""
FASTER = 1.7
"""Times as much two processes deliver into MLflow's database, on cores of their own."""
FEW = 8
"""Trajectories of a run that tells what starting takes: each process gets some of them."""


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


def shippers(options: argparse.Namespace) -> int:
    """The rates with one and two processes; 1 if two deliver less than ``FASTER`` times as much, a core for each."""
    count = options.trajectories or 1_600
    used: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="autotrace-limits-") as name:
        spools = Spools(Path(name))
        for number in range(options.rounds):
            for processes, each in used.items():
                folder = Path(name, f"{number}-{processes}")
                folder.mkdir()
                database = SERVERS[options.backend](folder) if options.backend in SERVERS else None
                try:
                    if database is not None:
                        database.start()
                    backend, where = options.backend.split()[0], uri(database, str(folder))
                    each.append(_shipped(spools, folder, backend, where, processes, count))
                finally:
                    if database is not None:
                        database.stop()
                    shutil.rmtree(folder)
    print(f"{options.backend}, {count} trajectories of {SPANS} spans, {options.rounds} rounds, medians")
    total = spans(count)
    (one, own, _), (two, serial, dealt) = (tuple(map(statistics.median, zip(*used[n], strict=True))) for n in used)
    print(f"--shippers 1  {total / one:7.0f} spans/s, {own / total * 1e6:4.0f} us of CPU a span")
    print(
        f"--shippers 2  {total / two:7.0f} spans/s, {serial / total * 1e6:4.0f} us of the shipper's own, "
        f"{dealt / total * 1e6:4.0f} us dealt out"
    )
    print(f"by the clock, on {os.cpu_count()} cores: {one / two:.2f} times as much")
    gain = own / max(serial, dealt / 2)
    print(f"on cores of their own, by what each spends: {gain:.2f} times, {'met' if gain >= FASTER else 'NOT MET'}")
    return 0 if gain >= FASTER else 1


def _shipped(
    spools: Spools, folder: Path, backend: str, where: str, processes: int, count: int
) -> tuple[float, float, float]:
    """Seconds by the clock, of CPU of the shipper itself and of its delivery processes, without what starting takes."""
    runs = []
    for number, trajectories in enumerate((FEW, FEW, count)):
        run = spools.copy(folder / f"run{number}", backend, where, trajectories, TURNS)
        info = RunInfo.read(run)
        info.shippers = processes
        info.write(run)
        runs.append(run)
    _, fixed, used = delivered(runs)
    assert used["delivered"] == count, used
    wall, own, every = (used[name] - fixed[name] for name in ("wall_s", "own_cpu_s", "cpu_s"))
    return wall, own, every - own


def _all(values: list[float]) -> str:
    return f"({', '.join(f'{value:.0f}' for value in sorted(values))})"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    commands: dict[str, Callable[[argparse.Namespace], int]] = {"server": server, "shippers": shippers}
    parser.add_argument("what", choices=list(commands))
    parser.add_argument("--backend", default="mlflow", help="jsonl, mlflow, mlflow postgresql, parquet")
    parser.add_argument("--trajectories", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    return commands[options.what](options)


if __name__ == "__main__":
    raise SystemExit(main())
