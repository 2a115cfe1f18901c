"""From segments to delivered trajectories: nothing lost, nothing twice, whatever dies when."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotrace.record.token_prefixes import TokenLog
from autotrace.run import layout
from autotrace.run.shipper_process import ShipperLock
from autotrace.run.status import Status
from autotrace.ship.assembly.token_sequences import digest_of
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import Shipper, ship
from autotrace.ship.store.state import State
from autotrace.tables.conditions import equals
from autotrace.tables.errors import QueryError
from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, attributes, new_run, trajectory
from tests.waiting import DEADLINE, until


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path)


def delivered(run: Path) -> dict[str, dict[str, Any]]:
    """What the sink holds, by trace id; fails on a duplicate."""
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    found = {line["trace_id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def shipped(run: Path) -> dict[str, dict[str, Any]]:
    assert ship(run, once=True).state == "done"
    return delivered(run)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def follow(processes: list[subprocess.Popen[bytes]]) -> Callable[[Path], subprocess.Popen[bytes]]:
    """Starts a shipper process."""

    def start(run: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)])
        processes.append(process)
        return process

    return start


@pytest.fixture
def main(processes: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """The run's first process."""
    processes.append(subprocess.Popen(["sleep", "600"]))
    return processes[-1]


# -- what a trajectory is made of --------------------------------------------------------------------------------------


def test_a_trajectory_arrives_whole(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process)
    process.exit()
    line = shipped(run)[trace.hex()]
    assert [span["role"] for span in line["spans"]] == ["trajectory", "agent", "llm", "parser", "tool", "llm"]
    root, agent, first, *_, second = line["spans"]
    assert agent["parent_id"] == root["span_id"] and second["parent_id"] == agent["span_id"]
    assert all(root["start_ns"] <= span["start_ns"] <= span["end_ns"] <= root["end_ns"] for span in line["spans"])
    assert (first["new_prompt_ids"], first["response_ids"]) == (PROMPT, ANSWER)
    assert (second["new_prompt_ids"], second["response_ids"]) == (TOOL, FINAL)
    assert (second["prompt_base"], second["prompt_keep"]) == (first["span_id"], len(PROMPT + ANSWER))
    assert agent["response_ids"] == ANSWER + TOOL + FINAL and agent["response_mask"] == [1, 1, 1, 0, 0, 1, 1, 1, 1]
    assert line["facts"] == {"reward": 1.0} and not line["notes"]
    assert line["attributes"]["run_id"] == "run" and line["attributes"]["attempt"] == 1


def test_token_lists_survive_the_change_of_segments(run: Path) -> None:
    process = Process(run)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes())
    first = process.open(trace, "llm", root, PROMPT)
    process.rotate()
    process.close(trace, first, ANSWER)
    process.rotate()
    second = process.open(trace, "llm", root, PROMPT + ANSWER + TOOL)
    process.close(trace, second, FINAL)
    process.close(trace, root)
    process.exit()
    with_index = of_run(run)
    loaded = with_index.load(trace.hex())
    assert [(span.prompt_ids, span.response_ids) for span in loaded.llm_spans] == [
        (PROMPT, ANSWER),
        (PROMPT + ANSWER + TOOL, FINAL),
    ]
    assert loaded.notes == []


def test_missing_tokens_are_said_not_invented(run: Path) -> None:
    process = Process(run)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes())
    process.logs[trace] = TokenLog(0)
    process.logs[trace].prompt(PROMPT, False)  # this record never reaches the segment
    llm = process.open(trace, "llm", root, PROMPT + TOOL)
    process.close(trace, llm, ANSWER)
    process.close(trace, root)
    process.exit()
    line = shipped(run)[trace.hex()]
    assert "response_ids" not in line["spans"][1] and line["spans"][1]["prompt_tokens"] == 6
    assert line["spans"][1]["response_tokens"] == 3
    assert any("token ids are missing" in note for note in line["notes"])


