"""What the shipper takes: CPU of a span and spans a second for each backend, from one spool that is complete when it
starts; how that grows with the turns; memory in front of a long backlog.

    python benchmarks/delivery.py [--backend jsonl,mlflow,...] [--against CHECKOUT] [--trajectories N] [--rounds N]

Each process delivers three folders: one trajectory, which imports everything; one more, which tells what a run costs
whatever is in it; then the spool, of which that is taken off. ``--against``: another checkout delivers the same spool,
in turns with this one. ``make bench BENCH="--only delivery --against CHECKOUT"`` runs it with the other scenarios.
CPU times stand there as measured and, like those of the other budgets, at reference speed: each folder's by what the
machine did just before and after it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from autotrace.run.info import RunInfo  # noqa: E402
from benchmarks.bench import Bench  # noqa: E402
from benchmarks.budgets import AT_REFERENCE, REFERENCE_NS  # noqa: E402
from tests.mlflow_server import MlflowServer  # noqa: E402
from tests.postgres import Postgres  # noqa: E402

Result = dict[str, Any]
CPU_AT_REFERENCE = f"cpu_us_per_span{AT_REFERENCE}"


@dataclasses.dataclass(frozen=True)
class Case:
    """A backend, and what it is to cost."""

    goal: float
    """Microseconds of the shipper's CPU a span, at 20 turns."""
    trajectories: int
    sink: str = "real"


CASES = {
    "assembled": Case(50, 400, "nowhere"),
    "jsonl": Case(80, 400),
    "parquet": Case(60, 400),
    "mlflow": Case(300, 60),
    "mlflow postgresql": Case(300, 100),
    "mlflow server": Case(200, 40),
    "weave": Case(250, 100),
}
"""*assembled*: indexed, put together and decoded, for a backend that takes no time."""
TURNS, MANY_TURNS = 20, 80
PROMPT, RESPONSE, TOOL = 1_000, 256, 32
"""Tokens: of the first prompt, of each response, of each tool's answer."""
LINEAR = 4.5
"""Times as much a trajectory of ``MANY_TURNS`` may cost as one of ``TURNS``."""
BACKLOG, BACKLOG_MB = 40_000, 256
"""Traces of one call each that wait, and what the shipper may take in front of them."""


