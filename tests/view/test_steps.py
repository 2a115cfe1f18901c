"""What the page shows of training steps."""

from __future__ import annotations

import contextlib
from pathlib import Path

from starlette.testclient import TestClient

from autotrace.insight.words import amount
from autotrace.ship.readers import of_run
from autotrace.tables import steps as query
from autotrace.view.app import application
from autotrace.view.open_runs import findings
from tests.insight.made import diagnose
from tests.ship.spools import Process, attributes, new_run
from tests.view.test_app import NAME, served


def test_the_findings_of_each_step(client: TestClient) -> None:
    found = client.get(f"/api/runs/{NAME}/findings").json()
    assert found["steps"].keys() == {"1", "2"}
    assert found["steps"]["1"]["AT-TRUNCATED"] == 1
    assert all(found["titles"][code] for codes in found["steps"].values() for code in codes)


def test_the_findings_are_those_of_diagnose(client: TestClient, run: Path) -> None:
    answer = client.get(f"/api/runs/{NAME}/findings").json()
    with contextlib.closing(of_run(run)) as reader:
        said = diagnose(query.steps(reader, texts=True))
    assert [one["code"] for one in answer["found"]] == [one.code for one in said] != []
    assert [one["amount"] for one in answer["found"]] == [amount(one) for one in said]
    for one, finding in zip(answer["found"], said, strict=True):
        assert [place["trace_id"] for place in one["places"]] == [place.trace_id for place in finding.places]
        assert dict(one["lines"])["fix"] == finding.remedy and one["since_step"] == finding.since_step
    curves = {one["title"]: (one["steps"], one["middle"]) for one in answer["curves"]}
    assert curves["reward, mean"] == ([1, 2], [0.375, 0.375]) and [*curves] == ["reward, mean", "acc", "format"]
    assert [curves[part][1][0] for part in ("acc", "format")] == [0.25, 0.25] and answer["trajectories"] == 8


def test_the_findings_of_some_trajectories_name_no_others(run: Path) -> None:
    with contextlib.closing(of_run(run)) as reader:
        rows = [row for row in reader.select() if row.step == 1 and row.reward < 0.5]
        found = findings(reader, rows)
        fine = findings(reader, [row for row in rows if row.reward == 0.25])
    assert found["steps"].keys() == {"1"} and found["trajectories"] == 3
    assert (fine["found"], fine["trajectories"]) == ([], 2), "another rollout of the step was cut"
    assert fine["curves"][0] == {"title": "reward, mean", "steps": [1], "middle": [0.25]}
    named = {place["trace_id"] for one in found["found"] for place in one["places"]}
    assert found["found"] and named <= {row.trace_id for row in rows}


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
