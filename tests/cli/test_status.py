"""``autotrace status``: what happened to every target, to every record, and what to change."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autotrace.config.plan import Plan, Target
from autotrace.run.info import find_runs
from autotrace.run.status import BackendStatus, Status
from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run, trajectory


def advice(call: Call) -> str:
    return "\n".join(json.loads(call("status", "--json").output)["advice"])


def test_every_target_and_what_became_of_it(call: Call, runs: Path) -> None:
    folder = new_run(runs, origins={"backends": "option --backend"})
    keys = ("a.called", "b.idle", "c.broken", "d.route", "e.absent")
    (folder / "plan.json").write_text(Plan(tuple(Target(key, (key,)) for key in keys)).dumps())
    process = Process(folder)
    process.report("a.called", "bound")
    process.report("b.idle", "bound")
    process.report("c.broken", "failed", "no attribute broken")
    process.report("d.route", "refused", "a FastAPI route")
    process.count({"a.called": 1200}, {"drop:memory_limit": 3})
    process.open(b"short", "tool")
    process.exit()

    found = call("status").output
    lines = {key: next((line for line in found.splitlines() if line.strip().startswith(key)), "") for key in keys}
    assert "bound" in lines["a.called"] and "1,200" in lines["a.called"]
    assert "never called" in lines["b.idle"]
    assert "failed" in lines["c.broken"] and "no attribute broken" in lines["c.broken"]
    assert "refused" in lines["d.route"] and "a FastAPI route" in lines["d.route"]
    assert lines["e.absent"] == ""
    assert "1 target (e) in modules that no traced process imported" in found
    assert "pending" in next(line for line in call("status", "--all").output.splitlines() if "e.absent" in line)
    assert "option --backend" in found
    assert "! 3 trajectories not recorded: more waited to be written" in found
    assert found.splitlines()[1] == "! 1 record that the shipper could not use: invalid record"


def test_a_path_that_was_absent_in_every_call_of_every_process_is_said(call: Call, runs: Path) -> None:
    folder = new_run(runs)
    reward, score = "facts.reward: result.reward (mine.yaml:4)", "facts.score: result.score (mine.yaml:5)"
    counts = [{reward: (10, 10), score: (20, 20)}, {reward: (20, 20), score: (9, 10), "id: x (mine.yaml:6)": (0, 0)}]
    for number, paths in enumerate(counts):
        process = Process(folder, f"node-{number}-aa")
        process.count({"a.score": 30}, {}, paths)
        process.exit()
    assert f"! path absent in 30 of 30 calls: {reward}" in call("status").output
    assert advice(call) == f"path absent in 30 of 30 calls: {reward}"
    assert json.loads(call("status", "--json").output)["status"]["absent"] == {reward: 30}


def test_a_misspelt_name_is_shown_with_what_was_meant(call: Call, runs: Path) -> None:
    folder = new_run(runs)
    (folder / "plan.json").write_text(Plan((Target("agents.Agnet.run", ("agents.Agnet.run",)),)).dumps())
    process = Process(folder)
    process.report("agents.Agnet.run", "pending", "agents has no `Agnet` yet; did you mean `Agent`?")
    process.exit()
    found = call("status").output
    assert "did you mean `Agent`?" in found
    assert "no traced process imported" not in found


def test_targets_of_the_users_stand_first_also_when_nothing_became_of_them(call: Call, runs: Path) -> None:
    folder = new_run(runs)
    mine = Target("tools.Search.run", ("tools.Search.run",), "mine.yaml:3")
    shipped = Target("a.b", ("a.b",), "patch_specs/verl.yaml:1")
    (folder / "plan.json").write_text(Plan((shipped, mine)).dumps())
    process = Process(folder)
    process.report("a.b", "bound")
    process.exit()
    shown = call("status").output
    assert shown.index("tools.Search.run") < shown.index("a.b")
    assert "no traced process imported its module (mine.yaml:3)" in shown


def test_shipped_targets_for_other_releases_are_no_news(call: Call, runs: Path) -> None:
    folder = new_run(runs)
    gate = {"versions": "verl>=0.4,<0.9"}
    targets = (
        Target("verl.Old.run", ("verl.Old.run",), where="patch_specs/verl.yaml:3", **gate),
        Target("verl.Endless.run", ("verl.Endless.run",), where="patch_specs/verl.yaml:4", **gate),
        Target("mine.Old.run", ("mine.Old.run",), where="mine.yaml:1", **gate),
    )
    (folder / "plan.json").write_text(Plan(targets).dumps())
    process = Process(folder)
    for key in ("verl.Old.run", "mine.Old.run"):
        process.report(key, "refused", "for verl>=0.4,<0.9, installed is 0.9.1")
    process.report("verl.Endless.run", "refused", "it is an endless loop")
    process.exit()
    found = call("status").output
    assert (
        "verl.Old.run" not in found and "1 target (verl) for other releases of their library; shown with --all" in found
    )
    assert "2 targets refused: verl.Endless.run, mine.Old.run" in advice(call) or (
        "2 targets refused: mine.Old.run, verl.Endless.run" in advice(call)
    )
    assert "installed is 0.9.1" in next(
        line for line in call("status", "--all").output.splitlines() if "verl.Old.run" in line
    )


def test_a_program_without_verl_is_told_where_its_traces_go(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    shown = call("status").output
    assert re.search(r"project +autotrace unless veRL's configuration names one", shown)
    trajectory(process, project_name=None, experiment_name=None)
    process.exit()
    call("ship")
    shown = call("status").output
    assert re.search(r"project +autotrace +\(default; no veRL ran, --project names one\)", shown)
    assert re.search(r"experiment +none +\(default; no veRL ran, --experiment names one\)", shown)


def test_delivery_is_told_by_backend(call: Call, run: Path) -> None:
    assert "jsonl    0 delivered, 5 to deliver" in call("status").output
    call("ship", run)
    assert "jsonl    5 delivered, 0 to deliver" in call("status").output


def test_a_short_run_says_nothing_about_a_day(call: Call, run: Path) -> None:
    call("ship", run)
    assert re.search(r"kB sent\n", call("status").output)
    assert json.loads(call("status", "--json").output)["status"]["backends"]["jsonl"]["gb_a_day"] == 0


def test_how_much_was_sent_and_what_that_comes_to(call: Call, run: Path) -> None:
    process = Process(run, "node-2-bb")
    process.at += 3_600_000_000_000
    trajectory(process, step=3)
    process.exit()
    call("ship", run)
    shown = call("status").output
    backend = json.loads(call("status", "--json").output)["status"]["backends"]["jsonl"]
    size = (run / "trajectories.jsonl").stat().st_size
    assert backend["sent_bytes"] == size
    assert backend["gb_a_day"] > 0
    assert re.search(r"kB sent, [\d.,]+ GB a day at this rate\n", shown)


@pytest.mark.parametrize(
    ("binds", "said"),
    [
        ({"config": {"rollout_mode": "sync"}}, "set actor_rollout_ref.rollout.mode=async"),
        ({"dataset": {"columns": ["prompt", "data_source"]}}, "agent_name: tool_agent"),
        ({"config": {"nnodes": 4}}, "trainer.nnodes=4, and only node wrote"),
        ({"config": {"nnodes": 4}}, "install autotrace for their interpreter"),
        ({"verl_trace": {"backend": "trackio"}}, "autotrace does not deliver to trackio: what it recorded is in jsonl"),
        ({"verl_trace": {"backend": "weave"}}, "and nothing was delivered there: --backend weave"),
    ],
)
def test_advice_where_verl_is_set_up_so_that_nothing_appears(
    call: Call, runs: Path, binds: dict[str, dict[str, object]], said: str
) -> None:
    process = Process(new_run(runs))
    for name, value in binds.items():
        process.bind(name, **value)
    process.exit()
    assert said in advice(call)
    assert "--run-dir" not in advice(call)


@pytest.mark.parametrize(
    "binds",
    [
        {"config": {"rollout_mode": "async", "nnodes": 1}},
        {"dataset": {"columns": ["prompt", "agent_name"]}},
        {"dataset": {"columns": ["prompt"]}, "config": {"default_agent_loop": "tool_agent"}},
        {"verl_trace": {"backend": "jsonl"}},
    ],
)
def test_no_advice_where_it_is_set_up_well(call: Call, runs: Path, binds: dict[str, dict[str, object]]) -> None:
    process = Process(new_run(runs))
    for name, value in binds.items():
        process.bind(name, **value)
    trajectory(process)
    process.exit()
    call("ship", runs)
    assert advice(call) == ""


def test_sample_index_without_meaning_is_said(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    for uid in ("a", "b"):
        trajectory(process, uid=uid, sample_index=0)
    process.exit()
    assert "extra_info.index" in advice(call)


def test_a_run_without_any_process_says_where_to_look(call: Call, runs: Path) -> None:
    new_run(runs)
    assert "autotrace doctor" in advice(call)


def test_a_process_that_was_killed_is_counted(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trajectory(process)
    process.die()
    assert "1 process ended without a final record" in advice(call)


def test_a_limit_per_batch_where_prompts_come_one_by_one_is_said(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    process.bind("verl_trace", backend="mlflow", max_samples_per_step_per_worker=5)
    trajectory(process, step=-1)
    process.exit()
    assert "max_samples_per_step_per_worker=5 limits nothing here" in advice(call)
    assert "--sample-rate" in advice(call)


def test_a_backend_that_is_too_slow_for_the_run_is_said_with_a_number(call: Call, run: str, runs: Path) -> None:
    status = Status("running", "run", pending=9000)
    behind = "mlflow does not keep up: the run makes 400 traces a second, mlflow takes 92"
    status.backends["mlflow"] = BackendStatus("mlflow", delivered=5000, pending=9000, behind=behind)
    status.write(find_runs(runs)[0][-1])
    assert behind in advice(call) and f"! {behind}" in call("ls", run).output
    status.backends["mlflow"].behind = None
    status.write(find_runs(runs)[0][-1])
    assert "keep up" not in advice(call) + call("ls", run).output


def test_how_fast_traces_come_and_go(call: Call, runs: Path) -> None:
    folder = new_run(runs)
    process = Process(folder)
    for number in range(6):
        trajectory(process, uid=str(number))
    process.exit()
    call("ship", folder.name)
    status = json.loads(call("status", "--json").output)["status"]
    assert status["backends"]["jsonl"]["rate"] == 0.1
