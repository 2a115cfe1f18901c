"""Tables for people and ``RESULTS.md``, from what was measured."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

import rich.table
from rich.console import Console

from benchmarks.budgets import AT_REFERENCE, NOTES, REFERENCE_NS, Results, Verdict, verdicts
from benchmarks.call_rows import NAMES

PEERS = ("wrapt", "opentelemetry-sdk", "ddtrace", "mlflow", "weave", "verl", "msgspec")
CONCURRENT = (
    "stall_max_ms",
    "stall_p999_ms",
    "stall_cpu_max_ms",
    "wall_s",
    "thread_s",
    "process_s",
    "rss_delta_mb",
    "peak_rss_mb",
)
TITLES = {
    "timeouts": "Exceptions of a signal handler, while calls with 200 nested messages are made",
    "volume": "Bytes of a trajectory of 20 turns, and of each token and text of it once",
    "startup": "Start-up",
    "rollout": "veRL's agent loop, 256 trajectories",
}
"""Scenarios whose result is a table as it is."""
COST = {
    "goal_us": "goal, us",
    "before_us": "before, us",
    "now_us": "now, us",
    f"now_us{AT_REFERENCE}": "at reference speed",
    "times_less": "times less",
    "times_wanted": "wanted",
    "before_spans_per_s": "before, spans/s",
    "now_spans_per_s": "now, spans/s",
    "server_spans_per_s": "server's limit",
    "peak_mb": "peak, MB",
    "met": "",
}
GROWTH = {"goal_x": "goal, x", "before_x": "before, x", "now_x": "now, x", "met": ""}
WAITING = {"goal_mb": "goal, MB", "peak_mb": "peak, MB", "now_us": "us", "now_spans_per_s": "spans/s", "met": ""}
SHIPPER = {
    "goal_us": ("Shipper, catching up with what was recorded before it started: CPU a span at 20 turns", COST),
    "goal_x": ("Shipper: CPU of a longer trajectory", GROWTH),
    "goal_mb": ("Shipper: memory in front of a backlog", WAITING),
}
"""Tables of ``delivery``, by what all their rows have: title, and heads by the keys of ``delivery_rows``."""


class Table(NamedTuple):
    """What is shown and written."""

    title: str
    head: list[str]
    rows: list[list[str]]


Rows = list[list[str]]


def machine(speeds: list[float]) -> dict[str, Any]:
    """What the figures were measured on."""
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    versions = {}
    for name in PEERS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[1], 1),
        "speed_ns": round(statistics.median(speeds), 1) if speeds else 0.0,
        "speeds": [round(speed, 1) for speed in speeds],
        "versions": versions,
    }


def tables(results: Results, about: dict[str, Any]) -> Iterator[Table]:
    """Everything worth a look."""
    judged = [_budget(each) for each in verdicts(results, about["speed_ns"])]
    yield Table("Budgets", ["", "budget", "measured", "at reference speed", "", "peers"], judged)
    for kind, group in results.get("small", {}).items():
        yield _calls(f"Small call: {kind}{' (per item)' if 'stream' in kind else ''}", group)
    for shape, group in results.get("llm", {}).items():
        yield _calls(f"LLM call: {shape} tokens", group)
    for shape, group in results.get("chat", {}).items():
        yield _calls(f"Conversation: {shape}", group)
    for client, group in results.get("streamed", {}).items():
        yield _calls(f"Streamed answer through {client} (per chunk)", group)
    runs = {name: run for name, run in results.get("concurrent", {}).items() if run is not None}
    if runs:
        rows = [[name, *(f"{run[key]:.2f}" for key in CONCURRENT), str(run.get("drops") or "")]
                for name, run in runs.items()]  # fmt: skip
        yield Table("Concurrent trajectories", ["", *map(_words, CONCURRENT), "drops"], rows)
    if results.get("growth", {}).get("autotrace") is not None:
        head = ["turn", "caller's thread, us", "process in all, us"]
        yield Table("One trajectory, turn by turn", head, _growth(results["growth"]))
    for scenario, title in TITLES.items():
        runs = {name: run for name, run in results.get(scenario, {}).items() if run is not None}
        if runs:
            keys = list(dict.fromkeys(key for run in runs.values() for key in run))
            rows = [[name, *(_cell(run.get(key)) for key in keys)] for name, run in runs.items()]
            yield Table(title, ["", *map(_words, keys)], rows)
    yield from beside(results.get("calls", {}))
    yield from delivery(results.get("delivery", {}))


def delivery(rows: dict[str, dict[str, Any]]) -> Iterator[Table]:
    """What the shipper takes."""
    for goal, (title, heads) in SHIPPER.items():
        of_it = {name: row for name, row in rows.items() if goal in row}
        shown = [key for key in heads if any(row.get(key) is not None for row in of_it.values())]
        cells = [[name, *(_rounded(row.get(key)) for key in shown)] for name, row in of_it.items()]
        if cells:
            yield Table(title, ["", *(heads[key] for key in shown)], cells)


def beside(rows: dict[str, dict[str, float]]) -> Iterator[Table]:
    """Calls, beside those of the commit before and beside the floor."""
    heads = ["", "floor, us", "before, us", "now, us", "x the floor", "x before", "starts"]
    keys = ("floor_us", "before_us", "now_us", "x_floor", "x_before", "starts")
    if rows:
        cells = [[NAMES[row], *(_cell(each[key]) for key in keys)] for row, each in rows.items()]
        yield Table("Calls, beside the commit before", heads, cells)


def _rounded(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, int | float) else value or ""


def _calls(title: str, group: dict[str, dict[str, float]]) -> Table:
    bare = group.get("bare call", {"ns": 0.0})["ns"]
    head = ["", "caller's thread, us", "over the bare call, us", "process in all, us"]
    rows = [[name, _us(one["ns"]), _us(one["ns"] - bare), _us(one["process_ns"])] for name, one in group.items()]
    return Table(title, head, rows)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _budget(verdict: Verdict) -> list[str]:
    budget = verdict.budget
    sign = ">=" if budget.least else "<="
    if verdict.measured is None or verdict.scaled is None:
        return [budget.name, f"{sign} {budget.limit:g} {budget.unit}", "", "", verdict.met, ""]
    scaled = f"{verdict.scaled:.3g}" if budget.cpu else ""
    peers = ", ".join(f"{name} {value:,.3g}" for name, value in verdict.peers.items())
    return [
        budget.name,
        f"{sign} {budget.limit:g} {budget.unit}",
        f"{verdict.measured:.3g}",
        scaled,
        verdict.met,
        peers,
    ]


def _growth(result: dict[str, Any]) -> Rows:
    run, turns = result["autotrace"], result["turns"]
    shown = sorted({1, 2, 5, 10, 20, 30, 40, 50} & set(range(1, turns + 1)))
    rows = [[str(turn), _us(run["caller_ns"][turn - 1]), _us(run["process_ns"][turn - 1])] for turn in shown]
    return [*rows, ["spool bytes / unique token", f"{run['spool_bytes'] / run['unique_tokens']:.2f}", ""]]


def _us(ns: float) -> str:
    return f"{ns / 1e3:,.2f}"


def _cell(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else "" if value is None else str(value)


def show(results: Results, about: dict[str, Any], missing: dict[str, str]) -> None:
    """Print everything."""
    console = show_tables(tables(results, about))
    for name, why in missing.items():
        console.print(f"not measured: {name}: {why}", markup=False)
    console.print(f"{_on(about)}; a ContextVar's set and reset take {about['speed_ns']} ns", markup=False)


def show_tables(shown: Iterable[Table]) -> Console:
    """Print them; where, for more."""
    console = Console(width=None if os.isatty(1) else 180)
    for one in shown:
        table = rich.table.Table(title=one.title, title_justify="left")
        for place, column in enumerate(one.head):
            table.add_column(column, justify="left" if place == 0 or column in ("peers", "drops") else "right")
        for row in one.rows:
            table.add_row(*row)
        console.print(table)
    return console


def markdown(results: Results, about: dict[str, Any], missing: dict[str, str], command: str, parts: bool) -> str:
    """``RESULTS.md``."""
    lines = [
        "# What tracing costs",
        "",
        f"Made by `{command}`. CPU times are of the calling thread (`time.thread_time_ns`), medians over rounds that",
        'are shuffled among the subjects, each in a process of its own; "process in all" includes every thread and',
        "writing everything out. *At reference speed*: each round scaled by what a `ContextVar`'s `set` and `reset`",
        f"took just before it ({about['speed_ns']} ns as a rule) against {REFERENCE_NS:g} ns on the machine that the",
        "budgets come from. *Before*: the code before delivery was made faster, in turns with this one; *wanted*: how",
        "many times less it was to be (`benchmarks/delivery_rows.py`). It had no Parquet: beside that stands what it",
        "took to assemble alone.",
        "",
        f"{_on(about)}; " + ", ".join(f"{name} {version}" for name, version in about["versions"].items()) + ".",
    ]
    if parts:
        lines += [
            "",
            "**Measured in parts**, not in one run. A verdict near its limit proves nothing.",
        ]
    for one in tables(results, about):
        lines += ["", f"## {one.title}", "", f"| {' | '.join(one.head)} |", f"|{'|'.join('---' for _ in one.head)}|"]
        lines += [f"| {' | '.join(row)} |" for row in one.rows]
        if one.title == "Budgets":
            lines += ["", *NOTES]
    if missing:
        lines += ["", "## Not measured", "", *(f"- {name}: {why}" for name, why in missing.items())]
    return "\n".join(lines) + "\n"


def _on(about: dict[str, Any]) -> str:
    return f"{about['processor']}; {about['system']}; Python {about['python']}; load {about['load']}"
