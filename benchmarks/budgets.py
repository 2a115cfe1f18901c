"""The budgets of the design, what was measured against each, and the ratios that CI checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from benchmarks.call_rows import dearer

Results = dict[str, Any]
"""Scenario -> its result."""

NOTES: tuple[str, ...] = (
    "- LLM calls: *copies of the lists* is the floor. It copies the two token lists and the messages, which the caller",
    "  may change, puts them into a queue and records nothing. Every process has freed a block of 7 MB first, as one",
    "  that has read a tokenizer's file: glibc then keeps the memory of such copies. One that never did faults it in",
    "  anew each time, which is 150 to 400 us for 40,000 tokens, whoever copies them.",
    "- Conversations: two messages are new at each call, as in an agent's loop. A message that was recorded before is",
    "  not looked through for secrets again, which is most of what recording costs the process: see the table in which",
    "  all are new.",
    "- Stalls are by the clock, so whatever else the machine does is in them, and what the 1,000 trajectories do",
    "  themselves; the bare call beside it tells how much.",
    "- Rollouts: 256 trajectories in one worker, turns of 5 s (from half to one and a half times that). The table of",
    "  rollouts also has turns of 0.5 s: then the worker computes without a pause, and each microsecond of tracing is",
    "  one of the rollout.",
    "- Bytes to the backends: a turn shows its new messages; the agent's call shows the conversation in one piece, up",
    "  to 16,384 characters whole, of a longer one both ends. So a short text goes out twice and a long one once. What",
    "  goes over the wire to an MLflow server is compressed.",
)
"""What a reader of ``RESULTS.md`` has to know about budgets that cannot be met."""
REFERENCE_NS = 103.0
"""``ContextVar.set`` and ``reset`` on the machine that the budgets were measured on (facts: 2 vCPU AMD EPYC, Python
3.11.7): what tells a slower moment of a machine from a slower program."""

AT_REFERENCE = "_at_reference"
"""Ends the name of a figure that was brought to that speed round by round."""


@dataclass(frozen=True)
class Budget:
    """One line of the design's table."""

    name: str
    limit: float
    unit: str
    measured: Callable[[Results], float]
    """Raises ``KeyError`` or ``TypeError`` when it was not measured."""
    peers: Callable[[Results], dict[str, float]]
    cpu: bool = True
    """It is CPU time, which depends on how fast the machine is."""
    least: bool = False
    """The limit is a minimum."""
    scaled: Callable[[Results], float] | None = None
    """As it is at the speed of the budgets, where that was found out round by round."""


def _over(results: Results, scenario: str, kind: str, name: str, key: str = "ns") -> float:
    """Microseconds that ``name`` costs more than the bare call."""
    group = results[scenario][kind]
    return float(group[name][key] - group["bare call"][key]) / 1e3


def _peers(scenario: str, kind: str, names: tuple[str, ...], key: str = "ns") -> Callable[[Results], dict[str, float]]:
    def read(results: Results) -> dict[str, float]:
        group = results[scenario].get(kind, {})
        return {name: _over(results, scenario, kind, name, key) for name in names if name in group}

    return read


_SMALL = ("functools.wraps", "wrapt", "OpenTelemetry", "ddtrace", "mlflow.trace", "weave.op")
_CHAT = ("copy.deepcopy", "OpenTelemetry", "mlflow.trace", "weave.op")
_NESTED = "200 nested messages"
_CLIENTS = "autotrace, shipped lists"
_ASKING = ("mlflow.openai.autolog", "OpenTelemetry, openai")
_STREAM = ("OpenTelemetry",)
_LLM = ("copies of the lists", "mlflow.trace", "veRL on MLflow", "weave.op", "veRL on Weave")


def _none(results: Results) -> dict[str, float]:
    return {}


def _stall(results: Results) -> float:
    group = results["concurrent"]
    ours, bare = group["autotrace, 1000 trajectories"], group["bare call, 1000 trajectories"]
    return max(0.0, float(ours["stall_max_ms"] - bare["stall_max_ms"]))


