"""Whoever counts trajectories, turns and tool calls counts the same, also while they are open."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from autotrace.run.status import Status
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.tables.conditions import condition
from autotrace.tables.writer import TableWriter
from tests.ship.spools import Process, new_run
from tests.tables.test_writer import RUN, made


def asked(run: Path, sql: str) -> list[dict[str, Any]]:
    """The rows of the answer."""
    reader = of_run(run)
    try:
        answer = reader.sql(sql)
        return [dict(zip(answer.names, row, strict=True)) for row in answer.rows()]
    finally:
        reader.close()


def test_what_agents_of_ones_own_do_is_a_trajectory_for_all(tmp_path: Path) -> None:
    run, given = new_run(tmp_path), tmp_path / "given"
    process, late = Process(run), bytes(15) + b"\xff"
    for number, role in enumerate(("agent", "agent", "trajectory", "span", "trainer")):
        trace = bytes(15) + bytes([number + 1])
        process.close(trace, process.open(trace, role))
    root = process.open(late, "agent")
    process.close(late, root)
    assert ship(run, once=True).trajectories == 5
    process.close(late, process.open(late, "tool", root))  # a new version of it
    process.exit()
    status: Status = ship(run, once=True)
    assert status.trajectories == 5
    assert asked(run, "SELECT count(*) AS n FROM trajectories") == [{"n": 5}]
    shutil.copytree(run / "tables", given / "tables")
    reader = of_run(given)
    assert reader.run.status().trajectories == 5
    reader.close()


def test_open_trajectories_are_counted_by_the_same_rules(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    process, trace = Process(run), b"\x07" * 16
    root = process.open(trace, "trajectory")
    agent = process.open(trace, "agent", root)
    turn = process.open(trace, "llm", agent)
    inner = process.open(trace, "llm", turn)  # a client below the agent's own
    process.close(trace, inner)
    process.close(trace, turn)
    tool = process.open(trace, "tool", agent)
    process.open(trace, "tool", process.open(trace, "span", tool))
    process.open(trace, "llm", tool)
    judge = process.open(trace, "reward", root)
    process.open(trace, "llm", judge)
    process.open(trace, "tool", judge)
    quick = asked(run, "SELECT llm_calls, tool_calls, status FROM trajectories")
    whole = asked(run, "SELECT llm_calls, tool_calls, status, finish_reasons FROM trajectories")
    assert quick == [{"llm_calls": 1, "tool_calls": 1, "status": "OPEN"}]
    assert [quick[0] | {"finish_reasons": whole[0]["finish_reasons"]}] == whole


def test_a_fact_has_one_value_whatever_else_is_asked(tmp_path: Path) -> None:
    TableWriter(tmp_path, RUN).write([made(reward_extra_info={}, num_turns=3), made(sample=18)])
    TableWriter(tmp_path, RUN).write([made(sample=18, version=2, num_turns=1e30)])
    reader = of_run(tmp_path)
    for beside in ((), ("facts",)):
        (row,) = reader.select(condition("num_turns is not null"), ("num_turns", "reward_extra_info", *beside))
        assert (row.num_turns, row.reward_extra_info) == (3, None)
    reader.close()