def test_the_engine_side_of_a_call_comes_from_another_process(run: Path) -> None:
    worker, server = Process(run), Process(run, "node-2-bb")
    server.wall += 3_600 * 10**9  # its wall clock is an hour off: the machine's monotonic clock decides
    trace = os.urandom(16)
    root = worker.open(trace, "trajectory", attributes=attributes())
    llm = worker.open(trace, "llm", root, PROMPT)
    server.at = worker.at
    engine = server.open(trace, "engine", llm, PROMPT, withheld=True)
    server.close(trace, engine, ANSWER, withheld=True)
    worker.at = server.at
    worker.close(trace, llm, ANSWER)
    worker.close(trace, root)
    worker.exit()
    server.exit()
    spans = {span["role"]: span for span in shipped(run)[trace.hex()]["spans"]}
    assert spans["engine"]["parent_id"] == spans["llm"]["span_id"]
    assert spans["llm"]["start_ns"] < spans["engine"]["start_ns"] < spans["engine"]["end_ns"] < spans["llm"]["end_ns"]
    assert (spans["engine"]["prompt_tokens"], spans["engine"]["response_tokens"]) == (4, 3)


def test_what_has_no_trajectory_is_a_trace_of_its_own(run: Path) -> None:
    process = Process(run)
    trace = os.urandom(16)
    step = process.open(trace, "trainer", attributes={"step": 3})
    process.close(trace, step)
    process.exit()
    assert shipped(run)[trace.hex()]["spans"][0]["role"] == "trainer"
    assert ship(run, once=True).trajectories == 0


def test_a_uid_that_begins_twice_is_a_second_attempt(run: Path) -> None:
    process = Process(run)
    first, second = trajectory(process, uid="u", rollout=1), trajectory(process, uid="u", rollout=1)
    other = trajectory(process, uid="u", rollout=0)
    process.fact("advantage", 2.0, key={"uid": "u", "session_id": 1})
    process.exit()
    lines = shipped(run)
    assert [lines[trace.hex()]["attributes"]["attempt"] for trace in (first, second, other)] == [1, 2, 1]
    assert "advantage" not in lines[first.hex()]["facts"] and lines[second.hex()]["facts"]["advantage"] == 2.0


def test_a_root_that_was_never_written_is_stood_in_for(run: Path) -> None:
    process = Process(run)
    trace = os.urandom(16)
    child = process.open(trace, "engine", parent=77)
    process.close(trace, child)
    process.exit()
    line = shipped(run)[trace.hex()]
    assert line["spans"][0]["parent_id"] is None and "not recorded" in line["notes"][0]


def test_ends_of_calls_that_were_never_begun_are_no_trajectory(run: Path) -> None:
    """Their segment was lost: nothing is left to list, show or send."""
    process = Process(run)
    process.close(b"\x02" * 16, 77)
    trace = trajectory(process)
    process.exit()
    assert set(shipped(run)) == {trace.hex()}
    index = of_run(run)
    assert [row.trace_id for row in index.select(roots=True)] == [trace.hex()]
    index.close()


# -- facts -------------------------------------------------------------------------------------------------------------


def test_facts_find_their_trajectory_by_key_before_and_after_it(run: Path) -> None:
    reward_worker = Process(run, "node-3-cc")
    reward_worker.fact("reward", {"score": 0.25, "acc": True}, key={"uid": "u", "session_id": 0, "output": 0})
    reward_worker.exit()
    process = Process(run)
    trace = trajectory(process, uid="u", reward=None)
    process.fact("trained_in_step", 4, key={"uid": "u", "session_id": "0"})
    process.fact("reward", 9.0, key={"uid": "nobody", "session_id": 0})
    process.exit()
    line = shipped(run)[trace.hex()]
    assert line["facts"] == {"reward": 0.25, "reward_extra_info": {"acc": True}, "trained_in_step": 4}
    assert ship(run, once=True).facts_waiting == 1


