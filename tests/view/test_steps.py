"""What the page shows of training steps."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from autotrace.view.app import application
from tests.ship.spools import Process, attributes, new_run
from tests.view.test_app import NAME, served


def test_the_findings_of_each_step(client: TestClient) -> None:
    found = client.get(f"/api/runs/{NAME}/findings").json()
    assert found["steps"].keys() == {"1", "2"}
    assert found["steps"]["1"]["AT-TRUNCATED"] == 1
    assert all(found["titles"][code] for codes in found["steps"].values() for code in codes)


def test_the_rollouts_of_a_step_with_what_they_waited_for(client: TestClient) -> None:
    step = client.get(f"/api/runs/{NAME}/steps/1").json()
    assert len(step["rollouts"]) == 4 and step["left_out"] == 0
    assert step["rollouts"][0]["start"] == 0 and all(one["duration"] > 0 for one in step["rollouts"])
    kinds = [step["kinds"][part[0]] for part in step["rollouts"][0]["parts"]]
    # the first turn's engine reported its phases, the second turn's did not
    assert kinds == ["queue", "prefill", "decode", "tool", "llm"]
    ((replica, phases),) = step["rollouts"][0]["requests"]
    assert replica == step["rollouts"][0]["worker"] == "node:1"
    assert [length for _, _, length in phases] == [0.25, 0.25, 1.0]


def test_a_call_that_is_open_and_a_step_before_the_first(tmp_path: Path) -> None:
    folder = new_run(tmp_path, NAME)
    process = Process(folder)
    root = process.open(b"\1" * 16, "trajectory", attributes=attributes(step=-1))
    process.open(b"\1" * 16, "tool", root)
    with served(folder) as client:
        (one,) = client.get(f"/api/runs/{NAME}/steps/-1").json()["rollouts"]
        assert one["duration"] is None and [part[0] for part in one["parts"]] == [6]
        assert client.get(f"/api/runs/{NAME}/steps/99").json()["rollouts"] == []
        assert client.get(f"/api/runs/{NAME}/steps/x").status_code == 404
        assert client.get(f"/api/runs/{NAME}/findings").status_code == 200


def test_a_model_that_a_tool_asks_is_part_of_the_tool(tmp_path: Path) -> None:
    folder = new_run(tmp_path, NAME)
    process = Process(folder)
    trace = b"\1" * 16
    root = process.open(trace, "trajectory", attributes=attributes(step=3))
    tool = process.open(trace, "tool", root)
    process.close(trace, process.open(trace, "llm", tool))
    process.close(trace, tool)
    process.close(trace, root)
    process.exit()
    with TestClient(application(folder)) as client:
        step = client.get(f"/api/runs/{NAME}/steps/3").json()
    assert [step["kinds"][part[0]] for part in step["rollouts"][0]["parts"]] == ["tool"]
