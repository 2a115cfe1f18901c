"""What the trainer computed for each token finds its trajectory and its calls."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest

from autotrace.run import layout
from autotrace.ship.assembly.token_sequences import digest_of
from autotrace.ship.index import facts
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.ship.store.state import State
from autotrace.spool.records import StepFacts
from autotrace.spool.token_facts import MASK, NUMBERS, SUMMARY, pack_summary
from autotrace.tables.conditions import condition
from autotrace.trajectory.model import Trajectory
from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, attributes, new_run, trajectory

RESPONSE = ANSWER + TOOL + FINAL


def packed(mismatch: float = 0.5, columns: bool = True, cut: int | None = None) -> dict[str, bytes]:
    """As the adapter packs it: token n of the response has the log-probability -n."""
    numbers = {"tokens": len(RESPONSE), "mismatch_mean": 0.125, "mismatch_max": mismatch, "mismatch_at": 1}
    value = {SUMMARY: pack_summary([numbers.get(name, float("nan")) for name in NUMBERS])}
    if columns:
        old = [-float(number) for number in range(len(RESPONSE))][:cut]
        value["old_log_probs"] = struct.pack(f"<{len(old)}e", *old)
        value[MASK] = (bytes([1] * len(ANSWER)) + bytes(len(TOOL)) + bytes([1] * len(FINAL)))[:cut]
    return value


def read(run: Path, trace: bytes) -> Trajectory:
    assert ship(run, once=True).state == "done"
    reader = of_run(run)
    try:
        return reader.load(trace.hex())
    finally:
        reader.close()


def by_session(output: int = 0) -> dict[str, Any]:
    return {"uid": "u", "session_id": "0", "output": str(output)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("key", [by_session(), {"uid": "u", "digest": bytes.fromhex(digest_of(RESPONSE))[:8]}])
def test_each_call_gets_the_values_of_its_tokens(run: Path, before: bool, key: dict[str, Any]) -> None:
    trainer, process = Process(run, "node-9-dd"), Process(run)
    if before:
        trainer.token_facts(packed(), key)
    trace = trajectory(process, uid="u")
    process.exit()
    if not before:
        read(run, trace)
        trainer.token_facts(packed(), key)
    trainer.exit()
    one = read(run, trace)
    assert (one.facts["mismatch_mean"], one.facts["mismatch_max"]) == (0.125, 0.5)
    assert one.facts["token_facts"]["mismatch_at"] == 1 and "entropy" not in one.facts
    first, second = one.llm_spans
    start = len(ANSWER + TOOL)
    assert first.old_logprobs == [-float(number) for number in range(len(ANSWER))]
    assert second.old_logprobs == [-float(number) for number in range(start, start + len(FINAL))]
    assert (first.loss_mask, second.loss_mask) == ([1] * len(ANSWER), [1] * len(FINAL))
    assert first.entropy is None and one.root.old_logprobs is None


def test_a_response_that_the_trainer_cut(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process, uid="u")
    process.token_facts(packed(cut=len(ANSWER) + 1), by_session())
    process.exit()
    first, second = read(run, trace).llm_spans
    assert len(first.old_logprobs or ()) == len(ANSWER) and second.old_logprobs is None


def test_of_several_outputs_the_last_is_the_agents(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process, uid="u")
    process.token_facts(packed(), by_session(1))
    process.token_facts(packed(mismatch=0.25, cut=1), by_session(0))
    process.exit()
    one = read(run, trace)
    assert one.facts["mismatch_max"] == 0.25 and one.facts["token_facts.1"]["mismatch_max"] == 0.5
    assert len(one.llm_spans[0].old_logprobs or ()) == len(ANSWER)


def test_an_agent_that_began_anew_has_them_itself(run: Path) -> None:
    process, trace = Process(run), b"a" * 16
    root = process.open(trace, "trajectory", attributes=attributes(uid="u"))
    agent = process.open(trace, "agent", root)
    for answer in (ANSWER, FINAL):
        call = process.open(trace, "llm", agent, PROMPT)
        process.close(trace, call, answer)
    process.close(trace, agent, RESPONSE, mask=bytes([1] * len(RESPONSE)))
    process.close(trace, root)
    process.token_facts(packed(), by_session())
    process.exit()
    one = read(run, trace)
    (whole,) = [span for span in one.spans if span.old_logprobs]
    assert whole.role == "agent" and len(whole.old_logprobs or ()) == len(RESPONSE)


def test_without_columns_there_are_numbers(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process, uid="u")
    process.token_facts(packed(columns=False), by_session())
    process.exit()
    one = read(run, trace)
    assert one.facts["mismatch_max"] == 0.5
    assert not any(span.old_logprobs or span.loss_mask for span in one.spans)


def test_columns_of_a_removed_segment_are_still_in_the_tables(run: Path) -> None:
    process, trainer = Process(run), Process(run, "node-9-dd")
    trace = trajectory(process, uid="u")
    trainer.token_facts(packed(), by_session())
    process.exit()
    trainer.exit()
    before = read(run, trace).llm_spans[0]
    trainer.path.unlink()
    one = read(run, trace)
    assert one.facts["mismatch_max"] == 0.5 and one.llm_spans[0].response_ids == ANSWER
    assert before.old_logprobs and one.llm_spans[0].old_logprobs == before.old_logprobs


def test_hostile_values_are_no_values(run: Path) -> None:
    process = Process(run)
    trace = trajectory(process, uid="u")
    process.token_facts({SUMMARY: b"short", "old_log_probs": b"\0", MASK: b""}, by_session())
    large = trajectory(process, uid="large")
    process.token_facts({SUMMARY: pack_summary([3e38] * len(NUMBERS))}, {**by_session(), "uid": "large"})
    process.exit()
    assert "tokens" not in read(run, large).facts["token_facts"]
    one = read(run, trace)
    assert one.facts["token_facts"] == {"columns": 2} and one.llm_spans[0].old_logprobs is None
    assert (run / layout.SPOOL).is_dir()


def test_trajectories_are_found_by_their_mismatch(run: Path) -> None:
    process = Process(run)
    made = [trajectory(process, uid="u", rollout=number) for number in range(3)]
    for number in range(3):
        process.token_facts(packed(mismatch=number), {"uid": "u", "session_id": str(number), "output": "0"})
    process.exit()
    read(run, made[0])
    reader = of_run(run)
    found = reader.select(condition("mismatch_max > 1 and mismatch_mean < 1"))
    assert [row.trace_id for row in found] == [made[2].hex()]
    reader.close()


def test_numbers_of_a_step_add_to_each_other(run: Path) -> None:
    process = Process(run)
    trajectory(process, uid="u")
    process.write(StepFacts(0, "metrics", {"val-core/acc": 0.25}, process.tick()))
    process.write(StepFacts(1, "metrics", {"critic/score/mean": 0.5, "actor/entropy": float("nan")}, process.tick()))
    process.write(StepFacts(1, "metrics", {"val-core/acc": 0.75, "critic/score/mean": 0.6}, process.tick()))
    process.write(StepFacts(1, "token_facts", {"left": 3}, process.tick()))
    process.write(StepFacts(11, "metrics", {"a": 1}, process.tick()))
    process.exit()
    assert ship(run, once=True).state == "done"
    with contextlib.closing(of_run(run)) as reader:
        known = reader.run.step_facts()
    assert known[1] == {"metrics": {"critic/score/mean": 0.6, "val-core/acc": 0.75}, "token_facts": {"left": 3}}
    assert known[0] == {"metrics": {"val-core/acc": 0.25}} and known.keys() == {0, 1, 11}
    with State.of_run(run) as state:
        assert facts.read_steps(state, 1) == {1: known[1]}
    state.close()
