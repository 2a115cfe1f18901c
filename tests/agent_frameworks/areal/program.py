"""Episodes of AReaL's own workflows, in groups and alone, with an engine that answers by rule."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from areal.api import InferenceEngine, ModelRequest, ModelResponse
from areal.api.cli_args import GenerationHyperparameters
from areal.infra.remote_inf_engine import GroupedRolloutWorkflow
from areal.workflow.multi_turn import MultiTurnWorkflow
from areal.workflow.rlvr import RLVRWorkflow

from tests.agent_frameworks import scripted

ROLLOUTS = 3
TOKENIZER = scripted.tokenizer()


class Scripted(InferenceEngine):
    """Right in every second answer."""

    def __init__(self) -> None:
        self._number = itertools.count()

    async def agenerate(self, req: ModelRequest) -> ModelResponse:
        await asyncio.sleep(0)
        said = f"It is {4 if next(self._number) % 2 else 99}." + scripted.MARKS[-1]
        ids = TOKENIZER.encode(said, add_special_tokens=False)
        count = len(ids)
        return ModelResponse(req.input_ids, ids, [scripted.LOGPROB] * count, [5] * count, "stop", TOKENIZER)


Scripted.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # what it has of an engine is what workflows use


def reward(prompt: str, completions: str, prompt_ids: list[int], completion_ids: list[int], **data: Any) -> float:
    """Whether the answer is right. Called in a process of a pool."""
    return float(f"It is {data['answer']}." in completions)


async def main() -> None:
    """A group of each workflow and an episode without one; prints what the trainer gets."""
    sampling = GenerationHyperparameters(max_new_tokens=64)
    data = {"messages": [{"role": "user", "content": "What is 2 plus 2?"}], "answer": "4", "query_id": "sum-2-2"}
    rlvr = RLVRWorkflow(reward, sampling, TOKENIZER)
    turns = MultiTurnWorkflow(reward, sampling, TOKENIZER, max_turns=2, turn_discount=0.5)
    engine = Scripted()
    for workflow in (rlvr, turns):
        grouped = GroupedRolloutWorkflow(workflow, ROLLOUTS, logging.getLogger("group"))
        show(await grouped.arun_episode(engine, data))
    show(await turns.arun_episode(engine, data))


def show(batch: dict[str, Any]) -> None:
    for row in range(len(batch["rewards"])):
        there = batch["attention_mask"][row].bool()
        told = {"tokens": batch["input_ids"][row][there].tolist(), "mask": batch["loss_mask"][row][there].tolist()}
        print(json.dumps({**told, "reward": float(batch["rewards"][row])}))


if __name__ == "__main__":
    asyncio.run(main())