def test_facts_find_their_trajectory_by_the_digest_of_the_response(run: Path) -> None:
    process = Process(run)
    process.fact("reward", 0.5, key={"uid": "u", "digest": bytes.fromhex(digest_of(ANSWER + TOOL + FINAL))})
    trace = trajectory(process, uid="u", reward=None)
    process.fact("advantage", -1.0, key={"uid": "u", "digest": digest_of(ANSWER + TOOL + FINAL)})
    process.exit()
    assert shipped(run)[trace.hex()]["facts"] == {"reward": 0.5, "advantage": -1.0}


@pytest.mark.parametrize("late", [False, True])
def test_facts_find_their_trajectory_by_all_of_its_tokens(run: Path, late: bool) -> None:
    """A trainer that knows no names; of equal rollouts each is reported once."""
    process, trainer = Process(run), Process(run, "node-2-bb")
    made = [trajectory(process, uid=uid, rollout=n) for uid in (None, "u") for n in range(2)]
    process.exit()
    if late:
        shipped(run)
    for advantage in (0.5, 0.25, -0.25, -0.5):
        trainer.fact("advantage", advantage, key={"digest": digest_of(PROMPT + ANSWER + TOOL + FINAL), "score": 1.0})
    trainer.fact("advantage", 9.0, key={"digest": digest_of(PROMPT + ANSWER)})
    trainer.exit()
    lines = shipped(run)
    assert sorted(lines[trace.hex()]["facts"]["advantage"] for trace in made) == [-0.5, -0.25, 0.25, 0.5]
    assert ship(run, once=True).facts_waiting == 1


@pytest.mark.parametrize("late", [False, True])
def test_rollouts_that_answered_the_same_are_told_apart_by_their_reward(run: Path, late: bool) -> None:
    """The classic trainer has neither the rollout's number nor an id: rows are uid, response and score (a float32)."""
    process, trainer = Process(run), Process(run, "node-2-bb")
    rewards = [0.1, 0.7, 0.4]
    made = [trajectory(process, uid="u", rollout=n, reward=reward) for n, reward in enumerate(rewards)]
    process.exit()
    if late:
        shipped(run)
    for score in sorted(rewards, reverse=True):
        key = {"uid": "u", "digest": digest_of(ANSWER + TOOL + FINAL), "score": score + 1e-9}
        trainer.fact("advantage", score - 0.4, key=key)
    trainer.exit()
    lines = shipped(run)
    for trace, reward in zip(made, rewards, strict=True):
        assert lines[trace.hex()]["facts"]["advantage"] == pytest.approx(reward - 0.4)


@pytest.mark.parametrize("read_first", [0, 1])
def test_a_fact_is_taken_back_from_a_rollout_that_answered_the_same_as_one_read_later(
    run: Path, read_first: int
) -> None:
    """Facts that came before the second rollout was read belonged to the first, as far as anybody knew."""
    rewards = [0.1, 0.7]
    trainer = Process(run, "node-2-bb")
    key = {"uid": "u", "digest": digest_of(ANSWER + TOOL + FINAL)}
    made: dict[int, str] = {}

    def deliver(number: int, reward: float | None) -> None:
        process = Process(run, f"node-{number + 3}-cc")
        made[number] = trajectory(process, uid="u", rollout=number, reward=reward).hex()
        process.exit()

    deliver(read_first, None)
    for score in rewards:
        trainer.fact("trained_in_step", score, key={**key, "score": score + 1e-9})
    shipped(run)
    deliver(1 - read_first, None)
    late = Process(run, "node-9-dd")
    for number in (1 - read_first, read_first):
        late.fact("reward", rewards[number], key={"uid": "u", "session_id": number})
        shipped(run)
    for process in (late, trainer):
        process.exit()
    lines = shipped(run)
    assert [lines[made[number]]["facts"] for number in (0, 1)] == [
        {"reward": reward, "trained_in_step": reward} for reward in rewards
    ]


