"""A step of GRPO through real in-process veRL, for the table: ``program.py SETTINGS.json OUT.json``.

Rollouts by veRL's own agent-loop workers, rewards by its reward loop, advantages, dump and update by its own trainer
class, metrics by its ``Tracking``; on the V1 path with a real TransferQueue in between. Played are the engine, which
answers from a script, and the workers that would update weights. ``OUT.json`` gets the truth: what the engine saw and
said, what the trainer used, the runs that the loggers opened.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "examples" / "verl_loop"), str(HERE)]
import in_process  # noqa: E402
import trainers  # noqa: E402

SETTINGS: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
OUT = Path(sys.argv[2])
PATH, N, WORKERS = SETTINGS["path"], SETTINGS["n"], SETTINGS["workers"]
ROLLOUT = itertools.count()
WAIT = 300.0
"""Seconds after which nobody asks for the next step any more."""


def script(conversation: str, turn: int) -> str:
    """Call the tool with the question's number, then answer; every other rollout of a prompt is wrong."""
    number = int(re.search(r"number (\d+)", conversation)[1])  # type: ignore[index]
    if turn == 0:
        key = {"api_key": os.environ["CANARY"]} if number % 10 == 7 else {}  # a model that repeats what it saw
        call = {"name": "double", "arguments": {"number": number, **key}}
        return f"I am rollout {next(ROLLOUT)}. <tool_call>{json.dumps(call)}</tool_call>"
    said = re.search(r"I am rollout (\d+)", conversation)
    own = int(said[1]) if said else 0
    return f"So rollout {own} says #### {2 * number + own % 2}"


def prompts(step: int) -> list[dict[str, Any]]:
    """The step's questions; group keys are random, as veRL's are."""
    first, salt = 100 * step, os.urandom(4).hex()
    return [
        {
            "question": f"What is twice the number {number}?",
            "answer": str(2 * number),
            "uid": f"{salt}-{number}",
            "index": number,
            "data_source": "even" if number % 2 == 0 else "odd",
        }
        for number in range(first, first + SETTINGS["prompts"])
    ]


async def asked_for(step: int) -> None:
    """With ``gate``: wait until the test made the file ``go-STEP`` in that folder."""
    end = time.monotonic() + WAIT
    while SETTINGS.get("gate") and not Path(SETTINGS["gate"], f"go-{step}").exists():
        assert time.monotonic() < end, "nobody asked for the next step"
        await asyncio.sleep(0.05)


async def main() -> None:
    """Every step; then write down what was true."""
    tokenizer = in_process.make_model(OUT.parent / "model")
    rollout = "actor_rollout_ref.rollout"
    config = in_process.configuration(
        OUT.parent / "model",
        [
            f"{rollout}.multi_turn.tool_config_path={HERE / 'tool.yaml'}",
            f"{rollout}.n={N}",
            f"{rollout}.mode=async",
            f"{rollout}.calculate_log_probs=True",
            f"reward.custom_reward_function.path={HERE / 'reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            "algorithm.adv_estimator=grpo",
            f"trainer.logger=[{','.join(SETTINGS['logger'])}]",
            f"trainer.project_name={SETTINGS['project']}",
            f"trainer.experiment_name={SETTINGS['experiment']}",
            f"trainer.rollout_data_dir={OUT.parent / 'dump'}",
            *SETTINGS["overrides"],
        ],
    )
    server = in_process.ScriptedServer(tokenizer, script)
    trainer = {"v1": trainers.V1, "v0": trainers.V0}[PATH](config, tokenizer)
    agents = [trainer.worker(server) for _ in range(WORKERS)]
    from verl.utils.tracking import Tracking

    tracking = Tracking(SETTINGS["project"], SETTINGS["experiment"], SETTINGS["logger"])
    rows = []
    for step in range(1, SETTINGS["steps"] + 1):
        await asked_for(step)
        rows += await trainer.step(agents, prompts(step), N, step)
        if SETTINGS.get("gate"):
            Path(SETTINGS["gate"], f"done-{step}").touch()
        tracking.log({"critic/score/mean": sum(row["reward"] for row in rows) / len(rows)}, step=step)
    runs = {}
    if "mlflow" in SETTINGS["logger"]:
        import mlflow

        runs["mlflow"] = mlflow.active_run().info.run_id
    if "wandb" in SETTINGS["logger"]:
        import wandb

        runs["wandb"] = wandb.run.id
    OUT.write_text(json.dumps({"rows": rows, "calls": server.calls, "runs": runs}))
    trainer.close()


if __name__ == "__main__":
    asyncio.run(main())
