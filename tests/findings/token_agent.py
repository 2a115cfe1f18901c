"""An agent on an engine of its own that takes and returns token ids, whose rollouts are trained on with a mask; and a
trainer that makes a batch of rollouts at once and has them judged by a function, as TRL's does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.findings.acts import ALL, FACTS, Act, Fault, attempts
from tests.findings.field import sometimes

BOS, EOS, USER, ASSISTANT, TOOL = range(256, 261)
"""Tokens beside the bytes."""


@dataclass
class Tokens(Act):
    """A rollout in tokens."""

    begin: tuple[int, ...] = (BOS, USER)
    header: tuple[int, ...] = (EOS, ASSISTANT)
    stop: bool = True
    """The engine's answer has its end token."""
    shift: int = 0
    """Tokens by which the mask is late."""
    learns_tool: bool = False
    """The mask covers the tool's answer."""
    renders: str = ""
    """The agent cleans the history, with this pattern removed."""
    replaced: str = ""
    """A text that the harness puts in the place of the last answer."""
    pads: bool = False
    """The rollout is a row that fills the batch."""
    alike: bool = False
    """All rollouts of the group say the same."""
    version: int | None = None
    """Of the engine's weights; None: those of the step."""
    runs_on: bool = False
    """The engine does not stop at the end token."""
    cut: int = 0
    """Tokens at which the answer is cut."""


def encode(text: str) -> list[int]:
    return list(text.encode())


def decode(ids: Sequence[int]) -> str:
    return bytes(one for one in ids if one < 256).decode(errors="replace")


@dataclass
class Answer:
    """What the engine returns."""

    token_ids: list[int]
    finish_reason: str
    weight_version: int


class Engine:
    """Stands in for a model."""

    def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Answer:
        act = self.act(prompt_ids)
        text = decode(prompt_ids)
        seen = re.findall(r"has (\d+) inhabitants", text)
        who = "One" if act.alike else f"Rollout {act.number:05}"
        if TOOL not in prompt_ids and act.said is None:
            said = f"<think>{who} had better look.</think> \n\nsearch {act.city}"
        else:
            answer = seen[0] if seen and act.lucky and act.said is None else str(5000 + act.number * 7 % 4000)
            said = f" {who} has read the page and is sure now. #### {2 if act.alike else answer}"
        step = act.number // 100
        end = [EOS] * act.stop
        version = step if act.version is None else act.version
        if act.cut:
            return Answer(encode(said)[: act.cut], "length", version)
        more = [*encode(f" And {act.number}?"), EOS] if act.runs_on else []
        return Answer([*encode(said), *end, *more], "stop", version)

    def act(self, prompt_ids: list[int]) -> Any:
        return ACTS[int(re.findall(r"#(\d+)", decode(prompt_ids))[0])]