def test_a_fact_after_delivery_replaces_what_was_delivered(run: Path) -> None:
    process = Process(run)
    traces = [trajectory(process, uid=f"u{n}", reward=None) for n in range(3)]
    process.exit()
    assert shipped(run)[traces[1].hex()]["facts"] == {}
    late = Process(run, "node-9-dd")
    late.fact("reward", 1.5, key={"uid": "u1", "session_id": 0})
    late.exit()
    lines = shipped(run)
    assert len(lines) == 3 and lines[traces[1].hex()]["facts"] == {"reward": 1.5}
    assert len(lines[traces[1].hex()]["spans"]) == 6


def test_what_a_process_lost_is_noted_in_its_trajectories(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process)
    process.count({"a.called": 12}, {"drop:tokens": 1311, "fault:a": 1})
    process.exit()
    (note,) = shipped(run)[trace.hex()]["notes"]
    assert "1,311 calls without token lists" in note and "fault" not in note


# -- death -------------------------------------------------------------------------------------------------------------


def test_a_killed_process_leaves_its_open_calls_interrupted(run: Path) -> None:
    process = Process(run)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes())
    tool = process.open(trace, "tool", root, inputs={"command": "sleep"})
    process.count({}, {})
    last = process.wall + process.at
    process.raw(b"\x40\x00\x00")
    process.die()
    line = shipped(run)[trace.hex()]
    assert [(span["status"], span["end_ns"]) for span in line["spans"]] == [("INTERRUPTED", last)] * 2
    status = ship(run, once=True)
    assert (status.died, status.torn) == (1, 3)
    assert tool and of_run(run).select(roots=True)[0].status == "INTERRUPTED"


def test_an_open_trajectory_of_a_living_process_is_shown_and_not_sent(
    tmp_path: Path, main: subprocess.Popen[bytes]
) -> None:
    run = new_run(tmp_path, main_pid=main.pid)
    process = Process(run)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes())
    done = trajectory(process, uid="other")
    status = ship(run, once=True)
    assert (status.state, status.open, status.pending) == ("running", 1, 0)
    assert set(delivered(run)) == {done.hex()}
    index = of_run(run)
    assert index.load(trace.hex()[:6]).status == "OPEN"
    assert [row.status for row in index.select(roots=True)] == ["OPEN", "OK"]
    process.close(trace, root)
    process.exit()
    assert shipped(run)[trace.hex()]["status"] == "OK"


def test_records_that_mean_harm_cost_themselves_only(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process)
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    evil = process.open(
        trace, "tool", 1, inputs={"deep": deep, "esc": "\x1b[2J<script>", "n": float("nan"), "b": b"\0" * 9}
    )
    process.close(trace, evil, status="../../etc/passwd")
    process.open(b"short", "llm")
    process.open(b"\xff" * 16, "llm", 2**63)
    process.exit()
    stranger = Process(run, "node-5-ee", run_id="another run")
    other = trajectory(stranger)
    stranger.exit()
    lines = shipped(run)
    assert other.hex() not in lines and len(lines[trace.hex()]["spans"]) == 7
    status = ship(run, once=True)
    assert status.skipped == {"invalid record": 1} and "another run" in status.notes[0]


# -- the shipper's own life --------------------------------------------------------------------------------------------


def test_delivering_twice_makes_no_duplicate(run: Path) -> None:
    process = Process(run)
    for number in range(20):
        trajectory(process, uid=f"u{number}")
    process.exit()
    assert shipped(run) == shipped(run)


def test_a_lost_acknowledgement_sends_again_and_replaces(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process)
    process.exit()
    before = shipped(run)
    os.unlink(run / layout.STATE_DB)
    for name in ("-wal", "-shm"):
        (run / f"{layout.STATE_DB}{name}").unlink(missing_ok=True)
    assert shipped(run) == before and trace.hex() in before