def _stalls(results: Results) -> dict[str, float]:
    group = results["concurrent"]
    return {name: run["stall_max_ms"] for name, run in group.items()
            if run is not None and not name.startswith("autotrace,")}  # fmt: skip


def _late(results: Results) -> float:
    """The median: the latest is the machine's."""
    group = results["timeouts"]
    return max(0.0, float(group["autotrace"]["late_ms"] - group["bare call"]["late_ms"]))


def _bytes(where: str) -> Callable[[Results], float]:
    return lambda results: float(results["volume"][where]["ratio"])


def _verl_bytes(results: Results) -> dict[str, float]:
    return {"veRL's pattern": results["volume"]["veRL's pattern"]["ratio"]}


def _memory(results: Results) -> float:
    group = results["concurrent"]
    ours, bare = group["autotrace, 10000 trajectories"], group["bare call, 10000 trajectories"]
    return float(ours["peak_rss_mb"] - bare["peak_rss_mb"])


def _throughput(results: Results) -> float:
    group = results["rollout"]
    return float(group["off"]["wall_s"] / group["autotrace"]["wall_s"])


def _throughputs(results: Results) -> dict[str, float]:
    """Of the peers that got through as many trajectories."""
    group = results["rollout"]
    alike = [mode for mode in group if mode.startswith("veRL") and "trajectories" not in mode]
    return {mode: group["off"]["wall_s"] / group[mode]["wall_s"] for mode in alike}


def _startups(results: Results) -> dict[str, float]:
    group = results["startup"]
    return {"ddtrace": group["import ddtrace.auto"]["cpu_ms"] - group["nothing"]["cpu_ms"]}


def _startup(results: Results) -> float:
    group = results["startup"]
    return float(group["nothing, AUTOTRACE=1"]["cpu_ms"] - group["nothing"]["cpu_ms"])


def _chunk(name: str) -> Callable[[Results], float]:
    """A ratio: the client itself takes 50 to 100 us for a chunk, of which a difference of 5 us cannot be told."""
    return lambda results: float(
        results["streamed"]["openai"][name]["ns"] / results["streamed"]["openai"]["bare call"]["ns"]
    )


def _chunks(results: Results) -> dict[str, float]:
    return {name: _chunk(name)(results) for name in _ASKING if name in results["streamed"]["openai"]}


def _client_startup(client: str) -> Callable[[Results], float]:
    def read(results: Results) -> float:
        group, load = results["startup"], f"import {client}"
        return float(group[f"{load}, AUTOTRACE=1"]["cpu_ms"] - group[load]["cpu_ms"])

    return read


def _call(
    name: str, limit: float, scenario: str, kind: str, subject: str, peers: tuple[str, ...] = (), key: str = "ns"
) -> Budget:
    """The budget of one call, in microseconds over the bare one."""
    return Budget(
        name,
        limit,
        "us",
        lambda results: _over(results, scenario, kind, subject, key),
        _peers(scenario, kind, peers, key),
        scaled=lambda results: _over(results, scenario, kind, subject, key + AT_REFERENCE),
    )


