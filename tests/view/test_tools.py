"""Calls of tools by step."""

from __future__ import annotations

import statistics
from pathlib import Path

from starlette.testclient import TestClient

from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.tables.conditions import condition
from autotrace.trajectory.tool_calls import tool_calls
from autotrace.view.tools import by_step
from tests.run_folder import rollout
from tests.ship.spools import Process, new_run, trajectory


def test_the_figures_are_those_of_the_calls(client: TestClient, run: Path) -> None:
    (tool,) = client.get(f"/api/runs/{run.name}/tools").json()
    reader = of_run(run)
    calls = [call for row in reader.select() for call in tool_calls(reader.load(row.trace_id))]
    took = [(call.span.duration_ns or 0) / 1e9 for call in calls]
    failed = [call.span.span_id for call in calls if call.failed is not None]
    assert (tool["name"], tool["calls"], tool["failed"], tool["open"]) == ("search", len(calls), len(failed), 0)
    assert tool["p50"] == statistics.median(took)
    assert min(took) <= tool["p50"] <= tool["p99"] <= max(took)
    assert tool["steps"] == [1, 2] and tool["by_step"]["calls"] == [4, 4] and tool["by_step"]["failed"] == [1, 1]
    assert tool["failing"][1] in failed
    slowest = reader.load(tool["slowest"][0]).by_id[tool["slowest"][1]]
    assert (slowest.duration_ns or 0) / 1e9 == max(took)


def test_validation_does_not_count_and_a_tool_within_a_tool_is_one_call(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    process = Process(folder)
    trajectory(process, nested_tool=True)
    trajectory(process, validate=True)
    outer = trajectory(process, step=3, rollout=1)
    agent = process.open(outer, "agent")
    tool = process.open(outer, "tool", agent, inputs={"tool_call": {"name": "add"}})
    inner = process.open(outer, "tool", tool)
    process.close(outer, inner, status="ERROR", error=("ValueError", "no number", ""))
    process.close(outer, tool, output="sorry")
    process.close(outer, agent)
    process.exit()
    assert ship(folder, once=True).state == "done"
    reader = of_run(folder)
    (found,) = by_step(reader)
    calls = [call for row in reader.select(condition("not validate")) for call in tool_calls(reader.load(row.trace_id))]
    assert found["calls"] == len(calls) and found["failed"] == sum(call.failed is not None for call in calls)
    (first,) = by_step(reader, condition("step = 1"))
    assert first["steps"] == [1] and first["calls"] == 1


def test_an_open_call_is_counted_before_it_is_in_a_table(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    process = Process(folder)
    rollout(process, step=1, rollout=0, uid="u1", reward=1.0)
    trace = b"o" * 16
    root = process.open(trace, "trajectory", attributes={"step": 1})
    process.open(trace, "tool", process.open(trace, "agent", root), attributes={"tool_name": "search"})
    (found,) = by_step(of_run(folder))
    assert (found["calls"], found["open"], found["failed"]) == (2, 1, 0)


def test_a_run_without_tools(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    Process(folder).exit()
    assert by_step(of_run(folder)) == []