class Spools:
    """Spools of each shape, recorded when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[int, int], Path] = {}

    def copy(self, to: Path, backend: str, uri: str, trajectories: int, turns: int) -> Path:
        """A run folder at ``to`` that nothing was delivered from."""
        made = self._made.get((trajectories, turns))
        if made is None:
            made = self._made[trajectories, turns] = self._folder / f"spool-{trajectories}-{turns}"
            made.mkdir(mode=0o700)
            sizes = [trajectories, turns, PROMPT, RESPONSE, TOOL]
            command = [sys.executable, "-m", "benchmarks.spool_program", str(made), *map(str, sizes)]
            subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
                           stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)  # fmt: skip
        shutil.copytree(made, to)
        info = RunInfo.read(to)
        info.backends, info.run_id = [backend], "bench"
        info.project = "dev/bench" if backend == "weave" else "bench"
        info.tracking_uri = uri if backend == "mlflow" else None
        info.write(to)
        return to


def shipped(
    bench: Bench, spools: Spools, where: str, checkout: Path, trajectories: int, turns: int, keep: Path | None = None
) -> Result:
    """What it took ``checkout`` to deliver so many trajectories to ``where``. Raises ``RuntimeError``.

    ``keep``: a folder for what JSON lines wrote.
    """
    backend = {"assembled": "jsonl"}.get(where, where.split()[0])
    with tempfile.TemporaryDirectory(prefix="autotrace-delivery-") as name:
        environ: Mapping[str, str] = {"PYTHONPATH": str(checkout), "MLFLOW_DISABLE_TELEMETRY": "true"}
        if backend == "weave":
            environ = {**environ, **bench.weave_environment(), "HOME": name}
        server = _SERVERS[where](Path(name)) if where in _SERVERS else None
        try:
            if server is not None:
                server.start()
            uri = _uri(server, name)
            counts = (1, 1, trajectories)
            folders = [
                spools.copy(Path(name, f"run{number}"), backend, uri, count, turns)
                for number, count in enumerate(counts)
            ]
            answer = _program(CASES[where].sink, folders, environ)
            if keep is not None:
                shutil.copy(folders[-1] / "trajectories.jsonl", keep)
        except AssertionError as error:
            raise RuntimeError(str(error)) from error
        finally:
            if server is not None:
                server.stop()
    if not answer["autotrace"].startswith(f"{checkout}/"):
        raise RuntimeError(f"{answer['autotrace']} was imported, which is not in {checkout}")
    _, fixed, used = answer["folders"]
    if used["state"] != "done" or used["delivered"] != trajectories:
        raise RuntimeError(f"{used['delivered']} of {trajectories} were delivered: {used['state']}, {used['error']}")
    spans = trajectories * (1 + 2 * turns)
    cpu = used["cpu_s"] - fixed["cpu_s"]
    bench.speeds.append(used["speed_ns"])
    return {
        "cpu_us_per_span": cpu * 1e6 / spans,
        CPU_AT_REFERENCE: (_scaled(used) - _scaled(fixed)) * 1e6 / spans,
        "spans_per_s": spans / max(1e-9, used["wall_s"] - fixed["wall_s"]),
        "peak_mb": used["peak_mb"],
        "start_cpu_s": fixed["cpu_s"],
        "spans": spans,
    }


def _scaled(folder: Result) -> float:
    """CPU seconds at the speed of the budgets."""
    return float(folder["cpu_s"] * REFERENCE_NS / folder["speed_ns"])


_SERVERS: dict[str, Callable[[Path], MlflowServer | Postgres]] = {
    "mlflow server": MlflowServer,
    "mlflow postgresql": lambda _: Postgres(),
}


def _uri(server: MlflowServer | Postgres | None, folder: str) -> str:
    if isinstance(server, Postgres):
        return server.uri("bench")
    return f"sqlite:///{folder}/mlflow.db" if server is None else server.url


def _program(sink: str, folders: Sequence[Path], environ: Mapping[str, str]) -> Result:
    command = [sys.executable, str(ROOT / "benchmarks" / "ship_program.py"), sink, *map(str, folders)]
    done = subprocess.run(
        command, env={**os.environ, **environ}, cwd=folders[0], capture_output=True, text=True, timeout=1200,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it ended"])[-1][:200])
    answer: Result = json.loads(lines[-1])
    return answer


def measured(bench: Bench, where: Sequence[str], against: Path | None, trajectories: int | None, rounds: int) -> Result:
    """A row for each of ``where``, then the linearity and the backlog of what takes no backend's time."""
    rows: Result = {}
    with tempfile.TemporaryDirectory(prefix="autotrace-spools-") as name:
        spools = Spools(Path(name))
        for backend in where:
            case = CASES[backend]
            number = trajectories or case.trajectories
            runs = _runs(bench, spools, backend, against, number, TURNS, rounds)
            if runs:
                row = {"goal_us": case.goal, **_middle(runs["now"])}
                rows[f"{backend}, {TURNS} turns"] = row | {"met": _met(row)} | _other(runs)
            if backend in ("assembled", "jsonl") and runs:
                many = _runs(bench, spools, backend, against, max(4, number // 4), MANY_TURNS, rounds)
                rows[f"{backend}, {MANY_TURNS} turns over {TURNS}, a trajectory"] = _linearity(runs, many)
        if "jsonl" in where:
            few = BACKLOG if trajectories is None else min(BACKLOG, 20 * trajectories)
            backlog = _runs(bench, spools, "jsonl", against, few, 0, 1)
            for version, each in backlog.items():
                one = each[0]
                rows[f"jsonl, {few} traces of one call{'' if version == 'now' else ', before'}"] = one | {
                    "met": "met" if one["peak_mb"] <= BACKLOG_MB else "not met"
                }
    return rows


def _met(row: Result) -> str:
    """As the verdicts of ``budgets`` have it."""
    if row["cpu_us_per_span"] <= row["goal_us"]:
        return "met"
    return "met at reference speed" if row[CPU_AT_REFERENCE] <= row["goal_us"] else "not met"


def _runs(
    bench: Bench, spools: Spools, where: str, against: Path | None, trajectories: int, turns: int, rounds: int
) -> dict[str, list[Result]]:
    """Version (``now``, ``before``) -> its rounds; nothing where the backend cannot be measured here."""
    checkouts = {"now": ROOT} | ({} if against is None else {"before": against})
    runs: dict[str, list[Result]] = {}
    for _ in range(rounds):
        for version, checkout in checkouts.items():
            try:
                runs.setdefault(version, []).append(shipped(bench, spools, where, checkout, trajectories, turns))
            except RuntimeError as error:
                if version == "now":
                    bench.missing[f"delivery, {where}"] = str(error)[:200]
                    return {}
                runs.pop(version, None)
                bench.missing[f"delivery, {where}, {version}"] = str(error)[:200]
                checkouts = {"now": ROOT}
                break
    return runs


def _middle(runs: Sequence[Result]) -> Result:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def _other(runs: Mapping[str, Sequence[Result]]) -> Result:
    if "before" not in runs:
        return {}
    before = _middle(runs["before"])
    return {
        "before_us": before["cpu_us_per_span"],
        f"before_us{AT_REFERENCE}": before[CPU_AT_REFERENCE],
        "before_spans_per_s": before["spans_per_s"],
    }


def _linearity(few: Mapping[str, Sequence[Result]], many: Mapping[str, Sequence[Result]]) -> Result:
    row: Result = {"goal_x": LINEAR}
    for version in many:
        if version in few:
            one, other = _middle(few[version]), _middle(many[version])
            spans = (1 + 2 * MANY_TURNS) / (1 + 2 * TURNS)
            row["x" if version == "now" else "before_x"] = other[CPU_AT_REFERENCE] * spans / one[CPU_AT_REFERENCE]
    row["met"] = "met" if row.get("x", LINEAR + 1) <= LINEAR else "not met"
    return row


def delivery(bench: Bench) -> Result:
    """The scenario of ``make bench``."""
    return measured(bench, _available(), bench.against, None, 1 if bench.short else 3)


def _available() -> list[str]:
    from autotrace.sinks import registry

    return [name for name in CASES if name == "assembled" or name.split()[0] in registry.names()]


def main() -> None:
    """The table, for one or some backends."""
    parser = argparse.ArgumentParser(description="CPU and throughput of the shipper.")
    parser.add_argument("--backend", default=",".join(_available()), help=f"some of {', '.join(CASES)}")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="deliver with this one, too")
    parser.add_argument("--trajectories", type=int, help="so many, instead of what suits the backend")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    where = options.backend.split(",")
    for name in where:
        if name not in CASES:
            parser.error(f"there is no backend {name!r} here; choose from {', '.join(CASES)}")
    bench = Bench(short=False)
    try:
        against = None if options.against is None else options.against.resolve()
        rows = measured(bench, where, against, options.trajectories, options.rounds)
    finally:
        bench.close()
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for name, row in rows.items():
        cells = (f"{key} {value:,.1f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        print(f"{name}\n    {', '.join(cells)}")
    for name, why in bench.missing.items():
        print(f"not measured: {name}: {why}")


if __name__ == "__main__":
    main()
