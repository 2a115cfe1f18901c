"""Three training steps of GRPO on veRL's default (V1) path, 16 prompts x 8 rollouts, in one process and without a GPU.

Real: veRL's worker, its tool agent, its parser and reward loop, an agent of one's own (``agent.py``), the tools, and
the trainer's methods that compute advantages and rows. Scripted: what the model says (``model.py``) and its
probabilities. What goes wrong in it happens because of these:

- ``agent.py`` renders and tokenises the conversation anew each turn, and some rollouts write JSON without spaces;
- ``sales.py`` has no rate of the Swiss franc, so ``convert`` raises, and the answers that follow get the reward 0;
- ``max_model_len`` is too small for answers that add up many rows;
- one rollout of step 2 asks the database for a join that takes seconds;
- from step 3 on, one of the two replicas of the engine has other weights than the trainer.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "verl_loop"), str(HERE.parents[1] / "tests/verl")]
import in_process  # noqa: E402
import model  # noqa: E402
import numpy as np  # noqa: E402
import played_trainer  # noqa: E402
import sales  # noqa: E402

N, STEPS, CONTEXT = 8, 3, 1000
STRAGGLER = (2, 206, 3)
"""Step, prompt, rollout of its group."""
STALE = 0.8
"""By how much each logit of the replica with other weights differs, from step 3 on."""
ROUNDING = 0.01
"""By how much the trainer's logits differ from the engine's anyway, as in bf16."""


def make_model(folder: Path) -> Any:
    """A tokenizer with words of the script, and a directory that veRL takes for a model's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = in_process.make_model(folder)
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = [*model.corpus(), *(task.question for step in range(1, STEPS + 1) for task in model.tasks(step))]
    words.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet))
    made = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<|im_end|>", pad_token="<|pad|>", additional_special_tokens=["<|im_start|>"],
        chat_template=plain.chat_template,
    )  # fmt: skip
    made.save_pretrained(folder)
    config = (folder / "config.json").read_text()
    for name, before, now in (("vocab_size", len(plain), len(made)),
                              ("eos_token_id", plain.eos_token_id, made.eos_token_id),
                              ("pad_token_id", plain.pad_token_id, made.pad_token_id)):  # fmt: skip
        config = config.replace(f'"{name}": {before}', f'"{name}": {now}')
    (folder / "config.json").write_text(config)
    return made


class Engine:
    """Two replicas of an engine behind one door. Says what ``model.say`` wants, within the limits of a real one."""

    def __init__(self, tokenizer: Any, response_length: int) -> None:
        self.tokenizer, self.response_length, self.step = tokenizer, response_length, 0
        self.tasks: dict[str, model.Task] = {}
        self.arrived: dict[str, int] = {}
        self.rollouts: dict[tuple[str, str], int] = {}
        """Question and opening words -> which rollout of its group it is."""
        self.probabilities = model.Probabilities(len(tokenizer))
        for text in model.corpus():
            self.probabilities.learn(tokenizer.encode(text, add_special_tokens=False))
        self.generate = in_process.Remote(self._generate)

    def begin(self, step: int) -> list[dict[str, Any]]:
        """A new step: its prompts."""
        self.step, self.arrived, self.rollouts = step, {}, {}
        self.tasks = {task.question: task for task in model.tasks(step)}
        return [
            {"question": task.question, "answer": self.truth(task), "index": task.index, "uid": f"{step}-{task.index}",
             "agent_name": task.agent, "data_source": "jam-sales"}
            for task in self.tasks.values()
        ]  # fmt: skip

    def truth(self, task: model.Task) -> str:
        """The right answer, from the database."""
        sql = task.sql.replace("SELECT *", "SELECT sum(jars)")
        amount = int(sales.rows_of(sql))
        rate = {**sales.RATES, "CHF": 0.95}[task.currency] if task.kind == "money" else 1
        return str(round(amount * rate))

    async def _generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        said = self.tokenizer.decode(prompt_ids).split("<|im_start|>")
        question = next(part for part in said if part.startswith("user\n"))[5:].partition("<|im_end|>")[0]
        answers = [part for part in said if part.startswith("assistant\n")][:-1]
        turn, task = len(answers), self.tasks[question]
        key = (question, answers[0][10:].partition("<tool_call>")[0].strip()) if answers else (question, "")
        rollout = self.rollouts.get(key, 0)
        if not answers:
            rollout = self.arrived[question] = self.arrived.get(question, -1) + 1
        heard = re.sub(r"<\|im_end\|>\s*$", "", said[-2].partition("\n")[2])
        style, rng = random.Random(f"{question} {rollout}"), random.Random(f"{question} {rollout} {turn}")
        slow = (self.step, task.index, rollout) == STRAGGLER
        words = model.say(task, rng, turn, heard, slow, style)
        self.rollouts[question, words.partition("<tool_call>")[0].strip()] = rollout
        room = max(1, min(sampling_params.get("max_tokens") or self.response_length, CONTEXT - len(prompt_ids)))
        ids = [*self.tokenizer.encode(words, add_special_tokens=False), self.tokenizer.eos_token_id][:room]
        await asyncio.sleep(0.02 + 0.002 * len(ids) * rng.uniform(0.9, 1.2))
        noise = STALE if self.step >= 3 and rollout % 2 else 0.0
        log_probs, _ = self.probed([*prompt_ids, *ids], len(prompt_ids), len(ids), noise, seed=7)
        stop = "length" if len(ids) == room else "completed"
        extra = {"global_steps": self.step - 1}
        return TokenOutput(token_ids=ids, log_probs=log_probs, stop_reason=stop, extra_fields=extra)

    def probed(
        self, ids: list[int], start: int, count: int, noise: float, seed: int
    ) -> tuple[list[float], list[float]]:
        """Log-probability and entropy of the ``count`` tokens from ``start`` on, to a thousandth: they are stored in
        a package."""
        log_probs, entropies = [], []
        for at in range(start, start + count):
            every = self.probabilities.of(ids[:at], noise, seed, start)
            log_probs.append(round(float(every[ids[at]]), 3))
            entropies.append(round(float(-(np.exp(every) * every).sum()), 3))
        return log_probs, entropies