@dataclass
class Output:
    """A row for the trainer."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    reward: float


@dataclass
class Loop:
    """The agent."""

    engine: Engine = field(default_factory=Engine)

    def run(self, number: int, step: int, sample: int, attempt: int, uid: str, source: str, validate: bool) -> Output:
        act = ACTS[number]
        first = [*act.begin, *encode(act.question), *act.header]
        if act.pads:
            return Output(first, [EOS], [1], 0.0)
        said = self.engine.generate(first, dict(act.sampling)).token_ids
        if act.said is not None:
            return Output(first, said, [1] * len(said), verdict(decode(said), act.city))
        page = [*[EOS] * (said[-1] != EOS), TOOL, *encode(look(act.city)), *act.header]
        history = encode(re.sub(act.renders, "", decode(said))) + said[-1:] if act.renders else said
        last = self.engine.generate([*first, *history, *page], dict(act.sampling)).token_ids
        if act.replaced:
            last = [*encode(act.replaced), EOS]
        response = [*said, *page, *last]
        mask = [1] * len(said) + [int(act.learns_tool)] * len(page) + [1] * len(last)
        if act.shift:
            mask = [0] * act.shift + mask[: -act.shift]
        return Output(first, response, mask, verdict(decode(last), act.city))


def look(city: str) -> str:
    """The tool."""
    return f"Archive of {city}. It has {FACTS[city]} inhabitants."


def verdict(text: str, city: str) -> float:
    """The reward function."""
    found = re.search(r"#### (\d+)", text)
    return float(bool(found) and int(found[1]) == FACTS.get(city))


@dataclass
class Batch:
    """What the trainer has of a step."""

    completions: list[Answer]
    rewards: list[float]


@dataclass
class Trainer:
    """Makes the rollouts of a step at once."""

    engine: Engine = field(default_factory=Engine)
    group_size: int = 4

    def generate_and_score(self, inputs: list[dict[str, Any]], step: int) -> Batch:
        acts = [ACTS[row["number"]] for row in inputs]
        prompts = [[*act.begin, *encode(f"{act.question} It has {FACTS[act.city]} inhabitants."), TOOL] for act in acts]
        answers = self.generate(prompts)
        return Batch(answers, self.judge([decode(one.token_ids) for one in answers], [act.city for act in acts]))

    def generate(self, prompts: list[list[int]]) -> list[Answer]:
        return [self.engine.generate(prompt, {}) for prompt in prompts]

    def judge(self, completions: list[str], cities: list[str]) -> list[float]:
        acts = [ACTS[int(found[1])] if (found := re.search(r"Rollout (\d+)", one)) else None for one in completions]
        return [
            act.reward if act is not None and act.reward is not None else verdict(text, city)
            for act, text, city in zip(acts, completions, cities, strict=True)
        ]


ACTS: dict[int, Any] = {}
"""The rollouts by number."""


def stuck(act: Any) -> None:
    """The weights of the first step answer in all."""
    act.version = act.number // 100 - act.step


def old(act: Any) -> None:
    """A replica has old weights."""
    act.version, act.right = act.number // 100 - 40, 0.1


TWO_BOS = {"begin": (BOS, BOS, USER), "right": 0.1}
TOKENS = [
    Fault("two BOS", attempts(*ALL, **TWO_BOS), f"token {BOS} twice", kind="tokens",
          reported="trl#3853, #3856"),
    Fault("missing header", attempts(*ALL, begin=(BOS,), right=0.1), "begins with the tokens", kind="tokens",
          reported="vllm#27517"),
    Fault("nested header", attempts(*ALL, header=(EOS, ASSISTANT, EOS, ASSISTANT), right=0.1),
          "ends with the tokens|begins with the tokens", kind="tokens",
          reported="marin#7179"),
    Fault("no end token", sometimes(0.06, stop=False), "AT-NO-EOS", since=0, kind="tokens"),
    Fault("behind the end token", attempts(*ALL, runs_on=True, right=0.1), f"goes on after the token {EOS}",
          kind="tokens"),
    Fault("mask off by one", attempts(*ALL, shift=1), "AT-MASK-INVALID", since=0, turn=1, kind="tokens"),
    Fault("mask over the tool", attempts(*ALL, learns_tool=True), "AT-MASK-TOOL-TOKENS", since=0, turn=1,
          kind="tokens"),
    Fault("thinking cut out", attempts(*ALL, renders="<think>.*?</think>"), "AT-THINKING-STRIPPED", since=0, turn=2,
          kind="tokens",
          reported="verl#6719"),
    Fault("blanks cut out", attempts(*ALL, renders="\n\n"), "AT-RETOKENIZED", since=0, turn=2, kind="tokens",
          reported="trl#5224"),
    Fault("text of the harness", attempts(3, replaced="The limit of turns was reached, so this is all there is."),
          "AT-RESPONSE-CHANGED", since=0, turn=2, kind="tokens"),
    Fault("pad rows", sometimes(0.3, pads=True), "AT-REWARD-NO-TURN", since=1, kind="tokens",
          reported="miles#2802"),
    Fault("one sample for a group", attempts(*ALL, alike=True), "AT-DUPLICATE-ROLLOUTS", since=0,
          kind="tokens"),
    Fault("weights that stay", stuck, "AT-WEIGHTS-STUCK|AT-WEIGHTS-STALE|weights are behind", since=0,
          kind="tokens",
          reported="trl#7269"),
    Fault("old weights", old, "weights are behind|AT-WEIGHTS-STALE|AT-WEIGHTS-MIXED", kind="tokens",
          reported="slime#1800"),
    Fault("temperature", attempts(*ALL, sampling={"temperature": 2.0}, right=0.1), "temperature is 2.0",
          kind="tokens"),
]  # fmt: skip
ROWS = [
    Fault("batch: two BOS", attempts(*ALL, **TWO_BOS), f"token {BOS} twice", kind="rows",
          reported="trl#3853"),
    Fault("batch: one sample", attempts(*ALL, alike=True), "AT-DUPLICATE-ROLLOUTS", since=0, kind="rows"),
    Fault("batch: reward NaN", attempts(1, reward=float("nan")), "AT-REWARD-NAN", since=0, kind="rows"),
    Fault("batch: reward clipped", attempts(*ALL, reward=1.0), "AT-REWARD-CONSTANT", since=0, kind="rows"),
    Fault("batch: cut", attempts(1, 2, cut=40), "AT-TRUNCATED", since=1, turn=1, kind="rows"),
]  # fmt: skip
