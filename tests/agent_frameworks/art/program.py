"""A step on ART: rollouts of two scenarios in groups, scored by RULER, and the rows that its local backend makes.
RULER's judge answers by rule. What would train needs GPUs and is left out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks nobody for prices

import art
import litellm
from art.preprocessing.tokenize import tokenize_trajectory_groups
from art.rewards.ruler import ruler_score_group

from tests.agent_frameworks import scripted

ATTEMPTS = 3
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: Any = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": SCHEMA}}]


@dataclass
class Scenario:
    id: str
    step: int
    question: str
    answer: str


def add(a: int, b: int) -> int:
    return a + b


async def rollout(model: art.Model, scenario: Scenario, attempt: int) -> art.Trajectory:
    """The first attempt has no tool."""
    trajectory = art.Trajectory(messages_and_choices=[{"role": "user", "content": scenario.question}])
    trajectory.metadata["rollout_id"] = f"{scenario.step}/{scenario.id}/{attempt}"
    trajectory.tools = TOOLS if attempt else None
    asked: Any = {"model": model.name, "logprobs": True, **({"tools": TOOLS} if attempt else {})}
    while True:
        reply = await model.openai_client().chat.completions.create(messages=trajectory.messages(), **asked)
        trajectory.messages_and_choices.append(reply.choices[0])
        message: Any = reply.choices[0].message
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            content = str(add(**json.loads(call.function.arguments)))
            trajectory.messages_and_choices.append({"role": "tool", "tool_call_id": call.id, "content": content})
    trajectory.reward = float(message.content == scenario.answer)
    trajectory.metrics["used_tool"] = bool(attempt)
    return trajectory.finish()


class Judge(litellm.CustomLLM):
    """Prefers what is short."""

    async def acompletion(self, *_: Any, **asked: Any) -> litellm.ModelResponse:
        judged = re.findall(r'<trajectory id="(\d+)">\n(.*)\n', asked["messages"][-1]["content"])
        scores = [
            {"trajectory_id": number, "explanation": "", "score": 1 / len(json.loads(messages))}
            for number, messages in judged
        ]
        return litellm.mock_completion("judge", [], mock_response=json.dumps({"scores": scores}))


async def main(url: str) -> None:
    """Prints the trainer's row of each rollout."""
    litellm.custom_provider_map = [{"provider": "rule", "custom_handler": Judge()}]
    served: Any = {"inference_base_url": url, "inference_api_key": "sk-secret"}
    model = art.Model(name="tiny", project="sums", **served)
    scenarios = [Scenario(f"sum-{number}", 4, f"{number}. What is 2 plus 2?", "It is 4.") for number in range(2)]
    groups = await art.gather_trajectory_groups(
        (art.TrajectoryGroup(rollout(model, one, attempt) for attempt in range(ATTEMPTS)) for one in scenarios),
        after_each=lambda group: ruler_score_group(group, "rule/judge"),
    )
    rows = tokenize_trajectory_groups(
        scripted.tokenizer(), groups, allow_training_without_logprobs=False, scale_rewards=True
    )
    for row in sorted(rows, key=lambda row: str(row.trajectory.metadata)):
        own = row.trajectory.metrics["independent_reward"]
        print(json.dumps({**row.trajectory.metadata, "reward": row.trajectory.reward, "advantage": row.advantage,
                          "own_reward": own}))  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
