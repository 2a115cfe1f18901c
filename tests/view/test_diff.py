"""The lines of two runs that the page shows are those of ``autotrace diff``, and curves of a run without rollouts."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from starlette.testclient import TestClient

from autotrace.cli.main import main
from autotrace.ship.readers import of_run
from autotrace.view.app import application
from autotrace.view.open_runs import CURVES, POINTS
from tests.run_folder import recorded, rollout
from tests.ship.spools import Process, new_run


def test_the_page_has_the_lines_of_the_command_with_rollouts_to_open(tmp_path: Path) -> None:
    one = recorded(tmp_path, "one")
    other = new_run(tmp_path, "other")
    process = Process(other, run_id="other")
    for step in (1, 2):
        for number in range(4):
            rollout(process, step=step, rollout=number % 2, uid=f"u{step}{number // 2}", reward=1.0)
    process.exit()
    with TestClient(application(tmp_path)) as client:
        answer = client.get(f"/api/runs/{one.name}/diff/{other.name}").json()
        assert client.get(f"/api/runs/{one.name}/diff/missing").status_code == 404
    printed = CliRunner().invoke(main, ["diff", str(one), str(other)]).stdout
    for place, name in ((one, one.name), (other, other.name)):
        printed = printed.replace(str(place), name)
    for line, traces in answer["lines"]:
        assert " ".join([line, *(trace[:12] for _, trace in traces)]) in printed
    assert answer["runs"] == [one.name, other.name]
    assert any(line.startswith("first difference: ") for line, _ in answer["lines"])
    named = [(side, trace) for _, traces in answer["lines"] for side, trace in traces]
    assert {side for side, _ in named} == {0, 1}
    for side, trace in named:
        assert of_run((one, other)[side]).load(trace).trace_id == trace


def test_metrics_alone_are_curves(tmp_path: Path) -> None:
    names = [f"m{number:03}" for number in range(CURVES + 9)]
    lines = [",".join(["step", *names, "timing_s/step"])]
    lines += [",".join([str(step), *([str(step / 7)] * len(names)), "3"]) for step in range(POINTS + 100)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    with TestClient(application(tmp_path)) as client:
        (run,) = client.get("/api/runs").json()["runs"]
        found = client.get(f"/api/runs/{run['run']}/findings").json()
    assert (found["metrics"], found["trajectories"]) == (len(names) + 1, 0)
    assert [one["title"] for one in found["curves"]] == names[:CURVES]
    curve = found["curves"][0]
    assert len(curve["steps"]) == len(curve["middle"]) <= POINTS and curve["middle"][3] == curve["steps"][3] / 7
