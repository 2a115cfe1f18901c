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
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "examples" / "verl_loop"), str(HERE.parents[1])]
import in_process  # noqa: E402

from tests.findings.corpus import corpus, first_step  # noqa: E402
from tests.findings.names import begins  # noqa: E402
from tests.findings.scenarios import N, Rollout, Scenario  # noqa: E402


class Engine:
    """A scripted engine with the limits that a real one has."""

    def __init__(self, tokenizer: Any, config: Any, scenario: Scenario, step: int) -> None:
        rollout = config.actor_rollout_ref.rollout
        self.tokenizer, self.scenario, self.first = tokenizer, scenario, step
        self.lengths = (rollout.prompt_length, rollout.response_length)
        self.limit = rollout.max_model_len or sum(self.lengths) + 4096
        self.step = step
        self.known: dict[str, Rollout] = {}
        self.said: dict[str, list[tuple[list[int], list[int]]]] = {}
        self.siblings: dict[tuple[int, int], int] = {}
        self.forks: dict[str, int] = {}
        self.generate = in_process.Remote(self._generate)

    def planted(self, request: str) -> bool:
        """Whether the rollout of a request has the fault."""
        return request in self.known and self.known[request].planted

    def _rollout(self, prompt_ids: list[int]) -> tuple[str, int]:
        """Which rollout asks, and its turn: a loop of the corpus says so, else the conversation."""
        from tests.findings.loops import CURRENT

        conversation = self.tokenizer.decode(prompt_ids)
        turn = conversation.count("<|im_start|>assistant") - 1
        name = CURRENT.get()
        if name:
            turn = len(self.said.get(name, ()))
        else:
            said = re.findall(r"ollout (\d+)", conversation.partition("<|im_start|>assistant\n")[2])
            name = said[0] if said else str(len(self.known))
        if name not in self.known:
            digits = re.findall(r"number (\d+)", conversation)
            question = int(digits[-1]) if digits else 0
            key = (self.step, question)
            sibling = self.siblings[key] = self.siblings.get(key, -1) + 1
            number = len(self.known)
            planted = self.scenario.is_planted(number, question)
            self.known[name] = Rollout(number, question, sibling, self.step - self.first, planted)
        return name, max(turn, len(self.said.get(name, ())) if self.scenario.client != "sync" else turn)

    async def _generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        name, turn = self._rollout(prompt_ids)
        rollout, calls = self.known[name], self.said.setdefault(name, [])
        reply = self.scenario.reply(rollout, turn)
        await asyncio.sleep(reply.get("seconds", 0.001))
        room = min(sampling_params.get("max_tokens") or min(self.lengths[1], sum(self.lengths) - len(prompt_ids)),
                   self.limit - len(prompt_ids))  # fmt: skip
        ids = self._ids(reply, max(1, room))[: max(1, room)]
        if calls:
            base = calls[-1][0] + calls[-1][1]
            fork = next((n for n, (a, b) in enumerate(zip(base, prompt_ids, strict=False)) if a != b), None)
            if fork is not None:
                self.forks.setdefault(name, fork)
        calls.append((list(prompt_ids), ids))
        weights = reply.get(
            "weights", self.scenario.weights(self.step) + (len(calls) > 1 and self.scenario.client != "sync")
        )
        extra = {"global_steps": weights}
        if "cached" in reply:
            kept = len(calls[-2][0]) + len(calls[-2][1]) if len(calls) > 1 else 0
            extra["num_cached_tokens"] = kept // 16 * 16 if reply["cached"] == "prompt" else reply["cached"]
        return TokenOutput(token_ids=ids, log_probs=[-0.1] * len(ids), stop_reason=reply.get("stop", "completed"),
                           extra_fields=extra)  # fmt: skip

    def _ids(self, reply: dict[str, Any], room: int) -> list[int]:
        if "ids" in reply:
            return list(reply["ids"])
        end = [self.tokenizer.eos_token_id] if reply.get("eos", True) else []
        if "fill" in reply:
            text = reply["fill"] + " ".join(map(str, range(1000)))
            return self.tokenizer.encode(text, add_special_tokens=False)[: room - 1] + end
        return self.tokenizer.encode(reply["text"], add_special_tokens=False) + end


def question(scenario: Scenario, number: int) -> Any:
    """The content of a prompt."""
    story = f"Once upon a time in {number} " * 130 if scenario.is_planted(number, number) else ""
    long = f"{story}number {number}"
    if scenario.question == "{parts}":
        return [{"type": "text", "text": f"number {number}"}]
    return scenario.question.format(
        number=number, name=scenario.name.translate({ord(d): None for d in "0123456789"}), long=long
    )


async def play(scenario: Scenario, mode: str, step: int, tokenizer: Any, model: Path) -> dict[str, Any]:
    """One scenario."""
    import tests.findings.loops as loops

    config = in_process.configuration(
        model,
        [
            f"actor_rollout_ref.rollout.multi_turn.function_tool_path={HERE / 'tools.py'}",
            f"reward.custom_reward_function.path={HERE / 'reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            f"actor_rollout_ref.rollout.n={N}",
            "algorithm.adv_estimator=grpo",
            f"trainer.use_v1={mode == 'v1'}",
            *scenario.overrides,
        ],
    )
    loops.ENGINE = engine = Engine(tokenizer, config, scenario, step)
    agents = worker(mode, config, engine, scenario.client)
    if scenario.misjudged:
        misjudge(agents, engine)
    problem = ""
    for number in range(scenario.steps):
        engine.step = step + number
        n = 1 if scenario.validate else N
        prompts = [
            {"question": question(scenario, place), "answer": str(2 * place), "index": place,
             "uid": f"{step + number}-{place}", "agent_name": scenario.agent}
            for place in range(scenario.groups)
        ]  # fmt: skip
        try:
            if mode == "v1":
                await in_process.rollout_v1(agents, prompts, step + number, scenario.validate)
            else:
                await in_process.rollout(agents, prompts, n, step + number, scenario.validate)
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


def misjudge(agents: Any, engine: Engine) -> None:
    """Judge the rollouts that have the fault by another prompt's answer, as where rows were reordered."""
    (handle,) = next(value for value in vars(agents).values() if isinstance(value, list) and value
                     and isinstance(value[0], in_process.RewardHandle))  # fmt: skip
    original = handle.compute_score.function

    def compute_score(data: Any) -> Any:
        number = re.search(r"ollout (\d+)", engine.tokenizer.decode(data.batch["responses"][0]))
        if number is not None and engine.planted(number[1]):
            data.non_tensor_batch["reward_model"][0] = {"style": "rule", "ground_truth": "4711"}
        return original(data)

    handle.compute_score = in_process.Remote(compute_score)


async def main() -> None:
    """Play the corpus of a mode."""
    mode, out, *names = sys.argv[1:]
    if mode == "v1":
        in_process.Store().install()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder)
        tokenizer = in_process.make_model(model)
        logging.disable(logging.CRITICAL)
        played = []
        for place, scenario in enumerate(corpus(mode)):
            if not names or scenario.name in names:
                played.append(await play(scenario, mode, first_step(place), tokenizer, model))
                Path(out).write_text(json.dumps(played))


if __name__ == "__main__":
    asyncio.run(main())
