"""mini-swe-agent, which solves tasks with commands in a shell: one that it submits, one that runs out of steps. Written
without a thought of tracing."""

from __future__ import annotations

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks nobody for prices
os.environ["MSWEA_SILENT_STARTUP"] = "1"

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel


def solve(url: str, steps: int) -> str:
    model = LitellmModel(
        model_name="openai/tiny",
        model_kwargs={"api_base": url, "api_key": "sk-secret"},
        cost_tracking="ignore_errors",
    )
    templates = {"system_template": "You use bash.", "instance_template": "{{task}}"}
    agent = DefaultAgent(model, LocalEnvironment(timeout=2), step_limit=steps, **templates)
    return str(agent.run("Count the files."))


if __name__ == "__main__":
    for steps in (0, 2):
        print(solve(sys.argv[1], steps))
