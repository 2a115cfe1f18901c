"""A late fact travels alone: no call of its trajectory is read, assembled or delivered again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autotrace.ship.assembly.loader import Loader
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.sinks import registry
from tests.ship.spools import Process, new_run, trajectory


def told(run: Path, number: int, *facts: tuple[bytes, str, Any]) -> None:
    """Another process reports ``facts``, and what is there is delivered."""
    process = Process(run, f"node-1-told{number}")
    for trace, name, value in facts:
        process.fact(name, value, trace)
    process.exit()
    assert ship(run, once=True).state == "done"


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The traces that were assembled, in order."""
    seen: list[str] = []
    assemble: Callable[..., Any] = Loader._assembled

    def counting(self: Loader, trace_id: str, *given: Any) -> Any:
        seen.append(trace_id)
        return assemble(self, trace_id, *given)

    monkeypatch.setattr(Loader, "_assembled", counting)
    return seen


def test_nothing_is_assembled_for_a_late_fact(tmp_path: Path, assembled: list[str]) -> None:
    run = new_run(tmp_path, backends=[])
    process = Process(run)
    traces = [trajectory(process, uid="u", rollout=number, reward=None) for number in range(4)]
    process.exit()
    assert ship(run, once=True).state == "done"
    assert sorted(assembled) == sorted(trace.hex() for trace in traces)
    told(run, 1, *((trace, "reward", float(number)) for number, trace in enumerate(traces)))
    told(
        run, 2, *((trace, "advantage", number - 1.5) for number, trace in enumerate(traces)), (traces[0], "reward", 9.0)
    )
    assert len(assembled) == len(traces)
    with closing(of_run(run)) as reader:
        found = {row.trace_id: row for row in reader.select(columns=("trace_id", "reward", "advantage", "chains"))}
        assert [found[trace.hex()].reward for trace in traces] == [9.0, 1.0, 2.0, 3.0]
        assert [found[trace.hex()].advantage for trace in traces] == [-1.5, -0.5, 0.5, 1.5]
        chains = reader.sql("SELECT trace_id, reward, turns, tokens FROM chains ORDER BY trace_id").rows()
        assert len(chains) == 4 and {(turns, tokens is None) for _, _, turns, tokens in chains} == {(2, False)}
        whole = reader.load(traces[0].hex())
        assert whole.facts["reward"] == 9.0 and len(whole.llm_spans) == 2


def test_a_backend_that_needs_the_calls_gets_them_with_the_fact(
    tmp_path: Path, assembled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of JSON takes the fact alone. A backend of another package may know no late facts at all."""
    run = new_run(tmp_path)
    process = Process(run)
    trace = trajectory(process, reward=None)
    process.exit()
    assert ship(run, once=True).state == "done"
    told(run, 1, (trace, "reward", 0.5))
    made = registry.make

    class Bare:
        """A sink as packages wrote it before there was such a method."""

        def __init__(self, sink: Any) -> None:
            for name in ("name", "sent", "deliver", "bind", "size", "page", "close"):
                setattr(self, name, getattr(sink, name))

    monkeypatch.setattr(registry, "make", lambda *given: Bare(made(*given)))
    told(run, 2, (trace, "advantage", 0.25))
    (line,) = map(json.loads, (run / "trajectories.jsonl").read_text().splitlines())
    assert (line["facts"]["reward"], line["facts"]["advantage"]) == (0.5, 0.25) and len(line["spans"]) > 3
    assert len(assembled) == 2


def test_a_step_shows_what_a_late_reward_says(tmp_path: Path) -> None:
    run = new_run(tmp_path, backends=[])
    process = Process(run)
    traces = [trajectory(process, uid="u", rollout=number, reward=None) for number in range(3)]
    process.exit()
    assert ship(run, once=True).state == "done"
    first, second, _ = traces
    told(run, 1, (first, "reward", math.nan), (second, "reward_extra_info", {"error": "judge is gone"}))
    with closing(of_run(run)) as reader:
        found = {row.trace_id: row.findings or [] for row in reader.select(columns=("trace_id", "findings"))}
    assert "AT-REWARD-NAN" in found[first.hex()] and "AT-REWARD-RAISES" in found[second.hex()]
