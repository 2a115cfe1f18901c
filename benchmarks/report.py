"""Tables for people and ``RESULTS.md``, from what was measured."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.budgets import Results, Verdict, verdicts

PEERS = ("wrapt", "opentelemetry-sdk", "ddtrace", "mlflow", "weave", "verl", "msgspec")
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
        "versions": versions,
    }


def tables(results: Results, about: dict[str, Any]) -> Iterator[tuple[str, list[str], Rows]]:
    """(Title, head, rows) of everything worth a look."""
    judged = verdicts(results, about["speed_ns"])
    yield "Budgets", ["", "budget", "measured", "at reference speed", "", "peers"], [_budget(each) for each in judged]
    for scenario in ("small", "llm"):
        for kind, group in results.get(scenario, {}).items():
            title = f"Small call: {kind} (per item)" if "stream" in kind else f"{scenario.replace('small', 'Small call').replace('llm', 'LLM call')}: {kind}"
            bare = group.get("bare call", {"ns": 0.0, "process_ns": 0.0})
            yield title, ["", "caller's thread, us", "over the bare call, us", "process in all, us"], [
                [name, _us(one["ns"]), _us(one["ns"] - bare["ns"]), _us(one["process_ns"])] for name, one in
                group.items() ]
    keys = ("stall_max_ms", "stall_p999_ms", "stall_cpu_max_ms", "wall_s", "thread_s", "process_s", "rss_delta_mb", "peak_rss_mb")
    rows = [[name, *(f"{run[key]:.2f}" for key in keys), str(run.get("drops") or "")]
            for name, run in results.get("concurrent", {}).items() if run is not None]  # fmt: skip
    if rows:
        yield "Concurrent trajectories", ["", *(key.replace("_", " ") for key in keys), "drops"], rows
    if "growth" in results and results["growth"]["autotrace"] is not None:
        yield "One trajectory, turn by turn", ["turn", "caller's thread, us", "process in all, us"],
        _growth(results["growth"]) for scenario, title in (("startup", "Start-up"), ("rollout", "veRL's agent loop, 256
        trajectories"), ("delivery", "Shipper")): group = {name: run for name, run in results.get(scenario, {}).items() if run is not None}
        if group:
            columns = list(dict.fromkeys(key for run in group.values() for key in run))
            yield title, ["", *(key.replace("_", " ") for key in columns)], [
                [name, *(_cell(run.get(key)) for key in columns)] for name, run in group.items()
            ]  # fmt: skip


def _budget(verdict: Verdict) -> list[str]:
    budget = verdict.budget
    sign = ">=" if budget.least else "<="
    if verdict.measured is None or verdict.scaled is None:
        return [budget.name, f"{sign} {budget.limit:g} {budget.unit}", "", "", verdict.met, ""]
    scaled = f"{verdict.scaled:.3g}" if budget.cpu else ""
    peers = ", ".join(f"{name} {value:,.3g}" for name, value in verdict.peers.items())
    return [budget.name, f"{sign} {budget.limit:g} {budget.unit}", f"{verdict.measured:.3g}", scaled, verdict.met,
    peers]


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
    """Print the tables."""
    console = Console(width=None if os.isatty(1) else 180)
    for title, head, rows in tables(results, about):
        table = Table(title=title, title_justify="left")
        for place, column in enumerate(head):
            table.add_column(column, justify="left" if place == 0 or column in ("peers", "drops") else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for name, why in missing.items():
        console.print(f"not measured: {name}: {why}", markup=False)
    console.print(f"{about['processor']}, Python {about['python']}, load {about['load']}, "
                  f"set+reset of a ContextVar {about['speed_ns']} ns (reference: 103)", markup=False)  # fmt: skip


def markdown(results: Results, about: dict[str, Any], missing: dict[str, str], command: str) -> str:
    """``RESULTS.md``."""
    lines = [
        "# What tracing costs",
        "",
        f"Made by `{command}`. CPU times are of the calling thread (`time.thread_time_ns`), medians over rounds that
        are", "shuffled among the subjects, each in a process of its own; \"process in all\" includes every thread and
        writing", "everything out. *At reference speed*: scaled by what a `ContextVar.set` and `reset` took during the
        run", f"({about['speed_ns']} ns) against 103 ns on the machine the budgets come from.",
        "",
        f"{about['processor']}; {about['system']}; Python {about['python']}; load {about['load']}; "
        + ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        + ".",
    ]  # fmt: skip
    for title, head, rows in tables(results, about):
        lines += ["", f"## {title}", "", f"| {' | '.join(head)} |", f"|{'|'.join('---' for _ in head)}|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    if missing:
        lines += ["", "## Not measured", "", *(f"- {name}: {why}" for name, why in missing.items())]
    return "\n".join(lines) + "\n"
