"""Batches: each row a call in a trajectory of its own, whatever the calls below have of the rows."""

from __future__ import annotations

from collections import deque
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pytest

from autotrace.config.plan import Settings
from autotrace.record import calls, faults, rows, sampling
from autotrace.spool.records import Close, Define, Fact, Open

from .conftest import Recorder


class Trainer:
    """As TRL's: a batch of prompts, of which some rows go on after the first turn."""

    def __init__(self, goes_on: list[int], **attributes: Any) -> None:
        self.goes_on = goes_on
        self.step, self.size = 7, 2
        self.rewards: deque[float] = deque([9.0, 0.0, 1.0, 2.0, 3.0], maxlen=5)
        self.__dict__.update(attributes)

    def step_batch(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        prompts = [row["prompt"] for row in inputs]
        said = self.turn(prompts)
        if self.goes_on:
            self.turn([prompts[row] + said[row] + [50 + row] for row in self.goes_on])
        return {"advantages": [0.5 * row for row in range(len(inputs))]}

    def turn(self, prompts: list[list[int]]) -> list[list[int]]:
        return [[prompt[-1] + 100, 99] for prompt in prompts]


INPUTS = [{"prompt": [1, row], "answer": str(row)} for row in range(4)]


@pytest.fixture
def trainer(recorder: Recorder) -> type[Trainer]:
    class Traced(Trainer):
        step_batch = recorder.wrap(
            Trainer.step_batch,
            key="batch",
            role="trajectory",
            rows=("inputs",),
            include=("row.answer",),
            attributes={
                "step": ("self.step",),
                "uid": ("group(i, self.size)",),
                "rollout_n": ("member(i, self.size)",),
            },
            facts={"advantage": ("result.advantages[i]",), "reward": ("self.rewards[row_from_end(i, n)]",)},
        )
        turn = recorder.wrap(
            Trainer.turn,
            key="turn",
            role="llm",
            rows=("prompts",),
            include=(),
            tokens={"prompt": ("row",), "response": ("result[i]",)},
        )

    return Traced


def roots(recorder: Recorder) -> list[Open]:
    """Of the trajectories."""
    names = {define.id: define for define in recorder.records(Define)}
    return [record for record in recorder.records(Open) if names[record.target].role == "trajectory"]


def test_each_row_is_a_trajectory(recorder: Recorder, trainer: type[Trainer]) -> None:
    trainer([]).step_batch(INPUTS)
    found = roots(recorder)
    assert [root.inputs for root in found] == [{"answer": str(row)} for row in range(4)]
    assert [root.attributes["rollout_n"] for root in found] == [0, 1, 0, 1]
    assert [root.attributes["uid"] for root in found] == ["1.0", "1.0", "1.1", "1.1"]
    assert len({root.trace for root in found}) == 4
    assert {root.parent for root in found} == {0}
    facts = {(fact.trace, fact.name): fact.value for fact in recorder.records(Fact)}
    assert [facts[root.trace, "advantage"] for root in found] == [0.0, 0.5, 1.0, 1.5]
    assert [facts[root.trace, "reward"] for root in found] == [0.0, 1.0, 2.0, 3.0]  # the newest, not all there are
    closed = [record.span for record in recorder.records(Close)]
    assert all(root.span in closed for root in found)


def test_a_number_of_a_group_counts_within_its_batch(recorder: Recorder, trainer: type[Trainer]) -> None:
    for _ in range(2):
        trainer([]).step_batch(INPUTS[:2])
    assert [root.attributes["uid"] for root in roots(recorder)] == ["1.0", "1.0", "2.0", "2.0"]


@pytest.mark.parametrize("goes_on", [[0, 1, 2, 3], [1, 3], [2]])
def test_turns_of_some_rows_find_theirs(recorder: Recorder, trainer: type[Trainer], goes_on: list[int]) -> None:
    trainer(goes_on).step_batch(INPUTS)
    found = roots(recorder)
    turns = [record for record in recorder.records(Open) if record.prompt is not None]
    assert len(turns) == 4 + len(goes_on)
    for number, turn in zip(goes_on, turns[4:], strict=True):
        assert (turn.trace, turn.parent) == (found[number].trace, found[number].span)
        assert (turn.prompt.keep, turn.prompt.total) == (4, 5), "only what is new is written"
    assert rows.UNMATCHED not in faults.counts


def test_rows_that_said_the_same_are_told_apart_by_their_order(recorder: Recorder, trainer: type[Trainer]) -> None:
    trainer([0, 2]).step_batch([{"prompt": [1, 1], "answer": "same"}] * 3)
    found = roots(recorder)
    turns = [record for record in recorder.records(Open) if record.prompt is not None]
    assert len({turn.trace for turn in turns[3:]}) == 2
    assert {turn.trace for turn in turns[3:]} <= {root.trace for root in found}


def test_conversations_find_their_row_by_being_the_same_object(recorder: Recorder) -> None:
    class Chats:
        def batch(self, inputs: list[Any]) -> None:
            conversations = [[{"role": "user", "content": text}] for text in inputs]
            self.turn(conversations)
            self.turn(conversations[1:])

        def turn(self, prompts: list[Any]) -> list[list[int]]:
            return [[1] for _ in prompts]

    Chats.batch = recorder.wrap(Chats.batch, key="batch", role="trajectory", rows=("inputs",))  # type: ignore[method-assign]
    Chats.turn = recorder.wrap(  # type: ignore[method-assign]
        Chats.turn, key="turn", role="llm", rows=("prompts",), include=(), tokens={"response": ("result[i]",)}
    )
    Chats().batch(["a", "b", "c"])
    found = roots(recorder)
    names = {define.id: define.role for define in recorder.records(Define)}
    turns = [record for record in recorder.records(Open) if names[record.target] == "llm"]
    assert [turn.trace for turn in turns] == [root.trace for root in [*found, *found[1:]]]


def test_what_goes_on_with_no_row_is_counted(recorder: Recorder, trainer: type[Trainer]) -> None:
    class Other(trainer):  # type: ignore[misc]
        def go_on(self) -> None:
            self.turn([[7, 7, 7]])

    def step_batch(self: Any, inputs: list[Any]) -> None:
        self.turn([row["prompt"] for row in inputs])
        self.go_on()

    Other.step_batch = recorder.wrap(step_batch, key="other", role="trajectory", rows=("inputs",))
    Other([]).step_batch(INPUTS)
    assert faults.counts[rows.UNMATCHED] == 1


def test_a_batch_that_fails_fails_in_each_row(recorder: Recorder) -> None:
    def batch(inputs: list[int]) -> None:
        raise ValueError("out of memory")

    traced = recorder.wrap(batch, role="trajectory", rows=("inputs",))
    with pytest.raises(ValueError, match="out of memory"):
        traced([1, 2, 3])
    assert [record.status for record in recorder.records(Close)] == ["ERROR"] * 4


def test_rows_are_in_the_file_while_the_batch_runs(recorder: Recorder) -> None:
    seen: list[int] = []

    def batch(inputs: list[int]) -> None:
        seen.append(len(recorder.records(Open)))

    recorder.wrap(batch, role="trajectory", rows=("inputs",))([1, 2, 3])
    assert seen == [4]


async def test_rows_of_a_coroutine(recorder: Recorder) -> None:
    async def batch(inputs: list[int]) -> list[int]:
        return [2 * number for number in inputs]

    await recorder.wrap(batch, role="trajectory", rows=("inputs",), include=("row", "result[i]"))([1, 2])
    assert [record.inputs for record in roots(recorder)] == [{"row": 1}, {"row": 2}]
    assert sorted(record.output for record in recorder.records(Close) if record.output is not None) == [2, 4]


def test_facts_about_trajectories_of_another_call(recorder: Recorder) -> None:
    def score(states: list[dict[str, Any]]) -> None:
        for number, state in enumerate(states):
            state["reward"] = float(number)

    traced = recorder.wrap(
        score, role="reward", rows=("states",), of=("row.trajectory_id",), facts={"reward": ("row.reward",)}
    )
    traced([{"trajectory_id": "a"}, {"trajectory_id": "b"}, {}])
    facts = recorder.records(Fact)
    assert [(fact.trace, fact.key, fact.value) for fact in facts] == [(b"", {"of": "a"}, 0.0), (b"", {"of": "b"}, 1.0)]
    assert len(recorder.records(Open)) == 1


def test_only_some_rows_are_sampled(
    recorder: Recorder, trainer: type[Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "decide", lambda attributes: attributes["uid"] == "1.1")
    trainer([1, 2]).step_batch(INPUTS)
    found = roots(recorder)
    assert [root.attributes["uid"] for root in found] == ["1.1", "1.1"]
    turns = [record for record in recorder.records(Open) if record.prompt is not None]
    assert {turn.trace for turn in turns} == {root.trace for root in found}
    assert len(turns) == 3


def test_exactly_so_many_groups_of_a_batch(recorder: Recorder) -> None:
    recorder.use(Settings(flush_interval=0.01, sampling={"max_samples_per_step_per_worker": 1}))

    def batch(inputs: list[int]) -> None:
        pass

    attributes = {"uid": ("group(i, 2)",)}
    recorder.wrap(batch, role="trajectory", rows=("inputs",), attributes=attributes)(list(range(8)))
    found = roots(recorder)
    assert len(found) == 2
    assert len({root.attributes["uid"] for root in found}) == 1


def test_an_adapter_says_which_row_a_call_is_for(recorder: Recorder) -> None:
    def tool(a: int) -> int:
        return a

    traced_tool = recorder.wrap(tool, role="tool")

    def batch(inputs: list[int]) -> None:
        with rows.row(1):
            traced_tool(3)
        with rows.row(99):
            traced_tool(4)

    traced = recorder.wrap(batch, role="trajectory", rows=("inputs",))
    traced([1, 2])
    found = roots(recorder)
    opened = {tuple((record.inputs or {}).items()): record for record in recorder.records(Open)}
    assert opened[("a", 3),].trace == found[1].trace
    assert opened[("a", 4),].trace not in {root.trace for root in found}, "there is no such row"


def test_a_row_may_be_left_in_another_context(recorder: Recorder) -> None:
    """As by an event loop that closes what a cancelled tool left behind."""

    def batch(inputs: list[int]) -> None:
        one, other = copy_context(), copy_context()
        inside = rows.row(1)
        one.run(inside.__enter__)
        other.run(inside.__exit__, None, None, None)

    recorder.wrap(batch, role="trajectory", rows=("inputs",))([1, 2])
    assert {record.status for record in recorder.records(Close)} == {"OK"}


def test_nothing_of_the_hosts_is_held_afterwards(recorder: Recorder) -> None:
    import weakref

    class Item:
        pass

    def batch(inputs: list[Any]) -> None:
        pass

    traced = recorder.wrap(batch, role="trajectory", rows=("inputs",), include=())
    item = Item()
    alive = weakref.ref(item)
    traced([item])
    del item
    recorder.records()
    assert alive() is None


def test_more_rows_than_are_recorded_are_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_ROWS", 2)

    def batch(inputs: list[int]) -> None:
        pass

    recorder.wrap(batch, role="trajectory", rows=("inputs",))([1, 2, 3])
    assert len(roots(recorder)) == 2
    assert faults.counts[rows.BEYOND] == 1


@pytest.mark.parametrize("inputs", [None, 3, "text", {"a": 1}, SimpleNamespace()])
def test_what_is_no_list_has_no_rows(recorder: Recorder, inputs: Any) -> None:
    def batch(inputs: Any) -> str:
        return "fine"

    assert recorder.wrap(batch, role="trajectory", rows=("inputs",))(inputs) == "fine"
    assert len(recorder.records(Open)) == 1


def test_samples_of_a_resumed_run_are_the_same() -> None:
    groups = [f"5.{number}" for number in range(4)]
    samples = ["q1", "q2", "q3", "q4"]
    chosen = sampling.lowest(groups, samples, 2, 0)
    again = sampling.lowest([f"9.{number}" for number in range(4)], samples, 2, 0)
    assert {group[2:] for group in chosen} == {group[2:] for group in again}
