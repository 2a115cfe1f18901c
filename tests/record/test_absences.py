"""Paths of the user's lists that lead nowhere are counted where they are read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from autotrace.config.plan import Settings
from autotrace.patch import engine
from autotrace.record import calls, flusher, sampling
from autotrace.record.probe import Probe
from autotrace.spool.records import Counters

from .conftest import Recorder


def score(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def places(*keys: str) -> dict[str, str]:
    return {key: f"mine.yaml:{number}" for number, key in enumerate(keys, 1)}


def counted(key: str) -> dict[str, tuple[int, int]]:
    """What the probe says, by path."""
    probe: Probe = calls.probes[key]
    return {name.rpartition(" (")[0]: counts for name, counts in probe.absences().items()}


def test_a_path_that_no_result_has(recorder: Recorder) -> None:
    judge = recorder.wrap(score, facts={"reward": ("result.reward",)}, places=places("facts.reward"))
    for _ in range(30):
        judge(0.5)
    assert calls.probes["score"].absences() == {"facts.reward: result.reward (mine.yaml:1)": (30, 30)}


def test_a_path_that_some_results_have(recorder: Recorder) -> None:
    judge = recorder.wrap(score, facts={"reward": ("result.reward",)}, places=places("facts.reward"))
    for answer in (0.5, SimpleNamespace(reward=1.0), SimpleNamespace(reward=None)):
        judge(answer)
    assert counted("score") == {"facts.reward: result.reward": (1, 3)}


def test_a_call_that_failed_had_no_result_to_read(recorder: Recorder) -> None:
    table = {"facts": {"reward": ("result.reward",), "asked": ("answer.id",)}}
    judge = recorder.wrap(score, **table, places=places("facts.reward", "facts.asked"))
    for answer in (ValueError(), ValueError(), SimpleNamespace(reward=1.0, id=7)):
        with suppress(ValueError):
            judge(answer)
    assert counted("score") == {"facts.reward: result.reward": (0, 1), "facts.asked: answer.id": (0, 1)}


def test_every_key_that_takes_a_path(recorder: Recorder) -> None:
    recorder.use(Settings(logprobs=True))
    judge = recorder.wrap(
        score,
        role="llm",
        tokens={"prompt": ("ids",), "response": ("result.ids",), "logprobs": ("result.lp",), "mask": ("result.m",)},
        attributes={"step": ("answer.step",), "stop": ("result.stop",)},
        include=("answer.task", "result.text"),
        facts={"reward": ("result.reward", "result.score")},
        id=("answer.id",),
        of=("answer.parent",),
        places=places(
            "tokens.prompt", "tokens.response", "tokens.logprobs", "tokens.mask", "attributes.step", "attributes.stop",
            "capture.include", "facts.reward", "id", "of",
        ),
    )  # fmt: skip
    judge("a")
    asyncio.run(asyncio.to_thread(judge, "b"))
    assert counted("score") == dict.fromkeys(
        [
            "id: answer.id", "of: answer.parent", "tokens.prompt: ids", "tokens.response: result.ids",
            "tokens.logprobs: result.lp", "tokens.mask: result.m", "attributes.step: answer.step",
            "attributes.stop: result.stop", "facts.reward: result.reward or result.score",
            "capture.include: answer.task", "capture.include: result.text",
        ],
        (2, 2),
    )  # fmt: skip


def test_of_alternatives_one_is_enough(recorder: Recorder) -> None:
    judge = recorder.wrap(score, facts={"reward": ("result.reward", "result.score")}, places=places("facts.reward"))
    judge({"score": 0.5})
    assert counted("score") == {"facts.reward: result.reward or result.score": (0, 1)}


def test_lists_that_come_with_autotrace_may_name_what_is_not_there(recorder: Recorder) -> None:
    judge = recorder.wrap(score, facts={"reward": ("result.reward",)}, attributes={"step": ("answer.step",)})
    judge(0.5)
    assert counted("score") == {}


def test_a_list_that_says_when_there_is_a_value(recorder: Recorder) -> None:
    judge = recorder.wrap(
        score, facts={"won": ("when(result.done, 1)",), "lost": ("choice(result.done, 1, result.x)",)},
        places=places("facts.won", "facts.lost"),
    )  # fmt: skip
    judge(SimpleNamespace(done=False))
    assert counted("score") == {"facts.lost: choice(result.done, 1, result.x)": (1, 1)}


def test_calls_that_are_not_sampled_are_not_read(recorder: Recorder) -> None:
    root = recorder.wrap(
        lambda task: judge(task), key="root", role="trajectory", attributes={"sample_index": ("task.id",)},
        places=places("attributes.sample_index"),
    )  # fmt: skip
    judge = recorder.wrap(
        score, attributes={"step": ("answer.step",)}, of=("answer.of",), places=places("attributes.step", "of")
    )
    calls.decide = sampling.decision({"samples": ["1"]})
    for number in range(3):
        root(SimpleNamespace(id=number))
    assert counted("root") == {"attributes.sample_index: task.id": (0, 3)}
    assert counted("score") == {"attributes.step: answer.step": (1, 1), "of: answer.of": (1, 1)}


def test_rows_of_a_batch(recorder: Recorder) -> None:
    def generate(inputs: list[Any], step: int) -> dict[str, Any]:
        return {"rewards": [0.0 for _ in inputs]}

    traced = recorder.wrap(
        generate, key="generate", role="trajectory", rows=("inputs",),
        attributes={"step": ("step.number",), "sample_index": ("row.index",)},
        tokens={"prompt": ("row.ids",)},
        facts={"reward": ("result.reward[i]",), "score": ("result.rewards[i]",)},
        places=places(
            "rows", "attributes.step", "attributes.sample_index", "tokens.prompt", "facts.reward", "facts.score"
        ),
    )  # fmt: skip
    for step in range(2):
        traced([{"ids": [1]}, {}, {}], step)
    assert counted("generate") == {
        "rows: inputs": (0, 2),
        "attributes.step: step.number": (2, 2),
        "attributes.sample_index: row.index": (6, 6),
        "tokens.prompt: row.ids": (4, 6),
        "facts.reward: result.reward[i]": (6, 6),
        "facts.score: result.rewards[i]": (0, 6),
    }


def test_a_batch_whose_rows_are_not_there(recorder: Recorder) -> None:
    traced = recorder.wrap(score, key="batch", role="trajectory", rows=("answer.inputs",), places=places("rows"))
    traced(1)
    traced(2)
    assert counted("batch") == {"rows: answer.inputs": (2, 2)}


def test_what_a_with_binds(recorder: Recorder) -> None:
    class State:
        reward = 1.0

    @contextmanager
    def episode() -> Iterator[Any]:
        yield State()

    traced = recorder.wrap(
        episode, key="episode", facts={"reward": ("result.reward",), "score": ("result.score",)},
        places=places("facts.reward", "facts.score"),
    )  # fmt: skip
    with pytest.raises(ValueError), traced() as _state:
        raise ValueError
    with traced() as _state:
        pass
    assert counted("episode") == {"facts.reward: result.reward": (0, 2), "facts.score: result.score": (2, 2)}


def test_the_counts_travel_and_a_forked_child_counts_anew(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "paths_of", engine._paths)
    judge = recorder.wrap(score, facts={"reward": ("result.reward",)}, places=places("facts.reward"))
    judge(0.5)
    judge(0.5)
    child = os.fork()
    if child == 0:
        try:
            engine._after_fork_in_child()
            judge(0.5)
            flusher.shutdown()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    flusher.shutdown()
    found = {frozenset(record.paths.items()) for record in recorder.read(Counters) if record.paths}
    path = "facts.reward: result.reward (mine.yaml:1)"
    assert {frozenset({(path, (2, 2))}), frozenset({(path, (1, 1))})} <= found
