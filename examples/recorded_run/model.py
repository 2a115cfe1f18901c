"""The model of the recorded run. What it says is scripted, with words and mistakes drawn for each rollout; its
probabilities are those of counts over the script, computed twice, as an engine and a trainer would.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sales import JAMS, MONTHS, SHOPS

OPENINGS = (
    "I need the sales of the {shop} shop first.", "Let me look that up in the table of sales.",
    "First I sum up the sales for {month}, then I answer.", "The question is about {jam} jam in {shop}, so I query it.",
    "I will ask the database, as I cannot know this number.", "Okay, one query should be enough for this.",
)  # fmt: skip
ENDINGS = (
    "That is the answer.",
    "So the result is clear.",
    "I have checked the number.",
    "This is what the table says.",
    "No more queries are needed.",
    "The table has one row for it, so this is final.",
    "I trust the database here.",
    "It answers the question directly.",
    "This seems plausible for such a shop.",
    "I am sure about this.",
)
BEGINNINGS = (
    "The result is {}.",
    "The query returned {}.",
    "It says {}.",
    "So the number is {}.",
    "The tool answers {}.",
)
SORRY = (
    "The tool failed and did not return an amount, so I cannot give an answer.",
    "The conversion is not available. I cannot answer this question.",
    "There was an error in the conversion, so I have no result in francs.",
)


@dataclass(frozen=True)
class Task:
    """A prompt. ``kind``: ``count`` jars, ``money`` in a currency, ``list`` all rows, ``easy``."""

    index: int
    kind: str
    shop: str
    jam: str
    month: str
    currency: str = "EUR"
    agent: str = "tool_agent"

    @property
    def question(self) -> str:
        """What the user says."""
        if self.kind == "easy":
            return "How many shops are in the table of sales? Answer with #### and the number."
        if self.kind == "list":
            return f"How many jars did the {self.shop} shop sell in {self.month} and the month before, all kinds of "\
                   "jam together? Look at the single rows, and answer with #### and the number."  # fmt: skip
        if self.kind == "count":
            return f"How many jars of {self.jam} jam did the {self.shop} shop sell in {self.month}? Answer with #### "\
                   "and the number."  # fmt: skip
        return f"How much did the {self.shop} shop earn with {self.jam} jam from January to June, in {self.currency}? "\
               "Round to a whole number and answer with #### and the number."  # fmt: skip

    @property
    def sql(self) -> str:
        """What answers it, before a conversion."""
        if self.kind == "easy":
            return "SELECT count(DISTINCT shop) FROM sales"
        if self.kind == "list":
            before = MONTHS[MONTHS.index(self.month) - 1]
            return f"SELECT * FROM sales WHERE shop = '{self.shop}' AND month IN ('{before}', '{self.month}')"
        if self.kind == "count":
            return (
                f"SELECT jars FROM sales WHERE shop = '{self.shop}' AND jam = '{self.jam}' AND month = '{self.month}'"
            )
        return f"SELECT sum(jars * price) FROM sales WHERE shop = '{self.shop}' AND jam = '{self.jam}'"


def tasks(step: int) -> list[Task]:
    """The 16 prompts of a step: one asks for francs in the first step, four in the later ones."""
    rng = random.Random(step)
    made: list[Task] = []
    francs = 1 if step == 1 else 4
    while len(made) < 16:
        place = len(made)
        kind = "easy" if place == 0 else "list" if place in (1, 2) else "count" if place < 9 else "money"
        currency = "CHF" if place >= 16 - francs else rng.choice(("EUR", "USD", "GBP"))
        task = Task(100 * step + place, kind, rng.choice(SHOPS), rng.choice(JAMS), rng.choice(MONTHS[1:]),
                    currency, "chat_agent" if place in (3, 4, 5) else "tool_agent")  # fmt: skip
        if task.question not in {other.question for other in made}:
            made.append(task)
    return made


def call(rng: random.Random, spaced: bool, name: str, **arguments: object) -> str:
    """A tool call in Hermes' format; some rollouts write their JSON without spaces."""
    separators = (", ", ": ") if spaced else (",", ":")
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, separators=separators)}</tool_call>"


