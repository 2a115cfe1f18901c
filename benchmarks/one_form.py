"""What it costs that a run folder is a dataset, beside the last commit whose readers assembled segments.

    python benchmarks/one_form.py [--scale 0.1] [--rounds N] [--rows delivery,short,...]

Both versions ship the same spools and answer the same commands, in turns. ``--scale`` takes so many of the trajectories
and runs. The goals are ratios to the column *before*, or what a person waits for. ``make bench`` prints the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from autotrace.config.plan import Plan, Settings  # noqa: E402
from autotrace.run import layout  # noqa: E402
from autotrace.run.info import RunInfo  # noqa: E402
from autotrace.run.status import Status  # noqa: E402
from benchmarks import before  # noqa: E402
from benchmarks.ship_program import REAL  # noqa: E402
from benchmarks.spools import TURNS, Spools, spans  # noqa: E402
from tests.ship.spools import Process, attributes, new_run  # noqa: E402

BY_ROLE = "SELECT role, count(*) FROM spans GROUP BY role"
Measured = dict[str, float]
COMMAND = ["-c", "from autotrace.cli.main import main; main()"]
SHORT_TRACES, WAITING, TRAJECTORIES, CALLS_TURNS, RUNS = 40_000, 250_000, 10_000, 10, 1_000
MILLION = 1_000_000 // spans(1, CALLS_TURNS)


@dataclass
class Goal:
    """Of one row."""

    title: str
    unit: str
    most: float | None = None
    """What it may be."""
    times_before: float | None = None
    """Times as much as before it may be."""


GOALS = {
    "tables": Goal("CPU of the shipper a span, into the tables, nothing else; before: Parquet alone", "us", None, 1.0),
    "mlflow": Goal("the same into the tables and MLflow's database; before: MLflow alone", "us", None, 1.25),
    "bytes": Goal("bytes of the run folder after delivery, of its spool", "x", 0.4),
    "short": Goal("a trace of one call, CPU of the shipper", "us", 150),
    "backlog": Goal("memory of the shipper, backlog of 40,000 traces of one call", "MB", 256),
    "waiting": Goal("memory of the shipper, 250,000 open traces of one call", "MB", 256),
    "show": Goal("autotrace show, 10,000 trajectories", "s", 0.5),
    "ls": Goal("autotrace ls", "s", 0.5),
    "steps": Goal("autotrace steps", "s", 0.5),
    "diagnose": Goal("autotrace diagnose", "s", 0.5),
    "sql": Goal("autotrace sql over 210,000 calls", "s", 0.5),
    "million": Goal("autotrace sql over a million calls", "s", 1.0),
    "grep": Goal("autotrace grep over a million calls", "s", 2.0),
    "lake runs": Goal("a lake of 1,000 runs, 1 million trajectories: list of runs", "s", 0.5),
    "lake rewards": Goal("... rewards by run", "s", 0.7),
    "lake tools": Goal("... 20 million calls by tool", "s", 1.5),
    "open": Goal("an open trajectory appears in autotrace ls", "s", 1.0),
}


class Bench:
    """Ships and asks with one version and another."""

    def __init__(self, folder: Path, checkouts: dict[str, Path], scale: float, rounds: int) -> None:
        self.spools = Spools(folder)
        self.checkouts, self.scale, self.rounds = checkouts, scale, rounds
        self.found: dict[str, dict[str, list[float]]] = {}
        self.folder = folder
        self._count = 0

    def many(self, number: int) -> int:
        return max(2, int(number * self.scale))

    def note(self, version: str, **rows: float) -> None:
        """One measurement of some rows."""
        for row, value in rows.items():
            self.found.setdefault(row.replace("_", " "), {}).setdefault(version, []).append(value)

    def shipped(self, version: str, backends: list[str], trajectories: int, turns: int) -> tuple[Path, Measured]:
        """A run that ``version`` has shipped, and what that took; what one trajectory takes is taken off."""
        folders = []
        for count in (2, 2, trajectories):
            self._count += 1
            folder = self.spools.copy(self.folder / f"run{self._count}", "jsonl", "", count, turns)
            info = RunInfo.read(folder)
            info.backends, info.tracking_uri = list(backends), f"sqlite:///{folder}/mlflow.db"
            info.write(folder)
            if version == "now":  # whose default it is that segments go; the code before reads no such plan
                (folder / "plan.json").write_text(Plan((), Settings()).dumps())
            folders.append(folder)
        spool = size_of(folders[-1] / "spool")
        words = [str(ROOT / "benchmarks" / "ship_program.py"), REAL, *map(str, folders)]
        done = self.run(version, words)
        _, fixed, used = json.loads(done.splitlines()[-1])["folders"]
        assert used["state"] == "done", used
        taken = size_of(folders[-1], without="mlflow.db") / spool
        for folder in folders[:-1]:
            shutil.rmtree(folder)
        return folders[-1], {"cpu_s": used["cpu_s"] - fixed["cpu_s"], "peak_mb": used["peak_mb"], "bytes": taken}

    def asked(self, version: str, *words: str) -> float:
        """Seconds that a command takes, the median of some."""
        took = []
        for _ in range(3):
            began = time.monotonic()
            self.run(version, [*COMMAND, *words])
            took.append(time.monotonic() - began)
        return statistics.median(took)

    def listed(self, version: str, run: Path, *more: str) -> list[str]:
        """Lines of ``ls --json``."""
        return self.run(version, [*COMMAND, "ls", str(run), "--json", *more]).splitlines()

    def run(self, version: str, words: Sequence[str]) -> str:
        """What a process of that version prints. Raises ``RuntimeError``."""
        environ = {
            **os.environ, "PYTHONPATH": str(self.checkouts[version]), "MLFLOW_DISABLE_TELEMETRY": "true",
            "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.folder / "compiled"),  # as installed
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, *words], env=environ, cwd=self.folder, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{version}: {words[-3:]}: {done.stderr[-500:]}")
        return done.stdout


def size_of(folder: Path, without: str = "") -> int:
    """Bytes of its files."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != without)
    return sum(path.stat().st_size for path in files)