class Workers:
    """The worker group whose policy is trained: its forward pass, and an update of nothing."""

    def __init__(self, engine: Engine, store: Any) -> None:
        self.engine, self.store = engine, store

    def compute_log_prob(self, batch: Any) -> Any:
        """Log-probabilities and entropy of every token that is learned from."""
        import torch

        for key in batch.keys:
            row = self.store.fields[key]
            prompt, response, mask = (row[name].tolist() for name in ("prompts", "responses", "response_mask"))
            old, entropy = torch.zeros(len(response)), torch.zeros(len(response))
            for run in re.finditer("1+", "".join(map(str, mask))):
                start, end = run.span()
                values = self.engine.probed(prompt + response, len(prompt) + start, end - start, ROUNDING, seed=1)
                old[start:end], entropy[start:end] = map(torch.tensor, values)
            row["log_probs"] = played_trainer.shifted(len(prompt), old)
            row["entropy"] = played_trainer.shifted(len(prompt), entropy)
        return batch

    def update_actor(self, batch: Any) -> Any:
        """Update nothing."""
        from verl.utils.tensordict_utils import get_tensordict

        return get_tensordict({}, non_tensor_dict={"metrics": {"actor/mfu": 0.0, "mfu": 0.0}})


async def train(folder: Path) -> None:
    """The three steps."""
    store = played_trainer.Store()
    store.install()
    import agent  # noqa: F401  registers itself
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.utils.tracking import Tracking

    sales.fill(folder)
    tokenizer = make_model(folder)
    rollout = "actor_rollout_ref.rollout"
    config = in_process.configuration(
        folder,
        [
            f"{rollout}.multi_turn.function_tool_path={HERE / 'tools.py'}",
            f"{rollout}.multi_turn.max_tool_response_length=4000",
            f"{rollout}.max_model_len={CONTEXT}",
            f"{rollout}.n={N}",
            f"{rollout}.calculate_log_probs=True",
            f"reward.custom_reward_function.path={HERE / 'reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            "algorithm.adv_estimator=grpo",
            "trainer.project_name=autotrace-demo",
            "trainer.experiment_name=jam-sales",
        ],
    )
    engine = Engine(tokenizer, config.actor_rollout_ref.rollout.response_length)
    agents = in_process.worker_v1(config, engine)  # type: ignore[arg-type]
    for step in range(1, STEPS + 1):
        await in_process.rollout_v1(agents, engine.begin(step), step)
        keys = sorted(key for key in store.fields if key.startswith(f"{step}-"))
        batch, metrics = played_trainer.Batch("train", keys, [{} for _ in keys]), dict[str, Any]()
        trainer = played_trainer.trainer_of(PPOTrainer, config, Workers(engine, store), step)
        trainer._compute_old_log_prob(batch, metrics=metrics)
        trainer._compute_advantage(batch, metrics=metrics)
        trainer._update_actor(batch, metrics=metrics)
        metrics["critic/score/mean"] = float(np.mean([store.fields[key]["rm_scores"].sum() for key in keys]))
        Tracking("autotrace-demo", "jam-sales", default_backend=[], config={}).log(data=metrics, step=step)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="model-") as made:
        asyncio.run(train(Path(made)))
