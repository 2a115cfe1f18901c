"""An agent of one's own that takes back an answer and goes on with other words, and returns a row for each branch."""

from __future__ import annotations

from typing import Any


class Branching:
    """The agent. ``fault``: the finding that the rollouts of attempt 1 have."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def ask(self, prompt_ids: list[int], answer: list[int]) -> dict[str, Any]:
        """The engine."""
        return {"token_ids": answer}

    def session(self, prompt: list[int], first: list[int], ends: bool) -> None:
        """The program of the agent, which calls the engine."""
        self.ask(prompt, first)
        if not ends:
            raise TimeoutError("the agent did not end within 600 s")

    def run(self, number: int, step: int, uid: str, attempt: int) -> dict[str, Any]:
        """A rollout."""
        fault = self.fault if attempt == 1 else ""
        reward = float(number % 2) if fault != "AT-SESSION-DIED" else 0.0
        prompt = [1, 2, 3, 100 + number]
        first, other, last = ([kind + number, *range(kind, kind + 9)] for kind in (200, 300, 400))
        try:
            self.session(prompt, first, ends=fault != "AT-SESSION-DIED")
        except TimeoutError:
            return {"rows": [_row(prompt, first, [1] * 10, reward, reward - 0.5)]}
        self.ask([*prompt, *first, 5], other)
        self.ask([*prompt, *first, 6, 6], last)
        again = int(fault == "AT-TOKENS-TWICE")
        advantage = reward - 0.5 if fault == "AT-BRANCH-REWARD" else -0.25
        rows = [
            _row(prompt, [*first, 6, 6, *last], [1] * 10 + [0] * 2 + [1] * 10, reward, reward - 0.5),
            _row(prompt, [*first, 5, *other], [again] * 10 + [0] + [1] * 10, 0.25, advantage),
        ]
        return {"rows": rows[: 1 if fault == "AT-TOKENS-DROPPED" else 2]}


def _row(prompt: list[int], response: list[int], mask: list[int], reward: float, advantage: float) -> dict[str, Any]:
    return {"prompt_ids": prompt, "response_ids": response, "mask": mask, "reward": reward, "advantage": advantage}


BRANCHES = ("AT-TOKENS-DROPPED", "AT-TOKENS-TWICE", "AT-BRANCH-REWARD", "AT-SESSION-DIED")
"""Findings of this agent."""