def say(task: Task, rng: random.Random, turn: int, heard: str, slow: bool, style: random.Random) -> str:
    """What the model says in ``turn`` after the tool has said ``heard``. ``style``: the same in all turns."""
    spaced, careless = style.random() < 0.6, style.random() < 0.35
    if turn == 0:
        opening = rng.choice(OPENINGS).format(shop=task.shop, month=task.month, jam=task.jam)
        sql = task.sql
        if slow:  # joins the table with itself twice, and SQLite really does it
            sql = "SELECT max((a.jars + b.jars) * c.jars % 97) FROM sales a, sales b, sales c "\
                  "WHERE length(a.shop || b.jam || c.month) + length(upper(c.jam || a.month)) > 3"  # fmt: skip
        elif careless and task.kind == "count":
            sql = sql.replace(" AND month", " OR month", 1) if style.random() < 0.3 else sql.replace("jars", "price", 1)
        return f"{opening} {call(rng, spaced, 'query', sql=sql)}"
    numbers = [word for word in heard.replace("|", " ").split() if word.isdecimal()]
    number = int(numbers[0]) if numbers else 0
    if task.kind == "money" and turn == 1 and task.currency != "EUR" and not (careless and task.currency != "CHF"):
        words = rng.choice(("Now I convert it.", f"In euros it is {number}. The question asks for {task.currency}."))
        return f"{words} {call(rng, spaced, 'convert', amount=number, currency=task.currency)}"
    if "Error" in heard:
        return rng.choice(SORRY)
    if task.kind == "list" and len(numbers) > 2:
        rows = [line.split(" | ") for line in heard.splitlines() if line.count(" | ") == 4]
        total, lines = 0, []
        for shop, jam, month, jars, _ in rows:
            total += int(jars)
            lines.append(f"In {month} {shop} sold {jars} jars of {jam} jam, which makes {total} jars so far.")
        if style.random() < 0.4:
            return f"I sum up the jars of all rows. It is {total} in all. {rng.choice(ENDINGS)} #### {total}"
        return f"Let me add them one by one. {' '.join(lines)} {rng.choice(ENDINGS)} #### {total}"
    return f"{rng.choice(BEGINNINGS).format(number)} {rng.choice(ENDINGS)} #### {number}"


def corpus() -> list[str]:
    """Texts like those that are said, to count words in."""
    texts = []
    for seed in range(40):
        rng = random.Random(seed)
        for step in (1, 2, 3):
            for task in tasks(step):
                rows = "\n".join(f"{task.shop} | {jam} | {task.month} | {rng.randint(4, 60)} | 5" for jam in JAMS)
                heard = rows if task.kind == "list" else str(rng.randint(1, 900))
                texts += [say(task, rng, turn, heard, False, random.Random(seed)) + "<|im_end|>" for turn in (0, 1, 2)]
                texts.append(rng.choice(SORRY) + "<|im_end|>")
    return texts


@dataclass
class Probabilities:
    """Of the next token: counts of what follows one to four tokens, and what stands in the conversation."""

    size: int
    counts: dict[tuple[int, ...], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def learn(self, ids: Sequence[int]) -> None:
        """Count one text."""
        for at, token in enumerate(ids):
            for length in range(min(at, 4) + 1):
                self.counts[tuple(ids[at - length : at])][token] += 1

    def of(self, before: Sequence[int], noise: float, seed: int, start: int) -> Any:
        """Log-probabilities of all tokens behind ``before``, whose answer begins at ``start``. ``noise``: by how much
        each logit differs."""
        mixed = np.full(self.size, 2e-4 / self.size)
        for length, weight in enumerate((0.01, 0.03, 0.08, 0.2, 0.6)):
            said = before[start:]
            if len(said) >= length and (known := self.counts.get(tuple(said[len(said) - length :]))):
                mixed[list(known)] += weight * np.fromiter(known.values(), float) / known.total()
        near, often = np.unique(np.asarray(before[-160:]), return_counts=True)
        mixed[near] += 0.06 * often / often.sum()
        logits = np.log(mixed)
        if noise:
            rng = np.random.default_rng([seed, len(before), *before[-6:]])
            logits += noise * rng.standard_normal(self.size)
        return logits - np.logaddexp.reduce(logits)
