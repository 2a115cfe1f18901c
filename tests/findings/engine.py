"""The engine of the corpus: it says what its scenario wants, within the limits that a real one has. Imported by
``program`` alone."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import in_process
import numpy as np

from tests.findings.policy import contexts, sampled
from tests.findings.scenarios import Rollout, Scenario


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
        self.numbered: dict[int, Rollout] = {}
        self.anybody = Rollout(0, 0, 0, 0, False)
        self.words: dict[tuple[int, int, int], int] = {}
        """Rollout, what stood before a token, and the token -> which word of the policy it is."""
        self.began = self.last = time.monotonic()
        self.generate = in_process.Remote(self._generate)

    def planted(self, request: str) -> bool:
        """Whether the rollout of a request has the fault."""
        return request in self.known and self.known[request].planted

    def _rollout(self, prompt_ids: list[int]) -> tuple[str, int]:
        """Which rollout asks, and its turn: a loop of the corpus says so, else the conversation."""
        from tests.findings.loops import CURRENT

        conversation = self.tokenizer.decode(prompt_ids)
        turn = max(0, conversation.count("<|im_start|>assistant") - 1)
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
            planted = self.scenario.is_planted(number, question, self.step - self.first)
            self.known[name] = Rollout(number, question, sibling, self.step - self.first, planted)
            self.numbered[number] = self.known[name]
        return name, max(turn, len(self.said.get(name, ())) if self.scenario.client != "sync" else turn)

    async def _generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.last = time.monotonic()
        name, turn = self._rollout(prompt_ids)
        rollout, calls = self.known[name], self.said.setdefault(name, [])
        reply = self.scenario.reply(rollout, turn)
        await (self.quiet(reply["slow"]) if "slow" in reply else asyncio.sleep(0.001))
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
        log_probs = self._log_probs(rollout, turn, prompt_ids, ids, sampling_params)
        return TokenOutput(token_ids=ids, log_probs=log_probs, stop_reason=reply.get("stop", "completed"),
                           num_preempted=reply.get("preempted"), extra_fields=extra)  # fmt: skip

    def _log_probs(
        self, rollout: Rollout, turn: int, prompt_ids: list[int], ids: list[int], sampling: dict[str, Any]
    ) -> list[float]:
        training = self.scenario.training
        if training is None or not ids:
            return [-0.1] * len(ids)
        behind = contexts([*prompt_ids, *ids])[len(prompt_ids) :]
        places = np.arange(len(prompt_ids), len(prompt_ids) + len(ids))
        policy, temperature = training.engine(rollout, turn), float(sampling.get("temperature", 1.0))
        log_probs = policy.log_probs(behind, places, temperature)
        words = sampled(log_probs, behind)
        for before, token, word in zip(behind, ids, words, strict=True):
            self.words[rollout.number, int(before), token] = int(word)
        if training.raw:
            log_probs = policy.log_probs(behind, places, 1.0)
        reported: list[float] = log_probs[np.arange(len(ids)), words].tolist()
        return reported

    async def quiet(self, seconds: float) -> None:
        """Wait until nobody else has asked for so long, and for several times as long as all the others took."""
        while True:
            now = time.monotonic()
            if now - self.last >= seconds and now - self.began >= 6 * (self.last - self.began):
                return
            await asyncio.sleep(0.05)

    def _ids(self, reply: dict[str, Any], room: int) -> list[int]:
        if "ids" in reply:
            return list(reply["ids"])
        end = [self.tokenizer.eos_token_id] if reply.get("eos", True) else []
        if "fill" in reply:
            text = reply["fill"] + " ".join(map(str, range(1000)))
            return self.tokenizer.encode(text, add_special_tokens=False)[: room - 1] + end
        return self.tokenizer.encode(reply["text"], add_special_tokens=False) + end
