"""``autotrace ls``: from a metric at a step to that step's trajectories."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autotrace
from autotrace.ship.readers import of_run
from autotrace.tables.reader import SORTS
from tests.cli.conftest import Call
from tests.ship.spools import Process, attributes, new_run, trajectory


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_all_trajectories_of_the_newest_run(call: Call, run: Path) -> None:
    found = call("ls")
    assert found.exit_code == 0
    for row in rows(call("ls", "--json").output):
        assert row["trace_id"][:12] in found.output
    assert "worst" in found.output and "longest" in found.output


@pytest.mark.parametrize(
    ("options", "rewards"),
    [
        (["--sort", "reward"], [1.0, 0.75, 0.5, 0.25, None]),
        (["--sort", "reward", "--reverse"], [0.25, 0.5, 0.75, 1.0, None]),
        (["--step", "1", "--sort", "reward"], [0.5, 0.25]),
        (["--step", "2", "--train", "--sort", "reward", "--limit", "1"], [1.0]),
        (["--validate"], [None]),
        (["--status", "error"], []),
        (["--step", "9"], []),
    ],
)
def test_filters_and_orders(call: Call, run: Path, options: list[str], rewards: list[float | None]) -> None:
    done = call("ls", "--json", *options)
    assert [row["reward"] for row in rows(done.stdout)] == rewards
    assert done.exit_code == (0 if rewards else 2)


def test_every_column_of_a_condition_can_be_sorted_by(call: Call, run: Path) -> None:
    reader = of_run(run)
    for name in SORTS:
        assert len(reader.select(sort=name)) == 5, name
    ordered = [row["rollout_n"] for row in rows(call("ls", "--json", "--sort", "rollout_n", "--train").stdout)]
    assert ordered == [1, 1, 0, 0]
    assert [row["step"] for row in rows(call("ls", "--json", "--sort", "advantage").stdout)][-1] is not None
    assert "there is no column rewrad; did you mean reward?" in call("ls", "--sort", "rewrad").output


def test_ties_for_the_best_and_the_worst_are_said(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    for rollout, reward in enumerate((0.5, 0.5, 0.5, 0.0, 0.0)):
        trajectory(process, rollout=rollout, reward=reward)
    process.exit()
    shown = call("ls").output
    assert "reward 0.5, tied with 2 others" in shown and "reward 0, tied with 1 other\n" in shown
    worst = call("show", "--worst")
    assert "reward 0.0" in worst.stdout
    assert worst.stderr == "the first of 2 trajectories that have the lowest reward, 0; autotrace ls lists them all\n"


def test_the_remarkable_ones_of_a_step_are_named(call: Call, run: Path) -> None:
    best, worst = rows(call("ls", "--json", "--step", "2", "--train", "--sort", "reward").output)
    lines = {line.split()[0]: line for line in call("ls", "--step", "2").output.splitlines() if line.strip()}
    assert f"{best['trace_id'][:12]}  reward 1" in lines["best"]
    assert f"{worst['trace_id'][:12]}  reward 0.75" in lines["worst"]


def test_the_longest_show_where_their_time_went(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trace = b"t" * 16
    root = process.open(trace, "trajectory", attributes=attributes())
    call_span = process.open(trace, "llm", root, [1, 2])
    request = process.open(trace, "engine", call_span)
    told = {"ttft_s": 2.5, "dispatch_s": 0.5, "queue_s": 1.5, "prefill_s": 0.5, "decode_s": 4.0}
    process.at += 8_000_000_000
    process.close(trace, request, attributes=told)
    process.close(trace, call_span, [3])
    tool = process.open(trace, "tool", root)
    process.at += 3_000_000_000
    process.close(trace, tool)
    process.close(trace, root)
    process.exit()
    header, entry = [
        line for line in call("ls", "--sort", "duration").output.splitlines() if "│" not in line and line.strip()
    ][0:3:2]
    shown = dict(zip(header.split(), entry.replace(" s", "s").replace(" ms", "ms").split(), strict=False))
    assert (shown["queue"], shown["prefill"], shown["decode"], shown["tool"]) == ("2.0s", "500ms", "4.0s", "3.0s")
    (row,) = rows(call("ls", "--json").output)
    assert row["times"]["decode_s"] == 4.0 and row["times"]["way_s"] == pytest.approx(1.5, abs=0.01)
    assert "time decode 4.0 s, tool 3.0 s, queue 2.0 s, way 1.5 s, prefill 500 ms" in call("show", trace.hex()).output


def test_a_run_without_trajectories_lists_what_there_is(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trace = b"r" * 16
    process.close(trace, process.open(trace, "engine", prompt=[1, 2]), [3])
    process.close(b"s" * 16, process.open(b"s" * 16, "trainer"))
    process.exit()
    assert sorted(row["role"] for row in rows(call("ls", "--json").output)) == ["llm", "trainer"]
    assert call("ls").output.split()[1] == "root"


def test_a_step_that_is_not_there_names_those_that_are(call: Call, run: Path) -> None:
    for command in (["ls"], ["steps"], ["diagnose"], ["compare", "--sample", "7"]):
        done = call(*command, "--step", "9")
        assert (done.exit_code, done.stdout) == (2, ""), command
    assert "no trajectory of step 9; this run has steps 1 to 2" in call("ls", "--step", "9").stderr


def test_the_tree_shows_steps_prompts_rollouts_and_calls(call: Call, run: Path) -> None:
    found = call("ls", "--tree", "--step", "1").output
    assert found.index("step 1") < found.index("prompt 7") < found.index("rollout 0") < found.index("rollout 1")
    assert (found.count("─ turn 1"), found.count("─ turn 2"), found.count("─ add ")) == (2, 2, 2)


def test_prompts_without_a_uid_are_told_apart_by_their_sample(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    for sample in (7, 8):
        for rollout in (0, 1):
            trajectory(process, rollout=rollout, uid=None, sample_index=sample)
    process.exit()
    lines = call("ls", "--tree").output.splitlines()
    kinds = [next((kind for kind in ("prompt 7", "prompt 8", "rollout") if kind in line), "") for line in lines]
    assert [kind for kind in kinds if kind] == ["prompt 7", "rollout", "rollout", "prompt 8", "rollout", "rollout"]


def test_tokens_that_nobody_counted_are_left_out_of_the_tree(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trace = b"t" * 16
    root = process.open(trace, "trajectory", attributes=attributes())
    process.close(trace, process.open(trace, "llm", root))
    process.close(trace, process.open(trace, "llm", root, [1, 2]))
    process.close(trace, root)
    process.exit()
    uncounted, half = [line for line in call("ls", "--tree").output.splitlines() if "─ turn" in line]
    assert "tokens" not in uncounted and "2 + ? tokens" in half


def test_an_empty_run_is_not_blamed_on_a_filter(call: Call, runs: Path) -> None:
    Process(new_run(runs)).exit()
    for words in (["ls"], ["ls", "--status", "ok"]):
        assert call(*words).output == (
            "this run has no trajectory; what was bound, called and dropped: autotrace status\n"
        )
    assert "this run has no trajectory; " in call("why").output


def test_why_says_what_is_missing_and_compares_a_run_without_steps(call: Call, runs: Path) -> None:
    folder = new_run(runs, "20261121-064412-aaaaaa")
    process = Process(folder)
    for number in range(16):
        trajectory(process, step=None, rollout=number % 4, uid=f"u{number // 4}", reward=None)
    assert "no reward is recorded for 16 rollouts" in call("why").output
    for number in range(16):
        trajectory(process, step=None, rollout=number % 4, uid=f"v{number // 4}", reward=float(number % 2))
    process.exit()
    shown = call("why").output
    assert "below the mean reward of their group" in shown and "mean reward does not change" not in shown


def test_nothing_that_matches(call: Call, run: Path) -> None:
    assert "no trajectory matches" in call("ls", "--status", "timeout").output


def test_errors_as_a_reader_needs_them(call: Call, runs: Path) -> None:
    """A stream that its reader left, an error without a message, a cancellation with and without a reason."""
    process = Process(new_run(runs))
    cancelled = "asyncio.exceptions.CancelledError"
    shown = {}
    for letter, status, error, expected in (
        (b"a", "OK", (cancelled, "", ""), None),
        (b"b", "OK", (cancelled, "by the reader", ""), None),
        (b"c", "OK", ("ValueError", "", ""), "ValueError"),
        (b"d", "CANCELLED", (cancelled, "", ""), None),
        (b"e", "CANCELLED", (cancelled, "shutdown", ""), f"{cancelled}: shutdown"),
        (b"f", "OK", ("ValueError", "no", ""), "ValueError: no"),
    ):
        trace = letter * 16
        root = process.open(trace, "trajectory", attributes=attributes(uid=letter.decode()))
        below = process.open(trace, "llm", root)
        process.close(trace, below, status="CANCELLED" if error[0] == cancelled else "ERROR", error=error)
        process.close(trace, root, status=status)
        shown[trace.hex()] = expected
    process.exit()
    assert {row["trace_id"]: row["error"] for row in rows(call("ls", "--json").output)} == shown
    assert "Error: " not in call("ls").output.replace(f"{cancelled}: shutdown", "").replace("ValueError: no", "")
    assert "ValueError:" not in call("show", (b"c" * 16).hex()).output


def test_what_a_model_wrote_is_not_obeyed_by_the_terminal(call: Call, runs: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e[red]x[/red]"
    process = Process(new_run(runs))
    trace = trajectory(process, uid=evil, sample_index=evil)
    failed = process.open(b"f" * 16, "trajectory", attributes=attributes(uid="u", sample_index=evil))
    process.close(b"f" * 16, failed, status="ERROR", error=("ToolError", evil, evil))
    process.exit()

    ways = (["ls"], ["ls", "--tree"], ["status"], ["show", trace.hex(), "--full"], ["show", "66", "--full"])
    output = "".join(call(*words).output for words in ways)
    assert not {"\x1b", "\x07", "\u202e"} & set(output)
    assert "[red]x[/red]" in output
    assert "\\x1b" in output


class TestWhichRun:
    def test_a_name_or_its_beginning_or_a_path(self, call: Call, run: Path, runs: Path) -> None:
        expected = call("ls", "--json", run).output
        assert expected
        assert call("ls", "--json", run.name).output == expected
        assert call("ls", "--json", run.name[:10]).output == expected
        assert call("ls", "--json", runs).output == expected

    def test_no_run_at_all(self, call: Call, runs: Path) -> None:
        found = call("ls")
        assert found.exit_code == 2
        assert (
            found.output == "autotrace: autotrace-runs holds no autotrace run (no run.json in it or one level below)\n"
        )

    def test_no_run_directory(self, call: Call, runs: Path) -> None:
        runs.rmdir()
        assert "start a run with autotrace-run" in call("ls").output

    def test_a_name_of_several_runs_lists_them(self, call: Call, runs: Path) -> None:
        for name in ("2026-a", "2026-b"):
            new_run(runs, name)
        found = call("ls", "2026")
        assert found.exit_code == 2 and "begin with '2026'; the newest are 2026-b, 2026-a\n" in found.output

    def test_an_option_before_the_command_is_shown_behind_it(self, call: Call) -> None:
        assert "write --json after the command: autotrace ls --json ..." in call("--json", "ls").output
        for words in (["--stp", "ls"], ["--force", "ls"], ["--json"]):
            assert "after the command" not in call(*words).output

    def test_an_unknown_name(self, call: Call, run: Path) -> None:
        found = call("ls", "2031")
        assert (found.exit_code, found.output) == (
            2,
            "autotrace: 2031: no such folder, and no such run in autotrace-runs\n",
        )


@pytest.mark.parametrize(
    "words", [["ls"], ["status"], ["export"], ["ship"], ["show", "ab"]], ids=lambda words: words[0]
)
@pytest.mark.parametrize("path", ["/no/such/run", "no/such/run", "../run"])
def test_a_path_that_is_not_there_is_said_in_a_sentence(call: Call, run: Path, words: list[str], path: str) -> None:
    result = call(*words, path)
    assert (result.exit_code, result.output) == (2, f"autotrace: {path}: no such folder\n")


def test_a_file_is_called_a_file(call: Call, run: Path) -> None:
    file = run / "run.json"
    result = call("ls", str(file))
    told = f"autotrace: {file} is in no format that autotrace open accepts: it is a file with "
    assert result.exit_code == 2 and result.output.startswith(told) and "Accepted are" in result.output


def test_a_status_that_does_not_exist_is_refused(call: Call, run: Path) -> None:
    result = call("ls", "--status", "FAILED")
    assert result.exit_code == 2
    statuses = "'ok', 'open', 'error', 'timeout', 'interrupted', 'cancelled'"
    assert f"'failed' is not one of {statuses}" in result.output.lower()


def test_python_m_autotrace_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "autotrace", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"autotrace, version {autotrace.__version__}\n"


@pytest.mark.parametrize("command", ["ls", "status", "export"])
def test_a_run_whose_description_was_cut_off_is_said_in_a_sentence(call: Call, run: Path, command: str) -> None:
    path = run / "run.json"
    path.write_bytes(path.read_bytes()[:40])
    found = call(command)
    assert found.exit_code == 2
    assert f"{path.name} cannot be read" in found.output and len(found.output.splitlines()) == 1


def test_equal_rewards_have_no_best_and_no_worst(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    for rollout in (0, 1):
        trajectory(process, rollout=rollout, reward=0.5)
    process.exit()
    shown = call("ls").output
    assert "best" not in shown and "worst" not in shown and "longest" in shown


def test_one_is_said_in_the_singular(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    root = process.open(b"t" * 16, "trajectory", attributes=attributes())
    process.close(b"t" * 16, process.open(b"t" * 16, "llm", root))
    process.close(b"t" * 16, root)
    process.exit()
    assert "  1 turn  " in call("ls", "--tree").output
    assert "wrote 1 trajectory to 1 file in" in call("export").output
    call("ship")
    assert "1 trajectory (1 trace), 0 open" in call("status").output
    assert "1 process (0 living)" in call("status").output


@pytest.mark.parametrize(
    ("options", "rewards"),
    [
        (["--where", "reward < 0.6"], [0.25, 0.5]),
        (["--where", "reward < 0.6", "--where", "rollout_n = 1"], [0.5]),
        (["--where", "step = 2 and not validate", "--limit", "1"], [0.75]),
        (["--sample", "7", "--step", "1"], [0.25, 0.5]),
        (["--sample", "8"], []),
        (["--where", "reward is null"], [None]),
    ],
)
def test_conditions(call: Call, run: Path, options: list[str], rewards: list[float | None]) -> None:
    assert [row["reward"] for row in rows(call("ls", "--json", *options).stdout)] == rewards


@pytest.mark.parametrize("command", [["ls"], ["show"], ["compare"], ["export"]], ids=lambda words: words[0])
def test_a_column_that_does_not_exist_is_said_with_the_nearest(call: Call, run: Path, command: list[str]) -> None:
    refused = call(*command, "--where", "rewrad < 1")
    assert refused.exit_code == 2
    assert 'there is no column "rewrad" at character 1; did you mean "reward"?' in refused.output
    assert not (run / "export").exists()


def test_a_limit_says_how_many_there_are(call: Call, run: Path) -> None:
    assert "2 of 5 trajectories" in call("ls", "--limit", "2").output
    assert "of 5 trajectories" not in call("ls", "--limit", "5").output