def test_killed_again_and_again_nothing_is_lost_or_doubled(
    tmp_path: Path, main: subprocess.Popen[bytes], follow: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    run = new_run(tmp_path, main_pid=main.pid)
    process = Process(run)
    dice = random.Random(7)
    expected: dict[str, float] = {}
    for round in range(8):
        shipper = follow(run)
        for number in range(10):
            reward = dice.random()
            expected[trajectory(process, uid=f"{round}.{number}", reward=None).hex()] = reward
            process.fact("reward", reward, key={"uid": f"{round}.{number}", "session_id": 0})
        time.sleep(dice.uniform(0.2, 1.3))  # the moment of death is the subject
        shipper.send_signal(signal.SIGKILL)
        shipper.wait()
    process.exit()
    main.kill()
    main.wait()
    last = follow(run)
    assert last.wait(DEADLINE) == 0
    assert {trace: line["facts"].get("reward") for trace, line in delivered(run).items()} == expected
    assert Status.read(run).state == "done"


def stepped(shipper: Shipper) -> State:
    """Delivers everything; fails where something waits for ever."""
    try:
        until(lambda: shipper.step()[0] == "done")
    finally:
        shipper.close()
    return State.of_run(shipper.run_folder)


def test_a_backlog_waits_for_no_more_than_memory_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotrace.ship.shipper.AHEAD", 2 << 20)
    monkeypatch.setattr("autotrace.ship.delivery.delivery.GATHER_FOR_TABLES", 1e9)  # seconds, where more is to come
    run = new_run(tmp_path, backends=["parquet"])
    process = Process(run)
    for number in range(300):
        trajectory(process, uid=f"u{number}")
    process.exit()
    stepped(Shipper(run, once=True))


@pytest.mark.parametrize(
    ("group", "given"),
    [
        ("u{}", {"keep": ["errors"]}),
        ("u", {"keep": ["errors"]}),
        ("u", {"step_budget": 1 << 30}),
        ("u{}", {"backends": []}),
    ],
    ids=["nothing is kept", "a large group", "a large group under a budget", "no backend"],
)
def test_what_is_not_delivered_at_once_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, given: dict[str, Any]
) -> None:
    monkeypatch.setattr("autotrace.ship.shipper.AHEAD", 2 << 20)  # for a quarter of them
    run = new_run(tmp_path, **given)
    process = Process(run)
    for number in range(300):
        trajectory(process, uid=group.format(number), rollout=number)
    process.exit()
    state = stepped(Shipper(run, once=True))
    assert state.count("SELECT count(*) FROM traces WHERE complete = 1") == 300


