"""An agent of one's own with nothing wrong, of which lists record more or less: ``python little.py [KIND]``.

Its answers end with no end token, some of them are tables, it makes as many rollouts of a prompt as it likes, and it
trains nothing. ``KIND``: ``some`` (ids of the first turn alone), ``empty`` (ids that its server left out).
"""

from __future__ import annotations

import random
import sys
import zlib
from dataclasses import dataclass, field
from typing import Any

TASKS = 12


def ids_of(text: str) -> list[int]:
    """A token for each word."""
    return [zlib.crc32(word.encode()) % 30_000 + 100 for word in text.split()]


@dataclass
class Reply:
    """What the model's server returns."""

    text: str
    token_ids: list[int] | None
    weights: int = 7


@dataclass
class Result:
    """A finished rollout."""

    answer: str
    ids: list[int]
    score: float
    parts: dict[str, float] = field(default_factory=dict)


class Model:
    """Answers as it likes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def ask(self, prompt_ids: list[int], prompt: str, sampling_params: dict[str, Any], turn: int, task: int) -> Reply:
        """The first answer to a task is the same in all rollouts: they part later."""
        chosen = random.Random(f"{task}" if turn == 1 else f"{task} {random.random()}")
        words = [f"word{chosen.randrange(900)}" for _ in range(40)]
        if turn == 2:
            rows = [f"| {chosen.randrange(900)} | {'and so on ' * 6}|" for row in range(18)]
            words = [*" ".join(rows).split(), *([f"word{chosen.randrange(900)}"] if task % 2 else [])]
        text = " ".join(words)
        known = None if self.kind == "some" and turn == 2 else [] if self.kind == "empty" else ids_of(text)
        return Reply(text, known)


class Screen:
    """Tools."""

    def poll(self, job: str) -> dict[str, int]:
        """Another answer each time, and no text."""
        self.polled = getattr(self, "polled", 0) + 1
        return {"ready": self.polled}

    def click(self, x: int, y: int) -> None:
        """Returns nothing."""


def grade(answer: str) -> dict[str, float]:
    """A reward of parts, one of which is called ``error``."""
    right, form = float(random.random() < 0.5), float(random.random() < 0.8)
    return {"score": right + 0.1 * form, "accuracy": right, "format": form, "error": random.random()}


class Agent:
    """Two turns with tools between them."""

    def __init__(self, kind: str) -> None:
        self.model, self.screen = Model(kind), Screen()

    def solve(self, task: int, attempt: int, step: int, sampling_params: dict[str, Any]) -> Result:
        """Prompts are of one length and begin in two ways."""
        prompt = " ".join([f"{'Please' if task % 3 else 'Kindly'} do this task {task}", *["as told"] * 20])
        everything = ids_of(prompt)
        for turn in (1, 2):
            reply = self.model.ask(everything, prompt, sampling_params, turn, task)
            everything = everything + ids_of(reply.text)
            prompt = f"{prompt} {reply.text}"
            for _ in range(3):
                self.screen.poll("job")
                self.screen.click(attempt, task)
            everything, prompt = [*everything, *ids_of("go on")], f"{prompt} go on"
        parts = grade(reply.text)
        return Result(reply.text, everything, parts.pop("score"), parts)


def main(kind: str = "") -> None:
    """Five passes; of some tasks one rollout a pass, of others three."""
    random.seed(4)
    for step in range(10, 15):
        for task in range(TASKS):
            for attempt in range(3 if task % 3 else 1):
                Agent(kind).solve(task, attempt, step, {"temperature": 1.0, "top_p": 0.9})


if __name__ == "__main__":
    main(*sys.argv[1:])
