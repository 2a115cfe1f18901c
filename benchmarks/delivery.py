"""What the shipper takes: CPU of a span and spans a second for each backend, from one spool that is complete when it
starts; how that grows with the turns; memory in front of a long backlog.

    python benchmarks/delivery.py [--backend jsonl,mlflow,...] [--against CHECKOUT] [--trajectories N] [--rounds N]

Each process delivers three folders: one trajectory, which imports everything; one more, which tells what a run costs
whatever is in it; then the spool, of which that is taken off. The code before delivery was made faster
(``before.COMMITS``) delivers a part of the same spool, in turns with this one: *before* and *now* are of one run.
``--against CHECKOUT`` takes another one for it, ``--against none`` leaves the column out. ``make bench BENCH="--only
delivery"`` runs it with the other scenarios. CPU times stand there as measured and, like those of the other budgets,
at reference speed: each folder's by what the machine did just before and after it. ``delivery_rows`` has the goals.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import before, report  # noqa: E402
from benchmarks.bench import Bench  # noqa: E402
from benchmarks.budgets import AT_REFERENCE, REFERENCE_NS  # noqa: E402
from benchmarks.delivery_rows import ASSEMBLED, BACKLOG, CASES, backlog, cost, linearity  # noqa: E402
from benchmarks.spools import MANY_TURNS, SERVERS, TURNS, Spools, spans, uri  # noqa: E402

Result = dict[str, Any]
CPU_AT_REFERENCE = f"cpu_us_per_span{AT_REFERENCE}"
PART, LEAST = 4, 40
"""The code before takes many times as long, so it gets one of so many trajectories, but so many at least: from there on
what it takes is in proportion to them, of ten it is a fifth more."""


def shipped(bench: Bench, spools: Spools, where: str, checkout: Path, trajectories: int, turns: int) -> Result:
    """What it took ``checkout`` to deliver so many trajectories to ``where``. Raises ``RuntimeError``."""
    case = CASES[where]
    with tempfile.TemporaryDirectory(prefix="autotrace-delivery-") as name:
        environ: Mapping[str, str] = {"PYTHONPATH": str(checkout), "MLFLOW_DISABLE_TELEMETRY": "true"}
        if case.backend == "weave":
            environ = {**environ, **bench.weave_environment(), "HOME": name}
        server = None
        try:
            if where in SERVERS:
                server = SERVERS[where](Path(name))
                server.start()
            tracking_uri = uri(server, name)
            folders = [
                spools.copy(Path(name, f"run{number}"), case.backend, tracking_uri, count, turns)
                for number, count in enumerate((1, 1, trajectories))
            ]
            answer = _program(case.sink, folders, environ)
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
    more = spans(trajectories - 1, turns)
    bench.speeds.append(used["speed_ns"])
    return {
        "cpu_us_per_span": (used["cpu_s"] - fixed["cpu_s"]) * 1e6 / more,
        CPU_AT_REFERENCE: (_scaled(used) - _scaled(fixed)) * 1e6 / more,
        "spans_per_s": more / max(1e-9, used["wall_s"] - fixed["wall_s"]),
        "peak_mb": used["peak_mb"],
    }


def grown(bench: Bench, spools: Spools, where: str, checkout: Path, trajectories: int, turns: int) -> Result:
    """``x``: times as much as a trajectory of ``TURNS`` that one of ``turns`` costs. One is delivered right after the
    other: within minutes the machine's speed changes by more than what is looked for. Raises ``RuntimeError``."""
    many = shipped(bench, spools, where, checkout, min(trajectories, max(LEAST, trajectories // PART)), turns)
    few = shipped(bench, spools, where, checkout, trajectories, TURNS)
    return {"x": many["cpu_us_per_span"] * spans(1, turns) / (few["cpu_us_per_span"] * spans(1))}


def _scaled(folder: Result) -> float:
    """CPU seconds at the speed of the budgets."""
    return float(folder["cpu_s"] * REFERENCE_NS / folder["speed_ns"])


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
            few = _runs(bench, spools, backend, against, number, TURNS, rounds)
            if few:
                rows[backend] = cost(case, few["now"], few.get("before"))
            if few and backend == "mlflow server":
                rows[backend] |= _limit(bench, spools, number)
            if backend not in (ASSEMBLED, "jsonl"):
                continue
            if times := _runs(bench, spools, backend, against, number, MANY_TURNS, rounds, grown):
                title = f"{backend}, {MANY_TURNS} turns over {TURNS}, a trajectory"
                rows[title] = linearity(times["now"]["x"], times.get("before", {}).get("x"))
        if "jsonl" in where:
            count = BACKLOG if trajectories is None else min(BACKLOG, 20 * trajectories)
            for short in _runs(bench, spools, "jsonl", None, count, 0, 1).values():
                rows[f"jsonl, {count} traces of one call"] = backlog(short)
    return rows


def _runs(
    bench: Bench, spools: Spools, where: str, against: Path | None, trajectories: int, turns: int, rounds: int,
    measure: Callable[[Bench, Spools, str, Path, int, int], Result] = shipped,
) -> dict[str, Result]:  # fmt: skip
    """Version (``now``, ``before``) -> medians of its rounds; nothing where the backend cannot be measured here. The
    code before is measured between the rounds of this one."""
    runs: dict[str, list[Result]] = {}
    failed = False
    for version in _turns(rounds):
        if version == "now":
            what = where, ROOT, trajectories
        elif failed or against is None:
            continue
        else:
            what = CASES[where].before or where, against, min(trajectories, max(LEAST, trajectories // PART))
        try:
            runs.setdefault(version, []).append(measure(bench, spools, *what, turns))
        except RuntimeError as error:
            bench.missing[f"delivery, {where}, {version}"] = str(error)[:200]
            if version == "now":
                return {}
            runs.pop(version, None)
            failed = True
    return {version: _middle(each) for version, each in runs.items()}


def _turns(rounds: int) -> Iterator[str]:
    for number in range(rounds):
        yield "now"
        if number < max(1, rounds - 1):
            yield "before"


def _middle(runs: Sequence[Result]) -> Result:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def _limit(bench: Bench, spools: Spools, trajectories: int) -> Result:
    """Spans a second that an MLflow server takes of requests that are ready."""
    from benchmarks.limits import server_rate

    with tempfile.TemporaryDirectory(prefix="autotrace-limit-") as name:
        try:
            rate, _ = server_rate(spools, Path(name, "server"), trajectories)
        except (AssertionError, OSError, httpx.HTTPError) as error:
            bench.missing["delivery, mlflow server, its own limit"] = str(error)[:200]
            return {}
    return {"server_spans_per_s": rate}


def delivery(bench: Bench) -> Result:
    """The scenario of ``make bench``."""
    with before.checkout(before.NONE if bench.short else bench.against, bench.missing) as against:
        return measured(bench, _available(), against, None, 1 if bench.short else 3)


def _available() -> list[str]:
    from autotrace.sinks import registry

    return [name for name, case in CASES.items() if case.backend in registry.names()]


def main() -> None:
    """The table, for one or some backends."""
    parser = argparse.ArgumentParser(description="CPU and throughput of the shipper.")
    parser.add_argument("--backend", default=",".join(_available()), help=f"some of {', '.join(CASES)}")
    parser.add_argument("--against", type=before.named, default=before.HISTORY, metavar="CHECKOUT", help=before.HELP)
    parser.add_argument("--trajectories", type=int, help="so many (2 at least), instead of what suits the backend")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    where = options.backend.split(",")
    for name in where:
        if name not in CASES:
            parser.error(f"there is no backend {name!r} here; choose from {', '.join(CASES)}")
    if options.trajectories is not None and options.trajectories < 2:
        parser.error(f"--trajectories {options.trajectories} is too few: what one costs is taken off; give 2 or more")
    bench = Bench(short=False)
    try:
        with before.checkout(options.against, bench.missing) as against:
            rows = measured(bench, where, against, options.trajectories, options.rounds)
    finally:
        bench.close()
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        report.show_tables(report.delivery(rows))
    for name, why in bench.missing.items():
        print(f"not measured: {name}: {why}", file=sys.stderr if options.json else sys.stdout)


if __name__ == "__main__":
    main()
