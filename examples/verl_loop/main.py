"""Two training steps of GRPO-like groups through veRL's own agent loop, with an engine that answers from a script.

    autotrace-run python examples/verl_loop/main.py

Nothing here mentions autotrace. There is something to see in every step: rollouts that differ in the answer, in the
number of turns and in the tools they call, and one whose tool fails.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import tempfile
from pathlib import Path

import in_process

HERE = Path(__file__).parent
N = 4
PROMPTS = [
    {"question": "How many apples and pears are in stock?", "answer": "42", "index": 3},
    {"question": "How many plums are in stock?", "answer": "7", "index": 8},
    {"question": "How many cherries and plums are in stock?", "answer": "7", "index": 11},
]


def call(name: str, **arguments: object) -> str:
    """A tool call as the model writes it (Hermes format)."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


STORIES = {
    "apples and pears": [
        [
            "One by one. " + call("stock", item="apples"),
            call("stock", item="pears"),
            call("add", a=12, b=30),
            "#### 42",
        ],
        ["Both at once. " + call("stock", item="apples") + call("stock", item="pears"), "12 and 30 make #### 42"],
        ["Apples first. " + call("stock", item="apples"), "I guess #### 40"],
        ["There are many of them."],
    ],
    "many plums": [
        ["Let me look. " + call("stock", item="plums"), "#### 7"],
        ["#### 9"],
        ["Plums, then. " + call("stock", item="plums"), "Seven. #### 7"],
        ["To be sure: " + call("stock", item="plums"), call("add", a=7, b=7), "#### 14"],
    ],
    "cherries and plums": [
        ["Cherries. " + call("stock", item="cherries"), call("stock", item="plums"), "No cherries, so #### 7"],
        ["Are there any? " + call("stock", item="cherries"), "I do not know."],
        ["Plums are enough. " + call("stock", item="plums"), "#### 7"],
        ["#### 0"],
    ],
}
"""What the model says, turn by turn, in each of the four rollouts of a question."""


class Script:
    """Gives every conversation one of the stories of its question, and follows it."""

    def __init__(self) -> None:
        self.next = {topic: itertools.cycle(stories) for topic, stories in STORIES.items()}

    def __call__(self, conversation: str, turn: int) -> str:
        topic = next(topic for topic in STORIES if topic in conversation)
        if turn == 0:
            return next(self.next[topic])[0]
        opening = conversation.split("<|im_start|>assistant\n")[1]
        story = next(story for story in STORIES[topic] if opening.startswith(story[0]))
        return story[min(turn, len(story) - 1)]


async def train(folder: Path) -> None:
    """Roll out and score two steps and one validation batch; metrics go where ``trainer.logger`` says."""
    from verl.utils.tracking import Tracking

    tokenizer = in_process.make_model(folder / "model")
    loggers = ["console", "mlflow"] if os.environ.get("MLFLOW_TRACKING_URI") else ["console"]
    config = in_process.configuration(
        folder / "model",
        [
            f"actor_rollout_ref.rollout.multi_turn.function_tool_path={HERE / 'tools.py'}",
            f"reward.custom_reward_function.path={HERE / 'reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            f"actor_rollout_ref.rollout.n={N}",
            f"trainer.logger=[{','.join(loggers)}]",
            "trainer.project_name=autotrace-demo",
            "trainer.experiment_name=verl-loop",
        ],
    )
    server = in_process.ScriptedServer(tokenizer, Script(), seconds=0.02)
    agents = in_process.worker(config, server)
    tracking = Tracking(config.trainer.project_name, config.trainer.experiment_name, loggers)
    for step in (1, 2):
        server.weight_version = step - 1
        prompts = [{**prompt, "uid": f"step{step}-prompt{prompt['index']}"} for prompt in PROMPTS]
        output = await in_process.rollout(agents, prompts, N, step)
        scores = output.batch["rm_scores"].sum(dim=1)
        tracking.log({"critic/score/mean": scores.mean().item(), "critic/score/max": scores.max().item()}, step=step)
    prompts = [{**prompt, "uid": f"validation-prompt{prompt['index']}"} for prompt in PROMPTS]
    await in_process.rollout(agents, prompts, 1, 2, validate=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(train(Path(folder)))
