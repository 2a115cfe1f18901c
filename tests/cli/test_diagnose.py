"""``autotrace diagnose``, ``steps``, ``grep`` and the words of ``--where`` that findings bring."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import autotrace
from autotrace.cli import steps
from autotrace.insight import registry
from autotrace.insight.profile import Mark, Profile, encode
from autotrace.run.shipper_process import ShipperLock
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.ship.store.state import State
from autotrace.spool.records import StepFacts
from autotrace.tables.errors import QueryError
from autotrace.tables.steps import steps as steps_of
from tests.cli.conftest import Call
from tests.run_folder import recorded, rollout
from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, attributes, new_run, trajectory


@pytest.fixture
def run(runs: Path) -> Path:
    """Two steps with cut answers and a tool that times out, and a turn that was retokenised."""
    folder = new_run(runs, "20261121-064412-3f9c1a", backends=["jsonl"])
    process = Process(folder)
    for step in (1, 2):
        rollout(process, step=step, rollout=0, uid=f"u{step}", reward=1.0)
        rollout(process, step=step, rollout=1, uid=f"u{step}", reward=0.0, finish="length", fails=True)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(step=2, uid="x", data_source="\x1b[31mmath"))
    agent = process.open(trace, "agent", root)
    first = process.open(trace, "llm", agent, PROMPT)
    process.close(trace, first, [*ANSWER, *range(40, 60)])
    second = process.open(trace, "llm", agent, [*PROMPT, *ANSWER, 40, 99, *range(42, 60), *TOOL])
    process.close(trace, second, FINAL)
    tool = process.open(trace, "tool", agent, inputs={"tool_call": {"name": "web", "arguments": {"q": "cats"}}})
    process.close(trace, tool, output="\x1b[31mno cats here")
    process.close(trace, agent)
    process.fact("reward", 0.5, trace)
    process.close(trace, root)
    process.exit()
    return folder


def test_findings_say_how_much_where_why_and_what_to_try(call: Call, run: Path) -> None:
    done = call("diagnose", run)
    assert done.exit_code == 0
    much = "40.0% of the trajectories (2 of 5), since step 1"
    for words in (
        "5 trajectories in 2 steps",
        "1. AT-",
        much,
        "AT-TOOL-TIMEOUT",
        "search: TimeoutError",
        "likely causes ",
        "fix ",
    ):
        assert words in done.output
    costs = [json.loads(line)["cost"] for line in call("diagnose", run, "--json").output.splitlines()]
    assert costs == sorted(costs, reverse=True)


def test_what_is_said_of_a_timeout_holds_with_and_without_a_text(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes())
    for text in ("", "no answer within 5 s"):
        tool = process.open(trace, "tool", root, inputs={"tool_call": {"name": "web", "arguments": {}}})
        process.close(trace, tool, status="ERROR", error=("TimeoutError", text, ""))
    process.close(trace, root)
    process.exit()
    shown = " ".join(call("diagnose", "--code", "AT-TOOL-TIMEOUT").output.split())
    assert "TimeoutError: no answer within" in shown
    assert "A TimeoutError has no text" not in shown and "If the error has no text" in shown


def test_a_finding_names_trajectory_turn_and_token(call: Call, run: Path) -> None:
    (line,) = call("diagnose", run, "--code", "at-retokenized", "--json").output.splitlines()
    finding = json.loads(line)
    (place,) = finding["places"]
    assert (finding["since_step"], place["turn"], place["token"]) == (2, 2, len(PROMPT) + len(ANSWER) + 1)
    done = call("show", place["trace_id"][:12], run)
    assert "! AT-RETOKENIZED" in done.output
    (mark,) = json.loads(call("show", place["trace_id"], run, "--json").output)["findings"]
    assert (mark["code"], mark["turn"], mark["token"]) == ("AT-RETOKENIZED", 2, place["token"])


def test_of_a_finding_that_is_asked_for_every_place_is_listed(call: Call, runs: Path) -> None:
    folder = new_run(runs, "20261121-064412-3f9c1b", backends=["jsonl"])
    process = Process(folder)
    for number in range(5):
        rollout(process, step=1, rollout=number, uid="u", reward=float(number), fails=True)
    process.exit()
    for words, places in ((("--code", "AT-TOOL-TIMEOUT"), 5), ((), 3)):
        found = map(json.loads, call("diagnose", folder, "--json", *words).output.splitlines())
        assert [len(one["places"]) for one in found if one["code"] == "AT-TOOL-TIMEOUT"] == [places]


def test_one_step_alone(call: Call, run: Path) -> None:
    assert "AT-RETOKENIZED" not in call("diagnose", run, "--step", "1").output
    done = call("diagnose", run, "--step", "77")
    assert (done.exit_code, done.stdout) == (2, "") and "there is no trajectory of step 77" in done.stderr


def test_a_code_that_there_is_not(call: Call, run: Path) -> None:
    done = call("diagnose", run, "--code", "AT-RETOKENISED")
    assert done.exit_code == 2
    assert "did you mean AT-RETOKENIZED?" in done.output


def test_the_same_from_parquet(call: Call, runs: Path, tmp_path: Path) -> None:
    folder = recorded(runs, "20261121-064413-3f9c1b", backends=["parquet"])
    assert ship(folder, once=True).state == "done"
    of_folder, of_files = (
        [json.loads(line) for line in call("diagnose", *words, "--json").output.splitlines()]
        for words in ((folder,), (runs / "parquet",))
    )
    assert {finding["code"]: finding["trajectories"] for finding in of_folder} == {
        finding["code"]: finding["trajectories"] for finding in of_files
    }
    assert {"AT-TRUNCATED", "AT-TOOL-TIMEOUT"} <= {finding["code"] for finding in of_files}


def test_parquet_knows_the_runs_configuration(runs: Path) -> None:
    folder = new_run(runs, "20261121-064413-3f9c1c", backends=["parquet"])
    process = Process(folder)
    process.bind("config", response_length=512, rollout_n=4, trainer_mode="sync", project_name="p")
    process.bind("config", project_name="p", experiment_name="e")  # says nothing of the others
    process.bind("tokenizer", end_tokens=[7, 9])
    for number in range(2):
        trajectory(process, rollout=number, reward=float(number))
    process.exit()
    assert ship(folder, once=True).state == "done"
    (step,) = steps_of(of_run(runs / "parquet"))
    (same,) = steps_of(of_run(folder))
    assert step.settings == same.settings
    assert (same.settings.response_length, same.settings.rollout_n, same.settings.end_tokens) == (512, 4, {7, 9})


def test_parquet_knows_what_the_trainer_logged(call: Call, runs: Path) -> None:
    folder = recorded(runs, "20261121-064413-3f9c1d", backends=["parquet"])
    process = Process(folder, "node-1-bb", run_id=folder.name)
    for step in (1, 2):
        process.write(StepFacts(step, "metrics", {"response_length/clip_ratio": 1.0}, process.tick()))
    process.exit()
    assert ship(folder, once=True).state == "done"
    for where in ("", f"proj/{folder.name}"):
        lines = call("diagnose", runs / "parquet" / where, "--json", "--code", "AT-CLIP-RATIO").output
        (finding,) = map(json.loads, lines.splitlines())
        assert finding["places"][0]["note"] == "logged 1, truncated 0.25"
    (finding,) = map(json.loads, call("diagnose", folder, "--json", "--code", "AT-CLIP-RATIO").output.splitlines())
    assert finding["places"][0]["note"] == "logged 1, truncated 0.25"


def test_of_the_tables_of_two_runs_the_newest_is_meant_and_each_can_be_named(call: Call, runs: Path) -> None:
    for name in ("20261121-064413-3f9c1e", "20261121-064413-3f9c1f"):
        assert ship(recorded(runs, name, backends=["parquet"]), once=True).state == "done"
    both = call("diagnose", runs / "parquet")
    one = call("diagnose", runs / "parquet" / "proj" / "20261121-064413-3f9c1f")
    assert both.stdout.splitlines()[1:] == one.output.splitlines()[1:] and both.exit_code == 0
    assert both.stdout.splitlines()[0].endswith(f" {runs / 'parquet'}"), "the hint names the run as it was named"
    assert both.stderr == (
        f"autotrace: this reads 20261121-064413-3f9c1f, the newest of 2 runs in {runs / 'parquet'}; older: "
        "20261121-064413-3f9c1e\n"
    )
    with pytest.raises(QueryError, match="these are 2 runs"):
        list(steps_of(autotrace.open(runs / "parquet").reader()))


def test_what_was_not_examined_is_examined_when_it_is_asked_for(call: Call, run: Path) -> None:
    before = call("diagnose", run, "--json").output
    state = State.of_run(run)
    with state:
        state.db.execute("UPDATE traces SET profile = '{}' WHERE step = 1")
        state.db.execute("UPDATE traces SET profile = '[\"0\"]' WHERE step = 2")
    state.close()
    assert call("diagnose", run, "--json").output == before


def test_a_line_a_step(call: Call, run: Path) -> None:
    done = call("steps", run)
    assert done.exit_code == 0
    first, second = (json.loads(line) for line in call("steps", run, "--json").output.splitlines())
    assert (first["step"], first["trajectories"], first["reward_mean"], first["truncated"]) == (1, 2, 0.5, 0.5)
    assert first["reward_parts"] == {"acc": 0.5, "format": 0.5}
    assert first["tool_errors"] == {"search": 1}
    assert second["findings"]["AT-RETOKENIZED"] == 1
    assert second["cached"] == pytest.approx(7 / 9 * 18 / (18 + 27), abs=1)


def test_a_line_for_each_data_source(call: Call, run: Path) -> None:
    done = call("steps", run, "--by", "data_source", "--step", "2")
    assert "gsm8k" in done.output
    assert "\x1b" not in done.output
    lines = [
        json.loads(line)
        for line in call("steps", run, "--by", "data_source", "--step", "2", "--json").output.splitlines()
    ]
    assert [line["trajectories"] for line in lines] == [1, 2]


def test_follow_ends_with_the_run(call: Call, run: Path) -> None:
    assert call("steps", run, "--follow").exit_code == 0
    (run / "status.json").write_text('{"state": "running"')  # as good as none
    trace = os.urandom(16)
    Process(run, "node-1-bb").open(trace, "trajectory", attributes=attributes(step=3))
    lines = call("steps", run, "--follow", "--json").output.splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3], "also the step in which something never ended"


def test_follow_goes_on_where_no_backend_takes_anything_and_ends_quietly_when_it_is_told_to(
    call: Call, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(steps, "time", SimpleNamespace(sleep=sleep))
    (run / "status.json").write_text(json.dumps({"state": "blocked", "run_id": run.name}))
    assert call("steps", run, "--follow").exit_code == 0 and not slept, "its shipper has given up"
    with ShipperLock(run):
        done = call("steps", run, "--follow")
    assert (done.exit_code, len(slept)) == (0, 2)
    assert "Aborted" not in done.output


def test_what_there_is_none_of_is_named(call: Call, run: Path) -> None:
    for words, said in ((["--validate"], "this run has no trajectory of validation"),
                        (["--step", "9"], "there is no trajectory of step 9")):  # fmt: skip
        done = call("steps", run, *words)
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"autotrace: {said}\n")


def test_nothing_found_is_an_object_too(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trajectory(process, reward=1.0)
    process.exit()
    shown, said = call("diagnose").stdout, call("diagnose", "--json").stdout
    assert shown.startswith("no problems found in 1 trajectory in 1 step by ")
    assert "checks could not run: " in shown and "no data of the trainer (" in shown
    assert len(shown) <= 300, "three lines of a terminal"
    (line,) = map(json.loads, said.splitlines())
    assert (line["code"], line["title"], line["of"], line["incomplete"]) == (None, "no problems found", 1, [])
    assert line["checks"] + sum(line["not_checked"].values()) == len(registry.codes())


def test_what_only_its_group_shows_is_a_finding_too(call: Call, run: Path) -> None:
    assert ship(run, once=True).state == "done"
    shutil.rmtree(run / "tables")  # as an earlier release left it
    made = encode(Profile(registry.stamp(), found=[Mark("AT-GROUP-INCOMPLETE")]))
    state = State.of_run(run)
    with state:
        state.db.execute("UPDATE traces SET profile = ? WHERE step = 1", (made,))
    state.close()
    for expression, count in (
        ("contains 'group'", 2),
        ("not contains 'GROUP'", 0),
        ("contains 'TOOL'", 0),
        ("is null", 0),
        ("is not null", 2),
    ):
        lines = call("ls", run, "--where", f"step = 1 and finding {expression}", "--json").stdout.splitlines()
        assert len(lines) == count, expression


def test_a_condition_about_findings_says_what_it_cannot_judge(call: Call, run: Path) -> None:
    assert ship(run, once=True).state == "done"
    assert "not examined" not in call("ls", run, "--where", "finding = 'AT-HUNG'").output
    shutil.rmtree(run / "tables")  # as an earlier release left it
    state = State.of_run(run)
    with state:
        state.db.execute("UPDATE traces SET profile = '[\"0\"]' WHERE step = 2")
    state.close()
    done = call("ls", run, "--where", "finding = 'AT-HUNG'")
    assert "3 trajectories were not examined by this release" in done.output
    assert "not examined" not in call("ls", run, "--where", "reward > 0").output


def test_phrases_are_found_with_their_place(call: Call, run: Path) -> None:
    done = call("grep", "no (cats|dogs)", run)
    assert done.exit_code == 0
    assert "step 2, turn 2, result of web" in done.output
    assert "\x1b" not in done.output
    (place,) = (json.loads(line) for line in call("grep", "CATS", run, "-i", "--role", "tool", "--json", "--limit", "1")
                .stdout.splitlines())  # fmt: skip
    assert (place["where"], place["text"]) == ("arguments of web", "cats")
    assert call("grep", "cats", run, "--role", "assistant").exit_code == 1
    assert call("grep", "cats", run, "--step", "1").exit_code == 1
    for wrong in ("(", "x{99999999999}", "(?a)(?u)x"):
        done = call("grep", wrong, run)
        assert (done.exit_code, "is not a regular expression" in done.output) == (2, True)
    assert call("grep", "(", run, "-F").exit_code == 1


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("truncated", 2),
        ("not truncated", 3),
        ("tool_error", 2),
        ("finding = 'AT-RETOKENIZED'", 1),
        ("finding = 'at-retokenized' or finding = 'AT-TRUNCATED'", 3),
        ("finding in ('AT-RETOKENIZED', 'AT-TRUNCATED')", 3),
        ("finding != 'AT-RETOKENIZED'", 4),
        ("finding contains 'AT-TOOL'", 2),
        ("finding is null", 2),
    ],
)
def test_conditions_know_findings(call: Call, run: Path, condition: str, count: int) -> None:
    rows = [json.loads(line) for line in call("ls", run, "--where", condition, "--json").output.splitlines()]
    assert len(rows) == count
    assert all("profile" not in row and isinstance(row["findings"], list) for row in rows)


def test_a_finding_has_no_order(call: Call, run: Path) -> None:
    done = call("ls", run, "--where", "finding < 'AT-X'")
    assert (done.exit_code, "no order" in done.output) == (2, True)
