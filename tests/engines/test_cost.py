"""What tracing costs a real engine: CPU time of its event loop, throughput, and what its counters add to a step.

The budgets are seconds of a core at the speed of the machine that they were measured on, as in ``make bench``. Rounds
with and without tracing take turns, and each is brought to that speed by what the machine did just before and after.

Whether the budget is met is printed; the test fails where a request costs the event loop a quarter more than without
tracing, as rounds of the same kind differ by that much on a shared machine, or where throughput is lower by more than
rounds of one kind differ. A generator that does nothing but pass chunks on is measured beside it: what no wrapper can
avoid.
"""

from __future__ import annotations

from math import exp, hypot, log
from statistics import median, quantiles

import pytest
from engine_run import LIMIT, Run, installed, run

from benchmarks.budgets import REFERENCE_NS

pytestmark = pytest.mark.timeout(LIMIT + 60)
LIVE, REPLAYED, REQUESTS = 24, 80, 64
PER_REQUEST, PER_CHUNK, PER_STEP = 60e-6, 0.3e-6, 1e-6
ROOM, MOST = 2, 1.25
RATIO = 0.98
"""Throughput with tracing over throughput without."""
Rounds = dict[str, list[dict[str, float]]]


@pytest.fixture(scope="module")
def cost(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Run:
    engine, model = ("vllm", "qwen") if installed("vllm") else ("sglang", "llama")
    folder = tmp_path_factory.mktemp(engine) / "cost"
    return run(folder, f"{engine}_cost.py", str(request.getfixturevalue(model)), str(LIVE), str(REPLAYED))


def recorded(cost: Run, kind: str) -> int:
    """Requests recorded of the rounds of this kind."""
    ids = [str(span["attributes"].get("request_id")) for span in cost.spans()]
    return sum(found.startswith((f"live-{kind}-", f"replayed-{kind}-")) for found in ids)


def of_a_request(rounds: list[dict[str, float]], clock: str) -> tuple[float, float]:
    """Microseconds of ``clock`` for a request at the speed of the budgets: the median of the rounds, each by its own
    speed; and its standard error, from the quartiles.

    An engine whose front end lags behind merges chunks, and such a round costs less: those are left out.
    """
    whole = max(one["chunks"] for one in rounds)
    found = [1e6 * one[clock] * REFERENCE_NS / one["speed_ns"] / REQUESTS for one in rounds if one["chunks"] == whole]
    assert len(found) >= len(rounds) // 4, "this machine has too much other work to measure anything"
    low, middle, high = quantiles(found, n=4)
    return middle, 1.25 * (high - low) / 1.35 / len(found) ** 0.5


def slower(rounds: Rounds) -> float:
    """How many times as long this machine takes as the one of the budgets."""
    return median(one["speed_ns"] for found in rounds.values() for one in found) / REFERENCE_NS


def more(rounds: Rounds, kind: str, clock: str = "thread") -> tuple[float, float]:
    """What a request of this kind takes over one without tracing, and the standard error of that (microseconds)."""
    (took, error), (bare, other) = of_a_request(rounds[kind], clock), of_a_request(rounds["without"], clock)
    return took - bare, (error**2 + other**2) ** 0.5


def test_what_a_request_costs_the_event_loop(cost: Run, capsys: pytest.CaptureFixture[str]) -> None:
    live, rounds = cost.found["live"], cost.found["replayed"]
    chunks = max(one["chunks"] for one in rounds["without"]) / REQUESTS
    budget = 1e6 * (PER_REQUEST + PER_CHUNK * chunks)
    added, error = more(rounds, "with")
    bare, _ = of_a_request(rounds["without"], "thread")
    with capsys.disabled():
        print(f"\n  event loop: {added:.0f} ± {error:.0f} us a request of {chunks:.0f} chunks", end=" ")
        print(f"(budget {budget:.0f}: {'met' if added <= budget else 'NOT MET'}) on {bare:.0f} us;", end=" ")
        print("a generator that does nothing: {:.0f} ± {:.0f}".format(*more(rounds, "passed on")), end="; ")
        print("beside the engine's other processes {:.0f} ± {:.0f}".format(*more(live, "with")))
        print(f"  at the speed of the budgets; this machine takes {slower(rounds):.2f} times as long")
    assert of_a_request(rounds["with"], "thread")[0] <= MOST * bare


def throughput(cost: Run) -> tuple[float, float]:
    """Logarithm of the throughput with tracing over that without, and its standard error (medians, quartiles)."""
    centre, error = [], []
    for kind in ("with", "without"):
        low, middle, high = quantiles((log(one["wall"]) for one in cost.found["live"][kind]), n=4)
        centre.append(middle)
        error.append(1.25 * (high - low) / 1.35 / LIVE**0.5)
    return centre[1] - centre[0], hypot(*error)


def test_throughput_is_what_it_was(cost: Run, capsys: pytest.CaptureFixture[str]) -> None:
    ratio, error = throughput(cost)
    with capsys.disabled():
        print(f"\n  throughput with / without: {exp(ratio):.3f} ({exp(ratio - error):.2f} to {exp(ratio + error):.2f})")
        print(f"  budget {RATIO}: {'met' if exp(ratio) >= RATIO else 'NOT MET'}")
    assert exp(ratio + 3 * error) >= RATIO - 0.03, "slower, and by more than rounds of one kind differ"


def test_what_counters_add_to_a_step(cost: Run, capsys: pytest.CaptureFixture[str]) -> None:
    told = ", ".join(f"{name} {seconds * 1e6:.2f} us" for name, seconds in cost.found["step"].items())
    with capsys.disabled():
        print(f"\n  added to a step: {told} (budget {1e6 * PER_STEP:.0f})")
    assert all(seconds > 0 for seconds in cost.found["step"].values()), "the engine's methods are wrapped"
    assert sum(cost.found["step"].values()) <= ROOM * PER_STEP * slower(cost.found["live"])


def test_rounds_with_are_recorded_and_rounds_without_leave_nothing(cost: Run) -> None:
    assert (recorded(cost, "with"), recorded(cost, "without")) == ((LIVE + REPLAYED) * REQUESTS, 0)