BUDGETS = (
    _call("off, sync", 0.25, "small", "sync", "autotrace off", _SMALL[:2]),
    _call("off, async", 0.45, "small", "coroutine", "autotrace off", _SMALL[:2]),
    _call("not sampled, sync", 0.25, "small", "sync", "autotrace not sampled"),
    _call("not sampled, async", 0.45, "small", "coroutine", "autotrace not sampled"),
    _call("recorded, small, sync", 2.0, "small", "sync", "autotrace", _SMALL[2:]),
    _call("recorded, small, async", 3.0, "small", "coroutine", "autotrace", _SMALL[2:]),
    _call("LLM call, 2k+2k", 30.0, "llm", "2k+2k", "autotrace", _LLM),
    _call("LLM call, 2k+2k, process CPU in all", 200.0, "llm", "2k+2k", "autotrace", _LLM, "process_ns"),
    _call("LLM call, 32k+8k", 200.0, "llm", "32k+8k", "autotrace", _LLM),
    _call("200 nested messages", 60.0, "chat", _NESTED, "autotrace", _CHAT),
    _call("200 nested messages, process CPU in all", 400.0, "chat", _NESTED, "autotrace", _CHAT, "process_ns"),
    _call("40 plain messages", 8.0, "chat", "40 plain messages", "autotrace", _CHAT),
    _call("item of a generator", 0.35, "small", "stream", "autotrace", _STREAM),
    _call("item of an asynchronous generator", 0.45, "small", "async_stream", "autotrace", _STREAM),
    Budget("chunk of a chat, streamed through openai, traced / bare", 1.1, "x", _chunk(_CLIENTS), _chunks, cpu=False),
    _call("event of a chat, streamed through httpx", 3.0, "streamed", "httpx", _CLIENTS),
    Budget("exception of a signal handler, later than without tracing, median", 1.0, "ms", _late, _none, cpu=False),
    Budget("longest event-loop stall, 1,000 trajectories, over the bare call's", 2.0, "ms", _stall, _stalls, cpu=False),
    Budget("rollout throughput, on / off", 0.98, "x", _throughput, _throughputs, cpu=False, least=True),
    Budget("start-up of a process that traces nothing", 3.0, "ms", _startup, _startups),
    Budget("start-up of a process that imports openai alone", 3.0, "ms", _client_startup("openai"), _none),
    Budget("start-up of a process that imports httpx alone", 3.0, "ms", _client_startup("httpx"), _none),
    Budget("bytes in the spool, each token and text once", 1.3, "x", _bytes("spool"), _verl_bytes, cpu=False),
    Budget("bytes to MLflow", 1.3, "x", _bytes("mlflow"), _verl_bytes, cpu=False),
    Budget("bytes to Weave", 1.3, "x", _bytes("weave"), _verl_bytes, cpu=False),
    Budget("memory, 10,000 trajectories at once", 64.0, "MB", _memory, _none, cpu=False),
)
"""In the order of the design's section 8."""


@dataclass(frozen=True)
class Verdict:
    """A budget and what became of it."""

    budget: Budget
    measured: float | None
    scaled: float | None
    """As it would be on the reference machine."""
    met: str
    """met | met at reference speed | not met | not measured"""
    peers: dict[str, float]


def verdicts(results: Results, speed_ns: float) -> list[Verdict]:
    """Every budget judged. ``speed_ns``: ``ContextVar.set`` and ``reset`` during this run."""
    found = []
    for budget in BUDGETS:
        try:
            measured = budget.measured(results)
        except (KeyError, TypeError):
            found.append(Verdict(budget, None, None, "not measured", {}))
            continue
        try:
            peers = budget.peers(results)
        except (KeyError, TypeError):
            peers = {}
        scaled = measured * REFERENCE_NS / speed_ns if budget.cpu and speed_ns else measured
        if budget.scaled is not None:
            with suppress(KeyError):  # figures of an older run, to which this one was added
                scaled = budget.scaled(results)
        if (measured >= budget.limit) if budget.least else (measured <= budget.limit):
            met = "met"
        else:
            met = "met at reference speed" if not budget.least and scaled <= budget.limit else "not met"
        found.append(Verdict(budget, measured, scaled, met, peers))
    return found


@dataclass(frozen=True)
class Ratio:
    """A ratio within one run that CI holds."""

    name: str
    scenario: str
    limit: float
    measured: Callable[[Results], float]
    """Raises ``KeyError`` or ``TypeError`` when it was not measured."""

    def said(self, results: Results) -> str | None:
        """What is wrong with it, if anything is."""
        try:
            value = self.measured(results)
        except (KeyError, TypeError):
            return f"{self.name}: not measured"
        return f"{self.name}: {value:.3g}, allowed {self.limit:g}" if value > self.limit else None