def test_what_belongs_together_is_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a trajectory of a long backlog is complete without what the other process recorded of it."""
    monkeypatch.setattr("autotrace.ship.index.indexer.ROUND_BYTES", 200_000)
    monkeypatch.setattr("autotrace.ship.index.open_traces.GRACE", 0.0)
    run = new_run(tmp_path)
    agents = [Process(run, f"node-{number}-aa") for number in range(1, 5)]
    engine = Process(run, "node-9-bb")  # writes as much as all of them
    for number in range(200):
        agent, trace = agents[number % 4], os.urandom(16)
        root = agent.open(trace, "trajectory", attributes=attributes(uid=f"u{number}"))
        call = agent.open(trace, "llm", root, inputs={"messages": "x" * 2_000})
        request = engine.open(trace, "engine", call, inputs={"prompt": "x" * 2_000})
        engine.close(trace, request)
        agent.close(trace, call)
        agent.close(trace, root)
    for process in (*agents, engine):
        process.exit()
    state = stepped(Shipper(run, once=True))
    at_once = state.count("SELECT count(*) FROM traces WHERE complete = 1 AND version = 1 AND spans = 3")
    assert at_once > 180, "but for some at the end of a round, for which GRACE is there"


def test_a_backend_that_refuses_keeps_nothing_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parquet/no-project/run").mkdir(parents=True)
    (tmp_path / "parquet/no-project/run/run.json").write_text("it is refused where another run is")
    monkeypatch.setattr("autotrace.ship.index.indexer.ROUND_BYTES", 200_000)
    monkeypatch.setattr("autotrace.ship.index.open_traces.GRACE", 0.05)
    run = new_run(tmp_path, backends=["jsonl", "parquet"])
    process, made = Process(run), set()
    for step in range(3):  # of each, all run at the same time: in between, nothing waits for the other backend
        traces = [os.urandom(16) for _ in range(100)]
        made.update(trace.hex() for trace in traces)
        roots = [
            process.open(trace, "trajectory", attributes=attributes(step=step, uid=f"{step}.{number}"))
            for number, trace in enumerate(traces)
        ]
        for _ in range(6):
            for trace, root in zip(traces, roots, strict=True):
                process.close(trace, process.open(trace, "llm", root, inputs={"messages": "x" * 3_000}))
        for trace, root in zip(traces, roots, strict=True):
            process.close(trace, root)
    process.exit()
    assert ship(run, once=True).state == "blocked"
    assert set(delivered(run)) == made


def test_a_second_shipper_leaves_quietly(run: Path, follow: Callable[[Path], subprocess.Popen[bytes]]) -> None:
    Status("running", "run").write(run)
    with ShipperLock(run) as lock:
        assert lock.held
        assert follow(run).wait(DEADLINE) == 0
        assert ship(run, once=True).state == "running"


def test_under_drain_everything_is_delivered_while_the_first_process_waits(
    tmp_path: Path, main: subprocess.Popen[bytes], follow: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    run = new_run(tmp_path, main_pid=main.pid)
    process, idle = Process(run), Process(run, "node-7-ff")  # the second never ends: a daemon of the run
    shipper = follow(run)
    trace = trajectory(process)
    until(lambda: trace.hex() in delivered(run), (OSError, ValueError))
    assert Status.read(run).state == "running"
    late = trajectory(process)
    process.exit()
    (run / layout.DRAIN).touch()
    status = until(lambda: (now := Status.read(run)).state == "done" and now, (OSError, ValueError))
    assert status.pending == 0 and late.hex() in delivered(run)
    assert shipper.poll() is None
    for ignored in (signal.SIGINT, signal.SIGHUP):
        shipper.send_signal(ignored)
    main.kill()
    main.wait()
    assert shipper.wait(DEADLINE) == 0 and idle.fd >= 0


def test_sigterm_ends_the_shipper_with_its_state_committed(
    tmp_path: Path, main: subprocess.Popen[bytes], follow: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    run = new_run(tmp_path, main_pid=main.pid)
    process = Process(run)
    trace = trajectory(process)
    shipper = follow(run)
    until(lambda: trace.hex() in delivered(run), (OSError, ValueError))
    until(lambda: (now := Status.read(run)).pending == 0 and now.trajectories == 1, (OSError, ValueError))
    shipper.terminate()
    assert shipper.wait(DEADLINE) == 0
    assert of_run(run).run.deliveries(trace.hex())["jsonl"][0]


def test_targets_and_drops_are_summed_over_processes(run: Path) -> None:
    for name in ("node-1-aa", "node-2-bb"):
        process = Process(run, name)
        process.report("verl.X.run", "bound")
        process.report("verl.Y.run", "failed", "no such class")
        process.count({"verl.X.run": 1}, {})
        process.count({"verl.X.run": 5}, {"full": 2})
        process.exit()
    status = ship(run, once=True)
    first, second = status.targets
    assert (first.key, first.calls, first.processes, first.states) == ("verl.X.run", 10, 2, {"bound": 1})
    assert second.reasons == ["no such class"] and status.drops == {"full": 4}


def test_the_index_reads_a_folder_it_cannot_write(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process, nested_tool=True)
    (run / layout.SHIPPER_LOCK).symlink_to("/nonexistent/lock")
    index = of_run(run)
    assert [row.trace_id for row in index.select(equals(step=1, role="trajectory"), roots=True)] == [trace.hex()]
    assert index.select(equals(step=2), roots=True) == [] and not (run / layout.STATE_DB).exists()
    assert index.load(f"tr-{trace.hex()[:8]}").turns == 2
    assert index.select(roots=True)[0].tool_calls == 1
    with pytest.raises(KeyError, match="no trace of this run"):
        index.load("zz")
    with pytest.raises(QueryError, match="there is no column of trajectories called colour"):
        index.select(equals(colour=1), roots=True)
