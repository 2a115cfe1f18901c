"""Calls that return the rows of their trajectory (``chains`` of a spec)."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from autotrace.config.plan import Settings
from autotrace.record import context, faults, rows
from autotrace.spool.records import Close, Fact, Open

from .conftest import Recorder

LIST: dict[str, Any] = {
    "role": "trajectory",
    "chains": ("result.rows",),
    "tokens": {"prompt": ("row.prompt",), "response": ("row.answer",), "mask": ("row.mask",)},
    "attributes": {"sample_index": ("task",), "kind": ("row.kind",), "of": ("n",)},
    "facts": {"reward": ("row.reward",), "num_turns": ("result.turns",)},
}


@dataclass
class Row:
    """What a trainer makes a row of."""

    prompt: list[int]
    answer: list[int]
    mask: list[Any]
    reward: float
    kind: str


@dataclass
class Episode:
    """What an agent returns."""

    rows: Any
    turns: int = 7


def returned(*lengths: int) -> Episode:
    """Each row has its number as its reward, and its last token is not trained on."""
    return Episode(
        [
            Row([1, 2], [*range(10, 10 + length)], [1] * (length - 1) + [0], float(i), f"kind {i}")
            for i, length in enumerate(lengths)
        ]
    )


def found(recorder: Recorder) -> tuple[Open, list[Open], dict[tuple[str, Any], Any]]:
    """The root, its rows, and its facts by name and key."""
    root, *below = recorder.records(Open)
    facts = {(fact.name, (fact.key or {}).get("output")): fact.value for fact in recorder.records(Fact)}
    assert {fact.trace for fact in recorder.records(Fact)} <= {root.trace}
    assert {(one.trace, one.parent) for one in below} <= {(root.trace, root.span)}
    return root, below, facts


def plain(recorder: Recorder, made: Any) -> Any:
    def episode(task: int) -> Any:
        return made

    return recorder.wrap(episode, **LIST)(3)


def coroutine(recorder: Recorder, made: Any) -> Any:
    async def episode(task: int) -> Any:
        await asyncio.sleep(0)
        return made

    return asyncio.run(recorder.wrap(episode, **LIST)(3))


def generator(recorder: Recorder, made: Any) -> Any:
    def episode(task: int) -> Iterator[int]:
        yield 1
        return made

    return [*recorder.wrap(episode, **LIST)(3)] and made


def stream(recorder: Recorder, made: Any) -> Any:
    async def episode(task: int) -> AsyncIterator[Any]:
        yield made

    async def read() -> Any:
        (item,) = [item async for item in recorder.wrap(episode, **LIST)(3)]
        return item

    return asyncio.run(read())


def with_block(recorder: Recorder, made: Any) -> Any:
    @contextmanager
    def episode(task: int) -> Iterator[Any]:
        yield made

    with recorder.wrap(episode, **LIST)(3) as value:
        return value


@pytest.mark.parametrize("call", [plain, coroutine, generator, stream, with_block])
def test_each_row_is_a_call_with_its_tokens_and_facts(recorder: Recorder, call: Callable[[Recorder, Any], Any]) -> None:
    made = returned(4, 2)
    assert call(recorder, made) is made
    root, below, facts = found(recorder)
    assert root.attributes == {"sample_index": 3}
    assert [one.attributes for one in below] == [
        {"row": 0, "kind": "kind 0", "of": 2}, {"row": 1, "kind": "kind 1", "of": 2},
    ]  # fmt: skip
    closed = {record.span: record for record in recorder.records(Close)}
    assert [closed[one.span].response.total for one in below] == [6, 4]
    assert [closed[one.span].mask for one in below] == [b"\1\1\1\0", b"\1\0"]
    assert closed[root.span].response is None
    assert facts == {
        ("reward", 0): 0.0, ("reward", 1): 1.0, ("row_tokens", 0): 3, ("row_tokens", 1): 1, ("num_turns", None): 7,
        ("returned_rows", None): 2,
    }  # fmt: skip


def test_what_travels_with_the_rows_is_not_captured_again(recorder: Recorder) -> None:
    plain(recorder, returned(4))
    root, _, _ = found(recorder)
    output = next(record.output for record in recorder.records(Close) if record.span == root.span)
    assert "turns" in str(output)
    assert "rows" not in str(output)


@pytest.mark.parametrize("kind", [list, tuple, deque])
def test_the_result_itself(recorder: Recorder, kind: Callable[[Any], Any]) -> None:
    def episode() -> Any:
        return kind([{"ids": [1, 2, 3]}])

    tokens = {"response": ("row.ids",)}
    recorder.wrap(episode, role="trajectory", chains=("result",), tokens=tokens)()
    root, below, facts = found(recorder)
    assert facts == {("row_tokens", 0): 3, ("returned_rows", None): 1}
    assert len(below) == 1
    assert next(record.output for record in recorder.records(Close) if record.span == root.span) is None


@pytest.mark.parametrize("made", [None, 3, "text", {"rows": 1}, Episode(None), Episode({})])
def test_what_is_no_list_is_an_absent_path(recorder: Recorder, made: Any) -> None:
    def episode(task: int) -> Any:
        return made

    traced = recorder.wrap(episode, places={"chains": "my.yaml:2"}, **LIST)
    traced(1), traced(2)
    from autotrace.record import calls

    probe = calls.probes[episode.__qualname__]
    assert probe.absences() == {"chains: result.rows (my.yaml:2)": (2, 2)}
    assert len(recorder.records(Open)) == 2
    assert probe.counts.faults == 0


def test_paths_that_no_row_has_are_named_with_their_numbers(recorder: Recorder) -> None:
    from autotrace.record import calls

    def episode(task: int) -> Any:
        return Episode([{"reward": 1.0}, {"reward": 2.0}])

    places = {"facts.reward": "my.yaml:4", "tokens.response": "my.yaml:3"}
    recorder.wrap(episode, places=places, **LIST)(1)
    assert calls.probes[episode.__qualname__].absences() == {
        "tokens.response: row.answer (my.yaml:3)": (2, 2), "facts.reward: row.reward (my.yaml:4)": (0, 2),
    }  # fmt: skip


def test_a_call_that_fails_has_no_rows(recorder: Recorder) -> None:
    def episode(task: int) -> Any:
        raise KeyError(task)

    with pytest.raises(KeyError):
        recorder.wrap(episode, **LIST)(3)
    _, below, facts = found(recorder)
    assert (below, facts) == ([], {})


def test_a_trajectory_that_is_not_recorded_has_no_rows(recorder: Recorder) -> None:
    from autotrace.record import calls

    calls.decide = lambda attributes: False

    def episode(task: int) -> Any:
        return returned(3)

    recorder.wrap(episode, **LIST)(3)
    assert recorder.records() == []
    assert context.current.get() is None


def test_no_content(recorder: Recorder) -> None:
    recorder.use(Settings(flush_interval=0.01, content="none"))
    plain(recorder, returned(4, 2))
    _, below, facts = found(recorder)
    assert [one.inputs for one in below] == [None, None] or [one.inputs for one in below] == [{}, {}]
    assert facts["row_tokens", 0] == 3


def test_more_rows_than_are_recorded_are_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_ROWS", 2)
    plain(recorder, returned(3, 3, 3))
    _, below, facts = found(recorder)
    assert len(below) == 2
    assert facts["returned_rows", None] == 3, "so that nobody takes the rest for dropped"
    assert faults.counts[rows.BEYOND] == 1


@pytest.mark.parametrize("call", [stream, with_block])
def test_long_rows_that_are_yielded_keep_their_tokens(recorder: Recorder, call: Callable[[Recorder, Any], Any]) -> None:
    call(recorder, Episode([vars(row) for row in returned(*[3_000] * 20).rows]))
    _, below, facts = found(recorder)
    assert len(below) == facts["returned_rows", None] == 20
    assert {value for (name, _), value in facts.items() if name == "row_tokens"} == {2_999}


def test_nothing_of_the_hosts_is_held_or_looked_for_afterwards(recorder: Recorder) -> None:
    made = returned(3)
    alive = weakref.ref(made.rows[0])
    gc.disable()
    try:
        plain(recorder, made)
        recorder.records()
        del made
        assert alive() is None, "no cycle holds it"
    finally:
        gc.enable()


def test_a_row_of_half_a_million_tokens_is_counted_to_its_end(recorder: Recorder) -> None:
    plain(recorder, returned(500_000))
    _, _, facts = found(recorder)
    assert facts["row_tokens", 0] == 499_999


def test_no_code_of_the_host_counts_tokens(recorder: Recorder) -> None:
    class Number:
        def __add__(self, other: Any) -> Any:
            raise AssertionError

        __radd__ = __add__

    made = returned(2)
    made.rows[0].mask = [Number(), 1]
    plain(recorder, made)
    _, below, facts = found(recorder)
    assert len(below) == 1
    assert ("row_tokens", 0) not in facts