def _ratio(kind: str, ours: str, peer: str, scenario: str = "small", key: str = "ns") -> Callable[[Results], float]:
    return lambda results: _times(_over(results, scenario, kind, ours, key), _over(results, scenario, kind, peer, key))


def _items(stream: str, call: str) -> Callable[[Results], float]:
    """What an item costs over what a call costs."""
    return lambda results: _times(
        _over(results, "small", stream, "autotrace"), _over(results, "small", call, "autotrace")
    )


def _times(ours: float, peer: float) -> float:
    """A peer that costs less than the bare call was not measured: its figure is noise."""
    if peer <= 0:
        raise KeyError(peer)
    return ours / peer


def _startup_ratio(results: Results) -> float:
    group = results["startup"]
    return float(group["nothing, AUTOTRACE=1"]["cpu_ms"] / group["nothing"]["cpu_ms"])


RATIOS = (
    Ratio("off, sync / functools.wraps", "small", 5.0, _ratio("sync", "autotrace off", "functools.wraps")),
    Ratio("not sampled, sync / functools.wraps", "small", 7.0,
          _ratio("sync", "autotrace not sampled", "functools.wraps")),
    Ratio("recorded, sync / OpenTelemetry", "small", 0.25, _ratio("sync", "autotrace", "OpenTelemetry")),
    Ratio("recorded, async / OpenTelemetry", "small", 0.3, _ratio("coroutine", "autotrace", "OpenTelemetry")),
    Ratio("LLM call / veRL on MLflow", "llm", 0.05, _ratio("2k+2k", "autotrace", "veRL on MLflow", "llm")),
    Ratio("LLM call, process CPU / veRL on MLflow", "llm", 0.1,
          _ratio("2k+2k", "autotrace", "veRL on MLflow", "llm", "process_ns")),
    Ratio("200 nested messages / copy.deepcopy", "chat", 0.2, _ratio(_NESTED, "autotrace", "copy.deepcopy", "chat")),
    Ratio("200 nested messages, process CPU / copy.deepcopy", "chat", 1.0,
          _ratio(_NESTED, "autotrace", "copy.deepcopy", "chat", "process_ns")),
    Ratio("40 plain messages / copy.deepcopy", "chat", 0.4,
          _ratio("40 plain messages", "autotrace", "copy.deepcopy", "chat")),
    Ratio("item of a generator / a small call", "small", 0.4, _items("stream", "sync")),
    Ratio("item of an asynchronous generator / a small call", "small", 0.5, _items("async_stream", "coroutine")),
    Ratio("chunk of a chat, streamed through openai, traced / bare", "streamed", 1.35, _chunk(_CLIENTS)),
    Ratio("spool bytes / each token and text once", "volume", 1.3, _bytes("spool")),
    Ratio("start-up, AUTOTRACE=1 / off", "startup", 1.6, _startup_ratio),
)  # fmt: skip
"""Each has room for the noise of a shared machine."""
TIMES = 3
"""So many times a scenario is measured, each time in new processes, before a ratio of it counts as beyond its limit."""


def failures(results: Results, measure: Callable[[str], Any]) -> list[str]:
    """What CI fails on: rows of ``calls`` that are too dear, and ratios that are beyond their limits each time, as the
    last time found. Scenarios that are not in ``results`` are not judged. ``measure`` measures one anew."""
    beyond = {one: said for one in RATIOS if one.scenario in results and (said := one.said(results))}
    for _ in range(TIMES - 1):
        anew = {name: measure(name) for name in dict.fromkeys(one.scenario for one in beyond)}
        beyond = {one: said for one in beyond if (said := one.said(anew))}
    calls = dearer(results.get("calls", {}))
    if results.get("calls") == {}:
        calls.append("calls beside the commit before: not measured")
    return [*calls, *beyond.values()]