def delivery(bench: Bench, version: str) -> None:
    count = bench.many(400)
    for row, backends in {"tables": ["parquet"] if version == "before" else [], "mlflow": ["mlflow"]}.items():
        folder, took = bench.shipped(version, backends, count, TURNS)
        bench.note(version, **{row: took["cpu_s"] * 1e6 / spans(count - 2)})
        if row == "tables":
            bench.note(version, bytes=took["bytes"])
        shutil.rmtree(folder)


def short(bench: Bench, version: str) -> None:
    count = bench.many(SHORT_TRACES)
    folder, took = bench.shipped(version, ["parquet"] if version == "before" else [], count, 0)
    bench.note(version, short=took["cpu_s"] * 1e6 / count, backlog=took["peak_mb"])
    shutil.rmtree(folder)


def waiting(bench: Bench, version: str) -> None:
    """As a program leaves them whose whole package is wrapped."""
    count = bench.many(WAITING)
    with shipping(bench, version, "waiting") as (run, process, shipper):
        for _ in range(count):
            process.open(os.urandom(16), "span")
        while Status.read(run).open < count:
            time.sleep(1.0)
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{shipper.pid}/status").read_text())
        assert peak is not None
        bench.note(version, waiting=int(peak[1]) / 1e3)
    shutil.rmtree(run)


def commands(bench: Bench, version: str) -> None:
    folder, _ = bench.shipped(version, ["jsonl"] if version == "before" else [], bench.many(TRAJECTORIES), 2)
    trace = json.loads(bench.listed(version, folder, "--limit", "1")[0])["trace_id"]
    for row, words in {"show": [trace], "ls": [], "steps": [], "diagnose": []}.items():
        bench.note(version, **{row: bench.asked(version, row, *words, str(folder))})
    shutil.rmtree(folder)


def calls(bench: Bench, version: str) -> None:
    backends = ["jsonl"] if version == "before" else []
    folder, _ = bench.shipped(version, backends, bench.many(TRAJECTORIES), CALLS_TURNS)
    bench.note(version, sql=bench.asked(version, "sql", BY_ROLE, str(folder)))
    shutil.rmtree(folder)


def million(bench: Bench, version: str) -> None:
    """Before, it took 38 s to count them, and minutes to search their texts."""
    if version == "before":
        return
    folder, _ = bench.shipped(version, [], bench.many(MILLION), CALLS_TURNS)
    bench.note(version, million=bench.asked(version, "sql", BY_ROLE, str(folder)))
    bench.note(version, grep=bench.asked(version, "grep", "-c", "--limit", "1", "w", str(folder)))
    shutil.rmtree(folder)


