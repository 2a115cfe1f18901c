"""What the trainer's calls around a rollout say of it, and the number it has in its group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from autotrace.record import calls, flusher
from autotrace.spool.records import Fact, Open

from .conftest import Recorder


def program(recorder: Recorder, **of_rollout: Any) -> Any:
    """``generate(step, prompts)``, in it two rollouts of each prompt, side by side."""

    async def rollout(prompt: str) -> str:
        return prompt

    async def group(prompt: str) -> list[str]:
        flusher.flush()  # what is written is no longer held
        return await asyncio.gather(*(rollout(prompt) for _ in range(2)))

    async def generate(step: int, prompts: list[str]) -> None:
        await asyncio.gather(*(group(prompt) for prompt in prompts))

    rollout = recorder.wrap(rollout, key="rollout", role="trajectory", **of_rollout)
    group = recorder.wrap(group, key="group", role="trainer", group=True, attributes={"sample_index": ("prompt",)})
    return recorder.wrap(generate, key="generate", role="trainer", attributes={"step": ("step",)})


def rollouts(recorder: Recorder) -> list[Open]:
    return [record for record in recorder.records(Open) if (record.attributes or {}).get("rollout_n") is not None]


async def test_rollouts_are_numbered_in_their_group(recorder: Recorder) -> None:
    await program(recorder)(7, ["a", "b"])
    found = rollouts(recorder)
    assert [(one.attributes["step"], one.attributes["sample_index"]) for one in found] == [(7, "a")] * 2 + [
        (7, "b")
    ] * 2
    assert [one.attributes["rollout_n"] for one in found] == [0, 1, 0, 1]
    first, _, other, _ = [one.attributes["uid"] for one in found]
    assert first != other
    assert [one.attributes["uid"] for one in found] == [first, first, other, other]
    assert {one.parent for one in found} == {0}


async def test_what_a_rollout_says_itself_counts(recorder: Recorder) -> None:
    await program(recorder, attributes={"uid": ("prompt",)})(7, ["a"])
    assert [(one.attributes["uid"], one.attributes["rollout_n"]) for one in rollouts(recorder)] == [("a", 0), ("a", 1)]


async def test_steps_that_are_left_out_are_left_out(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "decide", lambda attributes: attributes["step"] % 2 == 0)
    for step in range(3):
        await program(recorder)(step, ["a"])
    assert [one.attributes["step"] for one in rollouts(recorder)] == [0, 0, 2, 2]


async def test_a_trajectory_inside_of_a_rollout_is_none_of_its_group(recorder: Recorder) -> None:
    def helper() -> None:
        pass

    async def rollout() -> None:
        helper()

    async def group() -> None:
        await rollout()

    helper = recorder.wrap(helper, key="helper", role="trajectory")
    rollout = recorder.wrap(rollout, key="rollout", role="trajectory")
    await recorder.wrap(group, key="group", role="trainer", group=True, attributes={})()
    _, outer, inner = recorder.records(Open)
    assert outer.attributes["rollout_n"] == 0
    assert inner.attributes is None


def test_facts_of_rows_by_group_and_number(recorder: Recorder) -> None:
    def advantages(uids: list[str]) -> list[float]:
        return [0.5, -0.5]

    key = {"uid": ("row",), "rollout_n": ("member(i, 2)",)}
    facts = {"advantage": ("result[i]",)}
    recorder.wrap(advantages, role="reward", rows=("uids",), of_key=key, facts=facts)(["a", "a"])
    assert [(fact.key, fact.name, fact.value) for fact in recorder.records(Fact)] == [
        ({"uid": "a", "rollout_n": 0}, "advantage", 0.5),
        ({"uid": "a", "rollout_n": 1}, "advantage", -0.5),
    ]


def test_facts_of_a_call_by_group_and_number(recorder: Recorder) -> None:
    def score(uid: str | None) -> float:
        return 2.0

    key = {"uid": ("uid.text", "uid"), "rollout_n": ("number",)}
    traced = recorder.wrap(score, role="reward", of_key=key, facts={"reward": ("result",)})
    traced("a")
    assert recorder.records(Fact) == [], "half a key names nothing"

    def numbered(uid: str, number: int) -> float:
        return 2.0

    recorder.wrap(numbered, role="reward", of_key=key, facts={"reward": ("result",)})("a", 1)
    (fact,) = recorder.records(Fact)
    assert (fact.trace, fact.key, fact.value) == (b"", {"uid": "a", "rollout_n": 1}, 2.0)
