"""The scenarios: each asks a ``Bench`` for measurements and returns what goes into the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.bench import Bench
from benchmarks.calls import calls
from benchmarks.delivery import delivery
from benchmarks.processes import rollout, startup, volume

Result = dict[str, Any]

ALL = ("bare call", "functools.wraps", "wrapt", "veRL, no backend", "autotrace off", "autotrace not sampled",
       "autotrace", "OpenTelemetry", "ddtrace", "mlflow.trace", "weave.op")  # fmt: skip
BRIEF = ("bare call", "functools.wraps", "autotrace off", "autotrace not sampled", "autotrace", "OpenTelemetry")


def small(bench: Bench) -> Result:
    """A small call: off, not sampled, recorded; every kind of function."""
    names = BRIEF if bench.short else ALL
    number = 9 if bench.short else 13
    found: Result = {}
    for kind in ("sync", "coroutine", "stream", "async_stream"):
        found[kind] = bench.rounds(names, number, "small", kind=kind)
    found["sync, a trace of its own"] = bench.rounds(names, number, "small", kind="sync", root=True)
    bench.release()
    return found


CALLS = 16
"""LLM calls one after the other: more than a worker makes before the flusher's next turn, and their copies would be
more memory than it keeps."""


def llm(bench: Bench) -> Result:
    """One call of the LLM client, with 4 KB of messages."""
    shapes = [(2_000, 2_000), (8_000, 2_000), (32_000, 8_000)]
    names = [
        "bare call",
        "copies of the lists",
        "autotrace",
        "autotrace, logprobs",
        "mlflow.trace",
        "veRL on MLflow",
        "weave.op",
        "veRL on Weave",
    ]
    if bench.short:
        shapes, names = shapes[:1], ["bare call", "copies of the lists", "autotrace", "veRL on MLflow"]
    found: Result = {}
    for prompt, response in shapes:
        number = 9 if bench.short else 19
        found[f"{prompt // 1000}k+{response // 1000}k"] = bench.rounds(
            names, number, "llm", most=CALLS, prompt=prompt, response=response, logprobs=True
        )
    bench.release()
    return found


def chat(bench: Bench) -> Result:
    """A call that passes a whole conversation."""
    names = ["bare call", "copy.deepcopy", "autotrace", "OpenTelemetry", "mlflow.trace", "weave.op"]
    if bench.short:
        names = names[:3]
    shapes = {"200 nested messages": (200, True, 2), "40 plain messages": (40, False, 2)}
    if not bench.short:
        shapes["200 nested messages, all of them new"] = (200, True, 200)
    found: Result = {}
    for shape, (messages, nested, new) in shapes.items():
        number = 9 if bench.short else 19
        found[shape] = bench.rounds(names, number, "chat", most=50, messages=messages, nested=nested, new=new)
    bench.release()
    return found


def streamed(bench: Bench) -> Result:
    """A chunk of a streamed answer, through the real client of openai and through httpx without one."""
    ours = "autotrace, shipped lists"
    names = {
        "openai": ["bare call", ours, "mlflow.openai.autolog", "OpenTelemetry, openai"],
        "httpx": ["bare call", ours],
    }
    number = 9 if bench.short else 25
    found = {client: bench.rounds(which, number, "streamed", client=client) for client, which in names.items()}
    bench.release()
    return found


def timeouts(bench: Bench) -> Result:
    """How late the exception of a signal handler arrives."""
    return {name: bench.once(name, "timeouts", number=400) for name in ("bare call", "autotrace")}


def concurrent(bench: Bench) -> Result:
    """Many trajectories in one event loop."""
    shape = {"turns": 4, "prompt": 2_000, "response": 256, "seconds": 1.0}
    found: Result = {}
    for name, repeats in (("bare call", 3), ("autotrace not sampled", 1), ("autotrace", 3)):
        runs = [bench.once(name, "concurrent", trajectories=1_000, stagger=2.0, **shape) for _ in range(repeats)]
        found[f"{name}, 1000 trajectories"] = _middle([run for run in runs if run is not None])
    for name, fewer, turns in (("veRL on MLflow", 250, 4), ("veRL on Weave", 50, 1)):
        found[f"{name}, {fewer} trajectories"] = bench.once(
            name, "concurrent", trajectories=fewer, stagger=2.0, **shape | {"turns": turns}
        )
    for name in ("bare call", "autotrace"):
        found[f"{name}, 10000 trajectories"] = bench.once(
            name, "concurrent", trajectories=10_000, stagger=10.0, **shape | {"seconds": 3.0}
        )
    return found


def _middle(runs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The run with the median of the longest stalls, and all of these."""
    if not runs:
        return None
    ordered = sorted(runs, key=lambda run: float(run["stall_max_ms"]))
    return {**ordered[len(ordered) // 2], "stalls_ms": [round(run["stall_max_ms"], 2) for run in runs]}


def growth(bench: Bench) -> Result:
    """One trajectory of 50 turns."""
    turns = 20 if bench.short else 50
    options = {"turns": turns, "prompt": 1_000, "response": 600}
    return {"turns": turns, **options, "autotrace": bench.once("autotrace", "growth", **options)}


SHORT = ("calls", "small", "llm", "chat", "streamed", "volume", "startup")
"""What the short form measures."""
SCENARIOS: dict[str, Callable[[Bench], Result]] = {
    "calls": calls,
    "small": small,
    "llm": llm,
    "chat": chat,
    "streamed": streamed,
    "timeouts": timeouts,
    "concurrent": concurrent,
    "growth": growth,
    "volume": volume,
    "startup": startup,
    "rollout": rollout,
    "delivery": delivery,
}
"""In the order of the report."""