def lake(bench: Bench, version: str) -> None:
    """A thousand runs with the same tables: their files are linked."""
    if version == "before":
        return
    folder, _ = bench.shipped(version, [], bench.many(1_000), TURNS // 2 - 1)
    runs = bench.folder / "lake"
    for number in range(bench.many(RUNS)):
        run = runs / f"20260101-{number:06}-abcdef"
        shutil.copytree(folder / "tables", run / "tables", copy_function=os.link)
        os.link(folder / layout.STATE_DB, run / layout.STATE_DB)
        (run / "spool").mkdir()
        info = RunInfo.read(folder)
        info.run_id = run.name
        info.write(run)
        shutil.copy(folder / "status.json", run)
    queries = {
        "lake_rewards": "SELECT run_id, avg(reward) FROM trajectories GROUP BY run_id",
        "lake_tools": "SELECT name, count(*) FROM spans WHERE role = 'tool' GROUP BY name",
    }
    bench.note(version, lake_runs=bench.asked(version, "runs", str(runs)))
    for row, query in queries.items():
        bench.note(version, **{row: bench.asked(version, "sql", query, str(runs))})
    shutil.rmtree(runs)
    shutil.rmtree(folder)


def open_ones(bench: Bench, version: str) -> None:
    with shipping(bench, version, "open") as (run, process, _):
        process.open(os.urandom(16), "trajectory", attributes=attributes())
        while not bench.listed(version, run):
            time.sleep(0.05)
        process.open(os.urandom(16), "trajectory", attributes=attributes(rollout=1))
        began = time.monotonic()
        while len(bench.listed(version, run)) < 2:
            time.sleep(0.05)
        bench.note(version, open=time.monotonic() - began)


@contextlib.contextmanager
def shipping(bench: Bench, version: str, name: str) -> Iterator[tuple[Path, Process, subprocess.Popen[bytes]]]:
    """A run that goes on, a traced process of it, and its shipper, which is up."""
    sleeping = subprocess.Popen(["sleep", "3600"])
    run = new_run(bench.folder, f"{name}-{version}", main_pid=sleeping.pid, backends=["jsonl"])
    environ = {**os.environ, "PYTHONPATH": str(bench.checkouts[version])}
    shipper = subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)], env=environ, cwd=bench.folder)
    try:
        while not (run / layout.STATUS_JSON).exists():
            time.sleep(0.05)
        yield run, Process(run), shipper
    finally:
        for one in (sleeping, shipper):
            one.kill()
            one.wait()


ROWS: dict[str, Callable[[Bench, str], None]] = {
    "delivery": delivery, "short": short, "waiting": waiting, "commands": commands, "calls": calls,
    "million": million, "lake": lake, "open": open_ones,
}  # fmt: skip


def table(found: dict[str, dict[str, list[float]]]) -> Iterator[tuple[str, ...]]:
    """Title, goal, before, now, verdict."""
    for row, goal in GOALS.items():
        values = {version: statistics.median(values) for version, values in found.get(row, {}).items()}
        now, then = values.get("now"), values.get("before")
        if now is None:
            continue
        most = goal.most if goal.times_before is None else then and then * goal.times_before
        said = f"{goal.times_before:g} x before" if goal.times_before else f"{goal.most:g} {goal.unit}"
        shown = ["" if value is None else f"{value:.3g} {goal.unit}" for value in (then, now)]
        yield goal.title, said, *shown, "" if most is None else "met" if now <= most else "not met"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--against", type=before.named, default=before.HISTORY, metavar="CHECKOUT", help=before.HELP)
    options = parser.parse_args()
    missing: dict[str, str] = {}
    with before.checkout(options.against, missing, before.ONE_FORM) as earlier, tempfile.TemporaryDirectory() as name:
        checkouts = {"now": ROOT} | ({} if earlier is None else {"before": earlier})
        bench = Bench(Path(name), checkouts, options.scale, options.rounds)
        for row in options.rows.split(","):
            for _ in range(options.rounds):
                for version in checkouts:
                    began = time.monotonic()
                    try:
                        ROWS[row](bench, version)
                    except RuntimeError as error:
                        missing[f"{row}, {version}"] = str(error)
                    print(f"{row}, {version}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    shown = Table("", "goal", "before", "now", "", title=f"scale {options.scale:g}")
    for line in table(bench.found):
        shown.add_row(*line)
    Console(width=160).print(shown)
    for what, why in missing.items():
        print(f"not measured: {what}: {why}")


if __name__ == "__main__":
    main()
