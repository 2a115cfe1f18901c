"""What tracing costs a real engine: CPU time of its event loop, and throughput, with rounds that take turns."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from engine_run import LIMIT, Run, run

pytestmark = pytest.mark.timeout(LIMIT + 60)
ROUNDS, REQUESTS, TOKENS = 8, 64, 64
PER_REQUEST, PER_CHUNK = 60e-6, 0.3e-6
"""Budget: seconds of the event loop's thread."""


@pytest.fixture(scope="module")
def cost(tmp_path_factory: pytest.TempPathFactory, qwen: Path) -> Run:
    return run(tmp_path_factory.mktemp("vllm") / "cost", "vllm_cost.py", str(qwen), str(ROUNDS))


def named(cost: Run, kind: str) -> int:
    """Requests recorded of the rounds of this kind."""
    return sum(str(span["attributes"].get("request_id")).startswith(f"{kind}-") for span in cost.spans())


def test_a_request_stays_within_its_budget(cost: Run, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = list(zip(cost.found["with"], cost.found["without"], strict=True))
    chunks = pairs[0][0]["chunks"] / REQUESTS
    budget = PER_REQUEST + PER_CHUNK * chunks
    loop, process = (median(on[clock] - off[clock] for on, off in pairs) / REQUESTS for clock in ("thread", "process"))
    ratios = [pick(off["wall"] for _, off in pairs) / pick(on["wall"] for on, _ in pairs) for pick in (median, min)]
    with capsys.disabled():
        print(f"\n  event loop {loop * 1e6:.0f} us a request of {chunks:.0f} chunks (budget {budget * 1e6:.0f}),")
        print(f"  process {process * 1e6:.0f} us, throughput {ratios[0]:.3f} (median), {ratios[1]:.3f} (best rounds)")
    assert loop <= budget
    assert max(ratios) >= 0.98
    assert named(cost, "with") == ROUNDS * REQUESTS


def test_rounds_without_leave_nothing(cost: Run) -> None:
    assert named(cost, "without") == 0
