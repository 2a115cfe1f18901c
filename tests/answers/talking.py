"""An agent of one's own that has token ids and no tokenizer: ``python talking.py``. Each class asks its model in
another way; all say the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ANSWERS = ("I see a giraffe.", "I see a walrus.")
SURE = "Are you sure of the zebra?"


def ids(text: str) -> list[int]:
    """A token for each letter."""
    return [ord(letter) for letter in text]


@dataclass
class Reply:
    """What the model's server returns."""

    content: str
    token_ids: list[int] = field(default_factory=list)


class Messages:
    """Beside the ids stand messages."""

    def ask(self, prompt_ids: list[int], history: list[dict[str, str]], temperature: float, said: str) -> Reply:
        """Answers."""
        return Reply(said, ids(said))


class Text:
    """Beside the ids stands the text."""

    def ask(self, prompt_ids: list[int], question: str, temperature: float, said: str) -> Reply:
        """Answers."""
        return Reply(said, ids(said))


class Inner:
    """Asks with ids."""

    def generate(self, prompt_ids: list[int], said: str) -> list[int]:
        """Answers with ids."""
        return ids(said)


class Outer(Inner):
    """The messages are those of the call around the one that has the ids."""

    def ask(self, prompt_ids: list[int], messages: list[dict[str, str]], temperature: float, said: str) -> str:
        """Answers."""
        self.generate(prompt_ids, said)
        return said


class Numbers:
    """Nothing but ids."""

    def ask(self, prompt_ids: list[int], temperature: float, said: str) -> list[int]:
        """Answers."""
        return ids(said)


def solve(way: str, task: int, attempt: int) -> dict[str, float]:
    """Two turns; rollouts part in the second."""
    model: Any = {"messages": Messages, "text": Text, "outer": Outer, "numbers": Numbers}[way]()
    said = [{"role": "user", "content": f"What do you see in picture {task}?"}]
    for answer in ("I look.", ANSWERS[attempt]):
        whole = "".join(message["content"] for message in said)
        beside = {"messages": (said,), "text": (whole,), "outer": (said,), "numbers": ()}[way]
        model.ask(ids(whole), *beside, 0.5, answer)
        said = [*said, {"role": "assistant", "content": answer}, {"role": "user", "content": SURE}]
    return {"reward": float(attempt)}


if __name__ == "__main__":
    for way in ("messages", "text", "outer", "numbers"):
        for attempt in (0, 1):
            solve(way, 3, attempt)
