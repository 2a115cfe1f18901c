"""Plays the corpus in one process: ``program.py MODE OUT.json [NAME ...]``, in veRL's own workers and loops.

``OUT.json`` gets what was planted: per scenario its steps, and of each rollout the request that names it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "examples/verl_loop"), str(HERE.parents[1] / "tests/verl"), str(HERE.parents[1])]
import in_process  # noqa: E402
import played_trainer  # noqa: E402

from tests.findings import templates  # noqa: E402
from tests.findings.corpus import corpus, first_step  # noqa: E402
from tests.findings.engine import Engine  # noqa: E402
from tests.findings.names import begins  # noqa: E402
from tests.findings.scenarios import Scenario  # noqa: E402
from tests.findings.strange import HANGS  # noqa: E402


def question(scenario: Scenario, number: int) -> Any:
    """The content of a prompt."""
    story = f"Once upon a time in {number} " * 130 if scenario.is_planted(number, number) else ""
    long = f"{story}number {number}"
    if scenario.question == "{parts}":
        return [{"type": "text", "text": f"number {number}"}]
    return scenario.question.format(
        number=number, name=scenario.name.translate({ord(d): None for d in "0123456789"}), long=long
    )


async def play(scenario: Scenario, mode: str, step: int, tokenizer: Any, model: Path, store: Any) -> dict[str, Any]:
    """One scenario."""
    from tests.findings import loops, trainers

    config = in_process.configuration(
        model,
        [
            f"actor_rollout_ref.rollout.multi_turn.function_tool_path={HERE / 'tools.py'}",
            f"reward.custom_reward_function.path={HERE / 'reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            f"actor_rollout_ref.rollout.n={scenario.n}",
            "algorithm.adv_estimator=grpo",
            f"trainer.use_v1={mode == 'v1'}",
            *scenario.overrides,
        ],
    )
    loops.ENGINE = engine = Engine(tokenizer, config, scenario, step)
    agents = worker(mode, config, engine, scenario.client)
    if scenario.misjudged:
        misjudge(agents, engine, scenario.misjudged)
    problem = ""
    for number in range(scenario.steps):
        engine.step = step + number
        engine.began = engine.last = time.monotonic()
        n = 1 if scenario.validate else scenario.n
        is_late = bool(scenario.code) and number >= scenario.since
        prompts = [
            {"question": question(scenario, place), "answer": str(2 * place), "index": place,
             "uid": f"{step + number}-{place}",
             "agent_name": scenario.agent, "data_source": scenario.source if is_late and scenario.source else "toy"}
            for place in range(scenario.groups)
        ]  # fmt: skip
        try:
            if mode == "v1":
                await in_process.rollout_v1(agents, prompts, step + number, scenario.validate)
            else:
                batch = await in_process.rollout(agents, prompts, n, step + number, scenario.validate)
            if scenario.training is not None and mode == "v1":
                trainers.v1(config, engine, store, step + number)
            elif scenario.training is not None:
                uids = [prompt["uid"] for prompt in prompts for _ in range(n)]
                trainers.classic(config, engine, batch, uids, step + number)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    rollouts = {
        name: {
            "planted": rollout.planted,
            "fork": engine.forks.get(name),
            "lengths": [len(ids) for _, ids in engine.said[name]],
            "begins": begins(*engine.said[name][0]),
        }
        for name, rollout in engine.known.items()
    }
    return {"name": scenario.name, "step": step, "steps": scenario.steps, "rollouts": rollouts, "problem": problem}


def worker(mode: str, config: Any, engine: Engine, client: str) -> Any:
    """veRL's worker, with its client for synchronous training or the one that resumes."""
    agents = (in_process.worker_v1 if mode == "v1" else in_process.worker)(config, engine)
    if client == "resumes":
        from verl.workers.rollout import llm_server

        resuming = llm_server.FullyAsyncLLMServerClient(
            config=config, load_balancer_handle=in_process.LoadBalancer(engine)
        )
        for name, value in vars(agents).items():
            if isinstance(value, llm_server.LLMServerClient):
                setattr(agents, name, resuming)
    return agents


def misjudge(agents: Any, engine: Engine, how: str) -> None:
    """Judge the rollouts that have the fault by another prompt's answer, as where rows were reordered; or give them no
    reward at all."""
    (handle,) = next(value for value in vars(agents).values() if isinstance(value, list) and value
                     and isinstance(value[0], in_process.RewardHandle))  # fmt: skip
    original = handle.compute_score.function

    def compute_score(data: Any) -> Any:
        number = re.search(r"ollout (\d+)", engine.tokenizer.decode(data.batch["responses"][0]))
        if number is not None and engine.planted(number[1]):
            if how == "not at all":
                return {"reward_score": None, "reward_extra_info": {}}
            data.non_tensor_batch["reward_model"][0] = {"style": "rule", "ground_truth": "4711"}
        return original(data)

    handle.compute_score = in_process.Remote(compute_score)


async def main() -> None:
    """Play the corpus of a mode."""
    mode, out, *names = sys.argv[1:]
    store = played_trainer.Store()
    if mode == "v1":
        store.install()
    with tempfile.TemporaryDirectory() as made:
        logging.disable(logging.CRITICAL)
        models: dict[str, tuple[Any, Path]] = {}
        played = []
        for place, scenario in enumerate([*corpus(mode), HANGS]):
            if scenario.name in names or (not names and scenario is not HANGS):
                tokenizer, model = models.get(scenario.template) or model_of(Path(made), scenario.template)
                models[scenario.template] = tokenizer, model
                played.append(await play(scenario, mode, first_step(place), tokenizer, model, store))
                Path(out).write_text(json.dumps(played))


def model_of(made: Path, template: str) -> tuple[Any, Path]:
    """A tokenizer and its directory."""
    folder = made / (template or "chatml")
    folder.mkdir()
    tokenizer = in_process.make_model(folder)
    return (templates.write(folder, tokenizer, templates.TEMPLATES[template]) if template else tokenizer), folder


if __name__ == "__main__":
    asyncio.run(main())
