"""The corpus: what is planted in veRL's own agent loop, and what is clean and resembles it.

A scenario is one or more steps of a run, played by a scripted engine. ``reply`` says what the engine answers to turn
``turn`` (from 0) of a rollout; ``planted`` rollouts get the fault. Faults of public issues are named beside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.findings.policy import Policy

N = 4
"""Rollouts of a prompt."""


@dataclass(frozen=True)
class Rollout:
    """One trajectory of a scenario, as the engine knows it."""

    number: int
    """From 0 in the scenario, in the order of arrival."""
    question: int
    """The prompt, from 0 in the step."""
    sibling: int
    """From 0 in its group, in the order of arrival."""
    step: int
    """From 0 in the scenario."""
    planted: bool


Reply = dict[str, Any]
"""``text`` or ``ids``; ``eos`` (True), ``stop`` ("completed"), ``weights``, ``cached``, ``preempted``; ``slow``: so
many seconds, and far more than all the others."""


def call(name: str, **arguments: Any) -> str:
    """A tool call in Hermes' format."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def double(rollout: Rollout, turn: int) -> Reply:
    """What a good agent says: a tool call, then an answer that is right for some."""
    if turn == 0:
        return {"text": f"I am rollout {rollout.number} and double it. " + call("double", number=rollout.question)}
    return answer(rollout)


def answer(rollout: Rollout) -> Reply:
    """The answer: half of the rollouts of a group are right."""
    right = (rollout.sibling + rollout.question) % 2
    return {"text": f"Rollout {rollout.number} says #### {2 * rollout.question + 1 - right}"}


def _same(score: float) -> float:
    return score


def _once(planted: Sequence[bool]) -> list[list[int]]:
    return [list(range(len(planted)))]


@dataclass(frozen=True)
class Training:
    """What the trainer does with the rollouts of a step, and with which probabilities."""

    trainer: Callable[[Rollout], Policy] = lambda rollout: Policy()
    engine: Callable[[Rollout, int], Policy] = lambda rollout, turn: Policy()
    """Of a turn."""
    raw: bool = False
    """The engine reports probabilities before the temperature."""
    shifts: bool = False
    """Of those that have the fault, each log-probability is the one before."""
    invalid: bool = False
    """One of theirs is no number."""
    score: Callable[[float], float] = _same
    """What the trainer takes for their reward."""
    updates: Callable[[Sequence[bool]], list[list[int]]] = _once
    """Which rows have the fault -> the rows of each update."""
    padding: int = 0
    """Rows that only fill the batch (V1)."""


@dataclass(frozen=True)
class Scenario:
    """One of the corpus."""

    name: str
    code: str = ""
    """What must be found; empty: nothing may be."""
    reply: Callable[[Rollout, int], Reply] = double
    share: float = 1.0
    """Of the rollouts that have the fault."""
    turn: int | None = None
    """Where it is."""
    token: str = ""
    """``fork``: the first token that differs, as the engine saw it; ``end``: the length of the answer."""
    agent: str = "tool_agent"
    overrides: Sequence[str] = ()
    """Of veRL's configuration."""
    also: frozenset[str] = frozenset()
    """Codes that follow from the fault."""
    modes: Sequence[str] = ("v0", "v1")
    steps: int = 1
    groups: int = 9
    """Prompts of a step."""
    validate: bool = False
    by_group: bool = False
    """Whole groups have the fault."""
    question: str = "What is twice the number {number}? [{name}]"
    breaks: bool = False
    """veRL itself raises when it makes the batch."""
    client: str = "sync"
    misjudged: str = ""
    """The reward of those that have the fault is that of ``another`` prompt, or there is none (``not at all``)."""
    n: int = N
    """Rollouts of a prompt."""
    template: str = ""
    """Of ``templates.TEMPLATES``; empty: ChatML."""
    says: str = ""
    """A pattern that a finding, or a cause, must match at step ``since``; empty: each rollout must have the code."""
    since: int = 0
    """The first of its steps, from 0, that has the fault."""
    source: str = ""
    """The data source from there on."""
    only_step: int | None = None
    """The one of its steps, from 0, that has the fault."""
    training: Training | None = None
    """None: nobody trains on them."""
    weights: Callable[[int], int] = field(default=lambda step: step - 1)
    """Version of the weights in a step."""

    def is_planted(self, number: int, question: int, step: int = 0) -> bool:
        """Spread evenly: of 36 rollouts 3 % are one."""
        if not self.code or self.only_step not in (None, step) or step < self.since:
            return False
        count = self.groups if self.by_group else self.groups * self.n
        place = question if self.by_group else number % count
        wanted = max(1, round(self.share * count))
        return (place + 1) * wanted // count != place * wanted // count
