"""The run's first process waits for delivery at its exit: within bounds, with one line, and changes nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from autotrace.run.drain import Outcome, read_status, summary
from tests.places import Place
from tests.waiting import DEADLINE

SHIPPER_READY = """
import json, os, sys, time
folder = os.environ["AUTOTRACE_RUN_FOLDER"]
def shipper():
    for _ in range(2400):
        try:
            return json.load(open(folder + "/status.json"))["pid"]
        except (OSError, ValueError):
            time.sleep(0.05)
pid = shipper()
"""
"""Host code: waits until the shipper runs; ``pid`` is its process."""


def test_the_exit_code_and_output_of_the_host_are_its_own(place: Place) -> None:
    for code in ("raise SystemExit('bye')", "1 / 0", "import sys; sys.exit(300)", "import os; os._exit(9)"):
        bare = place.run(["python", "-c", code])
        traced = place.launch(["python", "-c", code], ["--quiet"])
        assert (traced.returncode, traced.stdout, traced.stderr) == (bare.returncode, bare.stdout, bare.stderr)


def test_it_runs_after_all_hooks_of_the_host(place: Place) -> None:
    code = (
        "import atexit, os, sys\n"
        "drain = os.environ['AUTOTRACE_RUN_FOLDER'] + '/drain'\n"
        "atexit.register(lambda: print('asked', os.path.exists(drain)))"
    )
    found = place.launch(["python", "-c", code])
    (run,) = place.runs()
    assert found.stdout == "asked False\n"
    assert (run / "drain").exists()


def test_children_do_not_wait(place: Place) -> None:
    code = (
        "import os, subprocess, sys\n"
        "drain = os.environ['AUTOTRACE_RUN_FOLDER'] + '/drain'\n"
        "subprocess.run([sys.executable, '-c', 'import sys; print(\"autotrace.bootstrap.exit\" in sys.modules)'])\n"
        "if not os.fork(): sys.exit()\n"
        "os.wait(); print('asked', os.path.exists(drain))"
    )
    assert place.launch(["python", "-c", code]).stdout == "False\nasked False\n"


def test_a_killed_shipper_is_started_again_and_delivers(place: Place) -> None:
    code = SHIPPER_READY + "os.kill(pid, 9)\nwhile os.path.exists(f'/proc/{pid}/exe'): time.sleep(0.02)\n"
    found = place.launch(["python", "-c", code + "sys.exit(5)"])
    assert found.returncode == 5
    assert "no shipper is running" not in found.stderr
    (run,) = place.runs()
    assert json.loads((run / "status.json").read_text())["state"] == "done"


def test_a_shipper_killed_with_its_guard_is_missed(place: Place) -> None:
    code = SHIPPER_READY + (
        "guard = int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1])\n"
        "os.kill(guard, 9); os.kill(pid, 9)\nwhile os.path.exists(f'/proc/{pid}/exe'): time.sleep(0.02)\n"
    )
    found = place.launch(["python", "-c", code + "sys.exit(5)"], ["--drain-timeout", "100000"])
    assert found.returncode == 5
    assert "no shipper is running" in found.stderr
    assert "autotrace ship autotrace-runs/" in found.stderr


def test_a_hung_shipper_holds_nobody_longer_than_the_drain_timeout(place: Place) -> None:
    code = SHIPPER_READY + "os.kill(pid, 19); print(pid)"
    begin = time.monotonic()
    found = place.launch(["python", "-c", code], ["--drain-timeout", "1.5"])
    os.kill(int(found.stdout), signal.SIGKILL)

    assert time.monotonic() - begin > 1.4
    assert found.returncode == 0
    assert "autotrace: delivering" in found.stderr
    assert re.search(r"gave up waiting after \d+ s", found.stderr), found.stderr


def test_a_timer_of_the_host_does_not_go_off_while_it_waits_for_us(place: Place) -> None:
    code = SHIPPER_READY + (
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.5)\nos.kill(pid, 19); print(pid); sys.exit(4)"
    )
    found = place.launch(["python", "-c", code], ["--drain-timeout", "1.5"])
    os.kill(int(found.stdout), signal.SIGKILL)
    assert found.returncode == 4
    assert re.search(r"gave up waiting after \d+ s", found.stderr), found.stderr


def test_a_daemon_thread_that_goes_on_recording_does_not_hold_the_exit(place: Place) -> None:
    place.write("spec.yaml", "- tools.search\n")
    place.write("tools.py", "def search(): pass\n")
    code = (
        "import threading, time, tools\n"
        "def work():\n"
        "    while True: tools.search(); time.sleep(0.002)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.2)"
    )
    found = place.launch(["python", "-c", code], ["--spec", "spec.yaml", "--drain-timeout", "30"])
    assert found.returncode == 0
    assert "trajectories to jsonl" in found.stderr, found.stderr


def test_a_host_that_clears_its_environment_is_waited_for(place: Place) -> None:
    found = place.launch(["python", "-c", "import os; os.environ.clear()"])
    assert "nothing was recorded" in found.stderr


def _signalled(place: Place, number: int, code: str, *options: str) -> str:
    """What is said after a signal in the wait for a shipper that has stopped; the exit code stays the program's."""
    code = SHIPPER_READY + code + "os.kill(pid, 19); print(pid, flush=True); sys.exit(4)"
    with subprocess.Popen(
        place.command(["python", "-c", code], ["--drain-timeout", "60", *options]),
        cwd=place.cwd,
        env=place.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        shipper = int(process.stdout.readline())
        for line in process.stderr:
            if "delivering" in line:
                break
        process.send_signal(number)
        rest = process.stderr.read()
        process.wait(timeout=DEADLINE)
    os.kill(shipper, signal.SIGKILL)
    assert process.returncode == 4
    return rest


@pytest.mark.parametrize("options", [(), ("--supervise",)], ids=["exec", "supervise"])
def test_an_interrupt_ends_the_wait_not_the_exit_code(place: Place, options: tuple[str, ...]) -> None:
    handler = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in background jobs
    rest = _signalled(place, signal.SIGINT, handler, *options)
    assert "waiting was interrupted" in rest
    assert "Traceback" not in rest


AGENT = """
import os, signal, sys, time
def solve(question): return question
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
    for number in range(int(sys.argv[1])): solve(str(number))
    print("ready", flush=True)
    while sys.argv[2] == "waits": time.sleep(0.05)
"""
"""Sleeps for moments: Python looks for a signal before it calls ``sleep`` and when that returns, so one that comes in
between, when "ready" was just read, is seen at the end of the sleep."""


def _agent(place: Place, trajectories: int, then: str = "ends") -> subprocess.Popen[str]:
    """A run whose program has recorded so many and now ends, or waits for a signal."""
    place.write("agent.py", AGENT)
    place.write("spec.yaml", "- target: agent.solve\n  role: trajectory\n")
    process = subprocess.Popen(
        place.command(["python", "agent.py", str(trajectories), then], ["--spec", "spec.yaml"]),
        cwd=place.cwd,
        env=place.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def _seconds_at_the_end(place: Place, process: subprocess.Popen[str]) -> float:
    """From the program's end, where delivery is asked for, until the command has returned."""
    process.wait(timeout=DEADLINE)
    returned = time.time()
    return returned - max(path.stat().st_mtime for path in place.cwd.glob("autotrace-runs/*/drain"))


@pytest.mark.parametrize("number", [None, signal.SIGINT], ids=["end", "interrupt"])
def test_the_command_returns_when_all_is_delivered(place: Place, number: signal.Signals | None) -> None:
    with _agent(place, 0) as nothing:
        bare = _seconds_at_the_end(place, nothing)
    with _agent(place, 3, "waits" if number else "ends") as process:
        if number:
            process.send_signal(number)
        seconds = _seconds_at_the_end(place, process)
        assert process.returncode == (-number if number else 0)
        assert process.stderr is not None
        assert "autotrace: saved 3 trajectories to jsonl" in process.stderr.read().splitlines()[-1]
    assert seconds < 2 * bare + 2.5, "what was recorded was delivered, and then something was waited for"


def test_a_second_interrupt_leaves_at_once_and_loses_nothing(place: Place) -> None:
    with _agent(place, 3, "waits") as process:
        (run,) = place.runs()
        while not (status := read_status(str(run))[0]):
            time.sleep(0.05)
        os.kill(status["pid"], signal.SIGSTOP)
        try:
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert next(line for line in process.stderr if line.startswith("autotrace: delivering"))
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=DEADLINE) == -signal.SIGINT
            assert "waiting was interrupted" in process.stderr.read()
        finally:
            os.kill(status["pid"], signal.SIGCONT)
    deadline = time.monotonic() + DEADLINE
    while not (run / "trajectories.jsonl").exists() or (run / "trajectories.jsonl").read_bytes().count(b"\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_waited_for_is_said(place: Place) -> None:
    code = (
        "import subprocess, sys\n"
        "child = 'import agent, sys; agent.solve(1); print(1, flush=True); sys.stdin.read()'\n"
        "child = subprocess.Popen([sys.executable, '-c', child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); sys.modules['keep'] = child"
    )
    place.write("agent.py", AGENT)
    place.write("spec.yaml", "- target: agent.solve\n  role: trajectory\n")
    found = place.launch(["python", "-c", code], ["--spec", "spec.yaml", "--drain-timeout", "5"])
    assert ": 1 process of the run is still alive" in found.stderr, found.stderr


def test_a_wait_for_a_backend_that_starts_is_said_with_its_reason_from_the_first_line_on(place: Place) -> None:
    place.write("agent.py", AGENT)
    place.write("spec.yaml", "- target: agent.solve\n  role: trajectory\n")
    words = ["--spec", "spec.yaml", "--backend", "mlflow"]  # into a database that MLflow has yet to create
    found = place.launch(["python", "agent.py", "3", "ends"], words)
    waits = [line for line in found.stderr.splitlines() if line.startswith("autotrace: delivering")]
    assert waits and found.stderr.splitlines()[-1].startswith("autotrace: saved 3 trajectories to jsonl"), found.stderr
    assert [line for line in waits if not re.search(r" s\): \w", line)] == []


def test_a_handler_that_exits_ends_the_wait_without_a_word(place: Place) -> None:
    handler = "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
    rest = _signalled(place, signal.SIGTERM, handler)
    assert "waiting was interrupted" in rest
    assert "Exception ignored" not in rest and "SystemExit" not in rest


def test_a_removed_run_folder_disturbs_nobody(place: Place) -> None:
    code = SHIPPER_READY + "import shutil; os.kill(pid, 9); shutil.rmtree(folder); sys.exit(6)"
    found = place.launch(["python", "-c", code])
    assert found.returncode == 6
    assert "Traceback" not in found.stderr
    assert "was removed while the program ran" in found.stderr


def test_the_shipper_outlives_the_command_and_its_terminal(place: Place) -> None:
    """It is in a session of its own, no child of the command, and keeps no descriptor of it open."""
    code = SHIPPER_READY + (
        "fields = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()\n"
        "names = [os.readlink(f'/proc/{pid}/fd/{n}') for n in os.listdir(f'/proc/{pid}/fd')]\n"
        "print(json.dumps([int(fields[1]) == os.getpid(), int(fields[3]) == os.getsid(0), names]))"
    )
    child, session, names = json.loads(place.launch(["python", "-c", code]).stdout)
    (run,) = place.runs()
    assert (child, session) == (False, False)
    assert [name for name in names if name.startswith("pipe:")] == []
    assert str(run.resolve() / "shipper.log") in names


@pytest.mark.parametrize("options", [(), ("--supervise",)], ids=["exec", "supervise"])
def test_what_was_not_recorded_is_said_first_even_by_quiet_runs(place: Place, options: tuple[str, ...]) -> None:
    place.write("steps.py", "def step(number): return number\n")
    place.write("spec.yaml", "- target: steps.step\n  role: trajectory\n")
    code = (
        "import steps, time; from autotrace.record import faults; steps.step(0)\n"
        "while faults.counts.get('drop:spool_limit', 0) < 5: time.sleep(0.01); steps.step(1)"
    )
    words = ["--spec", "spec.yaml", "--spool-limit", "1B", "--quiet", *options]
    done = place.launch(["python", "-c", code], words)
    assert done.stderr.startswith("autotrace: 5 trajectories not recorded: the spool has reached --spool-limit; ")
    (run,) = place.runs()
    for command in (["status"], ["ls"]):
        shown = place.cli(*command, run)
        assert shown.stdout.startswith("! 5 trajectories not recorded: the spool has reached --spool-limit")


@pytest.mark.parametrize(
    ("reason", "status", "said"),
    [
        (
            "done",
            {"trajectories": 8, "traces": 9, "backends": {"mlflow": {"place": "sqlite:////x.db"}}},
            "autotrace: saved 8 trajectories to mlflow (sqlite:////x.db); to look at them: autotrace ls R",
        ),
        (
            "done",
            {
                "trajectories": 8,
                "backends": {"mlflow": {"place": "sqlite:////x.db", "open_with": "mlflow ui -p 1"}},
            },
            "autotrace: saved 8 trajectories to mlflow (sqlite:////x.db); to look at them: autotrace ls R; "
            "in MLflow: mlflow ui -p 1",
        ),
        (
            "done",
            {"traces": 1, "backends": {"jsonl": {}}},
            "autotrace: saved 1 trace to jsonl; to look at them: autotrace ls R",
        ),
        (
            "done",
            {"trajectories": 18, "traces": 19, "kept_here": 14, "backends": {"jsonl": {}}},
            "autotrace: saved 4 of 18 trajectories to jsonl; 14 stay in the run folder (--keep); "
            "to look at them: autotrace ls R",
        ),
        ("done", {}, "autotrace: nothing was recorded; why: autotrace status R"),
        (
            "done",
            {"trajectories": 372, "drops": {"drop:tokens": 1311, "drop:memory_limit": 128, "fault:x": 1}},
            "autotrace: 1,311 calls without token lists: more waited to be written than a process may hold; "
            "128 trajectories not recorded: more waited to be written than a process may hold; "
            "saved 372 trajectories to R; to look at them: autotrace ls R",
        ),
        (
            "blocked",
            {"traces": 9, "pending": 3, "error": "403 from the server"},
            "autotrace: the backend refuses them (403 from the server); 3 traces are still on disk in R; "
            "to deliver them: autotrace ship R",
        ),
        (
            "missing",
            {"traces": 3},
            "autotrace: no shipper is running; what was recorded is still on disk in R; "
            "to deliver it: autotrace ship R",
        ),
        (
            "missing",
            {},
            "autotrace: no shipper is running; what was recorded is still on disk in R; "
            "to deliver it: autotrace ship R",
        ),
    ],
)
def test_the_last_line(
    reason: str, status: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert summary(str(tmp_path / "R"), Outcome(reason, status)) == said


def test_the_worst_finding_is_named_before_the_last_line_with_what_opens_it() -> None:
    found = {"findings": 5, "worst": "AT-RETOKENIZED (34% of the trajectories)", "trace_id": "ab" * 16, "examined": 9}
    first, last = summary("R", Outcome("done", {"trajectories": 9, "found": found})).splitlines()
    assert first == (
        "autotrace: 5 findings, the worst: AT-RETOKENIZED (34% of the trajectories), for example abababababab; "
        "to look at it: autotrace view R --trace abababababab"
    )
    assert last.startswith("autotrace: saved 9 trajectories to ")
    one = summary("R", Outcome("done", {"trajectories": 9, "found": {**found, "findings": 1}}))
    assert one.startswith("autotrace: 1 finding: AT-RETOKENIZED (34% of the trajectories), for example ")
    status = {"trajectories": 9, "found": found, "drops": {"drop:tokens": 3}}
    first, last = summary("R", Outcome("done", status)).splitlines()
    assert first.startswith("autotrace: 3 calls without token lists") and "5 findings" in last


def test_that_nothing_was_found_is_said_too() -> None:
    verdict = "no problems found in 960 trajectories in 1 step by 79 checks"
    status = {"trajectories": 960, "found": {"findings": 0, "examined": 960, "verdict": verdict}}
    first, last = summary("R", Outcome("done", status)).splitlines()
    assert first == f"autotrace: {verdict}" and "960 trajectories to " in last
    for gap in ({"torn": 3}, {"skipped": {"unreadable": 1}}, {"drops": {"drop:tokens": 3}}):
        assert verdict not in summary("R", Outcome("done", {**status, **gap}))
    assert len(summary("R", Outcome("done", {"traces": 3, "found": {"examined": 0}})).splitlines()) == 1


def test_hints_can_be_pasted_where_a_path_has_a_blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = {"findings": 1, "worst": "AT-X", "trace_id": "ab" * 16, "examined": 9}
    said = summary(str(tmp_path / "my runs" / "R"), Outcome("done", {"trajectories": 9, "found": found})).splitlines()
    assert [shlex.split(line.rpartition(": ")[2])[2] for line in said] == ["my runs/R", "my runs/R"]


def test_what_a_full_disk_refused_is_said(place: Place) -> None:
    """The counters did not come into the file either."""
    place.write("busy.py", "def work(text): return text\n")
    place.write("spec.yaml", "- busy.work\n")
    code = (
        "import busy, resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))\n"
        "for number in range(50): busy.work(str(number) * 100)"
    )
    last = place.launch(["python", "-c", code], ["--spec", "spec.yaml"]).stderr.splitlines()[-1]
    assert re.match(r"autotrace: \d+ records lost: a process ended before they could be written; ", last)


def test_a_shipper_that_goes_on_is_said() -> None:
    line = summary("R", Outcome("timeout", {"traces": 40, "pending": 30}, waited=60.0, goes_on=True))
    assert line == (
        "autotrace: gave up waiting after 60 s; 30 traces are still on disk in R, and the shipper goes on delivering "
        "them (autotrace status R); if it is killed before it finishes, run: autotrace ship R"
    )


def test_what_this_process_could_not_write_is_said() -> None:
    line = summary("R", Outcome("timeout", {"traces": 3, "open": 1}, waited=1.2), {"drop:exit": 7, "fault:x": 1})
    assert line == (
        "autotrace: 7 records lost: a process ended before they could be written; "
        "gave up waiting after 1 s; 1 trace is still on disk in R; to deliver it: autotrace ship R"
    )


def test_a_path_that_is_absent_in_every_call_is_said_in_the_last_line(place: Place) -> None:
    place.write("agent.py", "def score(task): return 0.5\n\nfor task in range(30): score(task)\n")
    spec = "- target: agent.score\n  role: trajectory\n  facts:\n    reward: {}\n    seconds: {}\n"
    place.write("mine.yaml", spec.format("result.reward", "result.seconds"))
    place.write("right.yaml", spec.format("result", "task"))
    wrong = place.launch(["python", "agent.py"], ["--spec", "mine.yaml"])
    (first,) = place.runs()
    right = place.launch(["python", "agent.py"], ["--spec", "right.yaml"])
    (second,) = set(place.runs()) - {first}  # both may have begun in one second: names do not order them
    said = "path absent in 30 of 30 calls: facts.reward: result.reward (mine.yaml:4) and 1 more (autotrace status "
    assert said in wrong.stderr.splitlines()[-1]
    assert "30 trajectories to jsonl" in right.stderr and "path absent" not in right.stderr
    status = place.cli("status", first).stdout
    assert "! path absent in 30 of 30 calls: facts.reward: result.reward (mine.yaml:4)" in status
    assert "! path absent in 30 of 30 calls: facts.seconds: result.seconds (mine.yaml:5)" in status
    assert "path absent" not in place.cli("status", second).stdout
