"""Exact sampling: so many prompts of a batch, whole groups, the same ones again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotrace.config.plan import Settings
from autotrace.record import sampling
from autotrace.spool.records import Open

from .conftest import Recorder

pytestmark = pytest.mark.row("sampling")

BATCH = {
    "group": ("batch.uid",),
    "sample": ("batch.index",),
    "limit": ("self.limit",),
    "n": ("self.n",),
}


def test_the_lowest_hashes_win_and_halves_of_groups_never() -> None:
    groups = ["a"] * 2 + ["b"] * 4 + ["c"] * 4 + ["d"] * 2
    samples = [str(ord(group)) for group in groups]
    chosen = sampling.lowest(groups, samples, 5, seed=0, n=4)
    assert chosen == {"b", "c"}
    assert sampling.lowest(groups, samples, 1, seed=0, n=4) < chosen


def test_the_same_prompts_are_chosen_in_another_run_whatever_their_uids_and_order() -> None:
    def picked(order: list[int], run: str) -> set[str]:
        groups = [f"{run}-{index}" for index in order]
        chosen = sampling.lowest(groups, [str(index) for index in order], 5, seed=7)
        return {name.split("-")[1] for name in chosen}

    first = picked(list(range(64)), "run1")
    assert len(first) == 5 and first == picked(list(reversed(range(64))), "run2")


async def test_a_batch_limits_the_trajectories_it_starts_and_no_others(recorder: Recorder) -> None:
    recorder.use(Settings())
    started: list[asyncio.Task[None]] = []

    async def rollout(uid: str, session_id: int) -> None:
        await asyncio.sleep(0)

    root = recorder.wrap(
        rollout,
        role="trajectory",
        key="rollout",
        attributes={"uid": ("uid",), "rollout_n": ("session_id",)},
    )

    async def generate(self: Any, batch: Any) -> None:
        for uid in batch.uid:  # as veRL's V1: background tasks, the call returns before they end
            started.extend(asyncio.create_task(root(str(uid), session_id=number)) for number in range(4))

    traced = recorder.wrap(generate, key="generate", role="trainer", include=(), batch=BATCH)

    async def step(worker: int) -> None:
        uids = np.array([f"{worker}-{number}" for number in range(20)], dtype=object)
        batch = SimpleNamespace(uid=uids, index=np.arange(20) + 20 * worker)
        await traced(SimpleNamespace(limit=5, n=4), batch)

    await asyncio.gather(*(step(worker) for worker in range(4)))
    await asyncio.gather(*started)
    assert not sampling.refused.get()
    names = recorder.names()
    roots = [record.attributes["uid"] for record in recorder.records(Open) if names[record.target].endswith("rollout")]
    assert len(roots) == 4 * 5 * 4 and len(set(roots)) == 20
    assert all(roots.count(uid) == 4 for uid in roots)
