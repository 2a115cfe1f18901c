"""What goes where, and who decides: sampling, links to runs, veRL's switches, budgets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from launches import LOGGERS, SAMPLES, Launch, autotrace
from proxy import Proxy
from read import ReadBack, found_in_mlflow, mlflow_of, weave_of

pytestmark = [pytest.mark.timeout(1200), pytest.mark.backends]  # the first test waits for the runs

Runs = dict[tuple[str, str], Launch]
Told = Any
"""pytest's ``record_property``."""


@pytest.mark.row("sampling")
def test_exactly_n_samples_of_each_worker_and_the_same_again(
    runs: Runs, both: Launch, release: str, record_property: Told
) -> None:
    rows = [one.attributes for one in both.recorded.values()]
    assert len(rows) == SAMPLES * both.workers * both.n == 80
    assert set(Counter(row["uid"] for row in rows).values()) == {both.n}, "whole groups"
    chosen = {int(row["sample_index"]) for row in rows}
    assert len(chosen) == 20
    share = both.prompts * both.n / both.workers
    workers = [8, 16, 24, 30] if release == "V1" else None
    if workers is None:  # the classic trainer cuts the batch without looking: 7.5 groups a worker
        place = {100 + prompt: prompt * both.n for prompt in range(both.prompts)}
        assert all(place[sample] // share == (place[sample] + both.n - 1) // share for sample in chosen)
        per_worker = Counter(place[sample] // share for sample in chosen)
    else:
        per_worker = Counter(sum(sample - 100 >= end for end in workers) for sample in chosen)
    assert set(per_worker.values()) == {SAMPLES}
    for kind in ("weave", "mlflow"):
        again = {int(one.attributes["sample_index"]) for one in runs[release, kind].recorded.values()}
        assert again == chosen, "veRL's own switch, another run, other group keys"
    record_property("note", f"{release}: 80 of 120, the same 20 samples again")


@pytest.mark.row("link to the run")
@pytest.mark.parametrize("kind", ["both", "mlflow", "weave"])
def test_trajectories_are_linked_to_the_run_that_the_logger_opened(
    runs: Runs, release: str, kind: str, read_back: ReadBack, record_property: Told
) -> None:
    launch = runs[release, kind]
    opened = launch.truth["runs"]
    backends = list(launch.status()["backends"])
    if "mlflow" in backends:
        linked = found_in_mlflow(launch, run_id=opened["mlflow"]) if "mlflow" in opened else set()
        everything = mlflow_of(launch)
        assert linked == {one.trace_id for one in everything if "mlflow" in opened}
        assert {one.run for one in everything} == {opened.get("mlflow")}
    if "weave" in backends:
        expected = f"dev/{launch.project}/{opened['wandb']}" if "wandb" in opened else None
        assert {one.run for one in weave_of(read_back, launch)} == {expected}


@pytest.mark.row("veRL's switches")
@pytest.mark.parametrize("kind", ["weave", "mlflow"])
def test_verls_switches_are_followed_where_no_flag_says_otherwise(
    runs: Runs, release: str, kind: str, read_back: ReadBack, record_property: Told
) -> None:
    launch = runs[release, kind]
    assert list(launch.status()["backends"]) == [kind]
    assert len(launch.recorded) == 80, "max_samples_per_step_per_worker is veRL's"
    delivered = launch.status()["backends"][kind]["delivered"]
    here, there = mlflow_of(launch), weave_of(read_back, launch) if kind == "weave" else []
    assert (bool(here), bool(there)) == (kind == "mlflow", kind == "weave"), "once, and nowhere else"
    trainers = delivered - len(here) - len(there)
    assert 0 <= trainers <= 5
    assert all(one.texts["response_text"] for one in here + there)
    shown = autotrace(launch, "status", str(launch.run))
    older = release == "0.7.1" and kind == "weave"
    key = "trainer.rollout_trace" if older else "actor_rollout_ref.rollout.trace"
    for name in ("backend", "token2text", "max_samples_per_step_per_worker"):
        assert f"(veRL's {key}.{name})" in shown
    logger = "+".join(LOGGERS[kind][release]) or "no logger"
    record_property("note", f"{release}: {kind} with {logger}")


@pytest.mark.row("veRL's switches")
def test_flags_win_over_verls_switches(both: Launch, read_back: ReadBack) -> None:
    assert set(both.status()["backends"]) == {"mlflow", "weave"}, "not weave alone, as veRL's switch has it"
    assert len(both.recorded) == 80, "five samples a worker, not veRL's three"
    shown = autotrace(both, "status", str(both.run))
    assert "(option --backend)" in shown
    assert "max_samples_per_step_per_worker  5  (option --max-samples-per-step-per-worker)" in shown


@pytest.mark.row("budgets")
@pytest.mark.parametrize("kind", ["weave", "mlflow"])
def test_a_budget_holds(
    runs: Runs, release: str, kind: str, read_back: ReadBack, weave_proxy: Proxy, record_property: Told
) -> None:
    launch = runs[release, kind]
    told = launch.status()["backends"][kind]
    budget = told["step_budget"]
    delivered = weave_of(read_back, launch) if kind == "weave" else mlflow_of(launch)
    groups = Counter(one.attributes["uid"] for one in delivered)
    assert set(groups.values()) == {launch.n}, "whole groups"
    assert 0 < len(groups) < 20
    assert told["over_budget"] == 80 - len(delivered)
    sizes = [told["sent_bytes"]]
    if kind == "weave":
        path = f"/v2/dev/{launch.project}/calls/complete"
        sizes.append(sum(size for taken, size in weave_proxy.taken if taken == path))
    group = budget / 10
    for size in sizes:
        assert budget - 1.5 * group <= size <= 1.05 * budget, "as full as whole groups allow, and never over by 5 %"
    assert f"{80 - len(delivered)} over the budget" in autotrace(launch, "status", str(launch.run))
    record_property("note", f"{release} {kind}: {sizes[-1] / budget:.0%}")
