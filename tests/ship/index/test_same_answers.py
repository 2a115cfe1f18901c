"""To which of several rollouts a fact belongs that names them by what they answered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autotrace.run.info import RunInfo
from autotrace.ship.assembly.token_sequences import digest_of
from autotrace.ship.index.facts import UNKNOWN, Candidate, Claim, FactBook, deal, distance
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.store.row import TraceRow
from autotrace.ship.store.state import State
from autotrace.spool.records import Fact
from tests.ship.spools import ANSWER, PROMPT, Process, new_run


@pytest.mark.parametrize(
    ("reward", "score", "expected"),
    [(0.1, 0.1 + 1e-9, 0.0), (None, 0.1, UNKNOWN), (0.1, None, 0.0), (None, None, 0.0), (0.5, 0.25, 0.25)],
)
def test_a_reward_that_is_not_known_yet_is_between_match_and_mismatch(
    reward: float | None, score: float | None, expected: float
) -> None:
    assert distance(reward, score) == expected
    assert distance(0.25, 0.25) < UNKNOWN < distance(0.25, 0.25 + 1e-3)


def claims(*scores: float | None, name: str = "advantage", at_ns: int = 100) -> list[Claim]:
    return [Claim(name, None, score, at_ns + number) for number, score in enumerate(scores)]


def rollouts(*rewards: float | None) -> list[Candidate]:
    return [Candidate("abcdef"[number], number, reward) for number, reward in enumerate(rewards)]


@pytest.mark.parametrize("order", [*itertools.permutations([0.1, 0.4, 0.7])])
def test_each_goes_to_the_rollout_with_its_reward(order: tuple[float, ...]) -> None:
    dealt = deal(claims(*order), rollouts(0.7, 0.1, 0.4))
    assert dict(zip(order, dealt, strict=True)) == {0.7: "a", 0.1: "b", 0.4: "c"}


def test_what_matches_no_reward_waits_for_a_rollout_that_was_not_read_yet() -> None:
    assert deal(claims(0.1, 0.7), rollouts(0.7)) == [None, "a"]


def test_a_score_that_the_trainer_changed_goes_to_the_nearest() -> None:
    assert deal(claims(0.65, 0.05), rollouts(0.1, 0.7)) == ["b", "a"]


def test_without_scores_they_are_dealt_out_evenly() -> None:
    dealt = deal(claims(None, None, None, None), rollouts(0.1, 0.7))
    assert sorted(filter(None, dealt)) == ["a", "a", "b", "b"]


def test_several_outputs_and_names_are_dealt_out_each_by_itself() -> None:
    several = [Claim(name, output, 0.5, 1) for name in ("advantage", "trained_in_step") for output in ("0", "1")]
    assert deal(several, rollouts(0.5)) == ["a"] * 4


def test_the_latest_that_had_begun_is_preferred_of_those_alike() -> None:
    """A prompt that comes again in a later epoch, with the same answer."""
    early, late = Candidate("early", 10, 1.0), Candidate("late", 200, 1.0)
    assert deal(claims(1.0, at_ns=100), [late, early]) == ["early"]
    assert deal(claims(1.0, at_ns=300), [late, early]) == ["late"]


@pytest.mark.parametrize("uid", ["u", None])
def test_what_waited_for_an_answer_when_a_shipper_ended_is_given_to_it_by_the_next(uid: str | None) -> None:
    state = State(":memory:")
    row, answer = TraceRow("aa" * 16, uid="u", start_ns=1), "0123456789abcdef"
    key = {"digest": answer} if uid is None else {"digest": answer, "uid": uid}
    assert FactBook(state).digested(row, [answer]) == set()
    assert FactBook(state).add(1, 8, Fact(b"", key, "advantage", 0.5, 5), 5) == set()
    state.put_rows([row])
    state.db.execute("INSERT INTO digests VALUES (?, ?)", (answer, row.trace_id))
    book = FactBook(state)
    assert book.digested(row, ["f" * 16]) == set()
    assert book.digested(row, [answer]) == {row.trace_id}
    assert state.count("SELECT count(*) FROM facts WHERE trace_id = ?", (row.trace_id,)) == 1
    state.close()


REWARDS = (1.0, 0.0)


def indexed(folder: Path, order: Sequence[str], restarted: bool) -> list[dict[str, Any]]:
    """The facts of two rollouts that answered the same, indexed in this order of their records: `answer N`, `reward N`,
    and what the trainer says of both, the second time in another order. ``restarted``: by another shipper each time."""
    run = new_run(folder, "-".join(order).replace(" ", ""))
    rollouts, trainer = [Process(run, f"node-{number}-aa") for number in (1, 2)], Process(run, "node-3-aa")
    ids = [bytes([number]) * 16 for number in (1, 2)]
    keys = [{"uid": "u", "digest": bytes.fromhex(digest_of(ANSWER)), "score": reward} for reward in REWARDS]

    def answer(number: int) -> None:
        process, trace = rollouts[number], ids[number]
        root = process.open(trace, "trajectory", attributes={"uid": "u"})
        process.close(trace, process.open(trace, "llm", root, PROMPT), ANSWER)
        process.close(trace, root)

    def advantages() -> None:
        for number, key in enumerate(keys):
            trainer.fact("advantage", number, key=key)
            trainer.fact("token_level_score", key["score"], key=key)

    def trained() -> None:
        for number, key in reversed([*enumerate(keys)]):
            trainer.fact("trained_in_step", number, key=key)

    events: dict[str, Callable[[], None]] = {"advantages": advantages, "trained": trained}
    for number in (0, 1):
        events[f"answer {number}"] = lambda number=number: answer(number)
        events[f"reward {number}"] = lambda number=number: rollouts[number].fact("reward", REWARDS[number], ids[number])
    state = State(":memory:")
    index = Indexer(state, run, RunInfo.read(run), [])
    trainer.at += 10**9  # it speaks after both have begun
    for event in order:
        events[event]()
        index.round()
        index.hurry()
        index.settle(over=False)
        if restarted:
            index = Indexer(state, run, RunInfo.read(run), [])
    while index.open_traces:
        index.hurry()
        index.settle(over=False)
    facts = [msgspec.json.decode(next(iter(state.rows(f"trace_id = '{trace.hex()}'"))).facts) for trace in ids]
    state.close()
    for process in (*rollouts, trainer):
        process.exit()
    return facts


@pytest.mark.parametrize("restarted", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("recorded", [(), (0,), (1,), (0, 1)], ids=["no reward", "the first", "the second", "both"])
def test_two_that_answered_the_same_have_each_their_own_in_whatever_order_it_is_read(
    tmp_path: Path, recorded: tuple[int, ...], restarted: bool
) -> None:
    """The reward of one may be read last, or was not recorded: then a reward that a fact itself brought is no evidence
    of whose that fact is."""
    own = [{"reward": REWARDS[number], "advantage": number, "trained_in_step": number} for number in (0, 1)]
    fitting = [own] if recorded else [own, own[::-1]]  # without a reward nothing tells them apart
    rewards = [f"reward {number}" for number in recorded]
    for order in itertools.permutations(["answer 0", "answer 1", *rewards[:1], "advantages", "trained"]):
        assert indexed(tmp_path, [*order, *rewards[1:]], restarted) in fitting, order
