"""What one rollout of the agent on the openai client does, and the faults that change it: most of them people reported
in public, and searched for long. The same rollout without the fault is the twin.

    Fault("outage", since=2, planted=sometimes(0.8, answer="Sandbox provisioning did not ..."), clue="provisioning")

``agents`` plays the rollouts, ``named`` looks for ``clue`` in what ``diagnose`` and ``why`` say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.findings.field import CITIES, Play, sometimes

STEPS, PROMPTS, N = 4, 6, 4
FACTS = {city: 1000 + 137 * place for place, city in enumerate(CITIES)}


@dataclass
class Act(Play):
    """A rollout whose model calls, tools and rewards are real calls."""

    asked: int = 1
    """Calls in the first answer ..."""
    ran: int = 9
    """... and how many of them the agent executes."""
    swapped: bool = False
    """Each result has the id of the other call."""
    doubled: bool = False
    """The agent appends a result twice."""
    again: int = 0
    """Times that the model repeats its call."""
    thinks: bool = False
    """The model sends its thinking beside the answer ..."""
    keeps_thinking: bool = True
    """... which the agent keeps."""
    keeps_question: bool = True
    """After the tool's answer."""
    last: str = "Attempt {number:05}: #### {answer}"
    """The form of the last answer."""
    ends: bool = True
    """The agent asks the model once more after a tool's answer."""
    refused: str = ""
    """The model server's error; the agent swallows it."""
    foreign: str = ""
    """Another rollout's answer, which the agent appends after the tool's."""
    kills: bool = False
    """The tool kills the process."""
    made_up: str = ""
    """A text of the harness that stands as the last answer."""
    judged: str | None = None
    """A text that the reward function judges instead."""
    judge_fails: bool = False
    """The judge raises, and the reward function returns 0.0."""
    reward: float | None = None
    """What the reward function returns, whatever the answer."""
    of: str = ""
    """The city on which the tool answers, if another rollout's state is used."""
    uid: str = ""
    """The group; empty: that of the prompt."""
    validate: bool = False
    prompt: int = 0
    attempt: int = 0
    chance: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.chance = self.luck.random()

    @property
    def question(self) -> str:
        """The number of a prompt is a part of its question; that of a rollout is its id."""
        return super().question.replace("{prompt}", str(3 + self.prompt))

    @property
    def lucky(self) -> bool:
        """The model reads the page well."""
        return self.chance < self.right


Planted = Callable[[Any], None]


@dataclass(frozen=True)
class Fault:
    """A fault from step ``since`` on. ``reported``: threads about it, or about its kind."""

    name: str
    planted: Planted
    clue: str
    """A pattern that a finding, or a cause, must match."""
    since: int = 2
    turn: int | None = None
    base: dict[str, Any] = field(default_factory=dict)
    """What the rollouts of the twin do, too."""
    kind: str = "chat"
    reported: str = ""


def attempts(*numbers: int, **values: Any) -> Planted:
    """Set ``values`` in these rollouts of each group."""

    def planted(act: Act) -> None:
        if act.attempt in numbers:
            for name, value in values.items():
                setattr(act, name, value)

    return planted


def shared_group(act: Act) -> None:
    """Two prompts have one group id."""
    act.uid = f"{act.step}-p{act.prompt % 3}"


def group_each(act: Act) -> None:
    """Each rollout has a group id of its own."""
    act.uid = f"{act.step}-{act.attempt}-p{act.prompt}"


def others_page(act: Act) -> None:
    """The tool answers on the city of another rollout."""
    if act.luck.random() < 0.8:
        act.of = CITIES[(CITIES.index(act.city) + 1 + act.attempt) % len(CITIES)]


def others_answer(act: Act) -> None:
    """The reward function judges the answer of another rollout."""
    if act.attempt in (0, 3):
        act.judged = f"Attempt {act.number + 7}, which went on for quite some time and then said: #### 17"


def cached(act: Act) -> None:
    """The tool's cache has no key: all questions of a step get one page."""
    act.of = CITIES[act.step]


def one_prompt(act: Act) -> None:
    """The data loader gives one row for ever."""
    act.city = CITIES[0]


CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "inhabitants"}}\n</tool_call>'
ALL = (0, 1, 2, 3)

CHAT = [
    Fault("no session", sometimes(0.7, asks=False), "AT-REWARD-NO-TURN",
          reported="NeMo-Gym#2552, verl#6641"),
    Fault("outage", sometimes(0.8, answer="Sandbox provisioning did not complete within 300s (request id 8fa2)."),
          "search answers .Sandbox provisioning",
          reported="prime-rl#3474, ToRL#27"),
    Fault("empty results", attempts(*ALL, answer=""), "search answers nothing", since=1,
          reported="verl#4918"),
    Fault("call in the text", attempts(1, 2, said=f"Let me look.\n{CALL}"), "AT-CALL-NOT-PARSED", since=0, turn=1,
          reported="vLLM#31871, #28297"),
    Fault("call in the thinking", attempts(1, 2, said="Let me look.", thought=CALL), "AT-CALL-NOT-PARSED", since=0,
          turn=1,
          reported="vLLM#19056, SkyRL#954"),
    Fault("first call only", attempts(*ALL, ran=1), "AT-CALL-NOT-EXECUTED", since=0, turn=1, base={"asked": 2},
          reported="vero#46, adk-python#6589"),
    Fault("wall clock", attempts(1, 2, ends=False), "AT-ENDS-ON-TOOL", since=0, turn=1,
          reported="rLLM#710"),
    Fault("judge down", sometimes(0.4, judge_fails=True), "AT-FALSE-ZERO.*toolchain", since=0,
          reported="OpenEnv#1025, NeMo-RL#2207"),
    Fault("no tools", attempts(*ALL, tools=None), "offers no tools",
          reported="verl#5300, #4798"),
    Fault("thinking dropped", attempts(*ALL, keeps_thinking=False), "AT-THINKING-STRIPPED", since=0, turn=2,
          base={"thinks": True},
          reported="verl#6854, NeMo-RL#1903"),
    Fault("made-up answer", attempts(3, made_up="I reached the maximum number of iterations. Nothing was found."),
          "AT-REWARD-MISMATCHED", since=0,
          reported="NeMo-Gym#2254"),
    Fault("prompts share a group", shared_group, "AT-GROUP-MIXED", since=0,
          reported="Search-R1#39, verifiers#1906"),
    Fault("numbers share a group", shared_group, "AT-GROUP-MIXED", since=0,
          base={"city": CITIES[0], "suffix": " Count district {prompt} alone and end with ####."}),
    Fault("a group each", group_each, "AT-GROUP-OF-ONE", since=0,
          reported="rllm#511"),
    Fault("results swapped", attempts(*ALL, swapped=True), "tool_call_id|swapped", since=2, turn=2, base={"asked": 2}),
    Fault("result doubled", attempts(*ALL, doubled=True), "twice|doubled|duplicate", since=2, turn=2, base={"asked": 2},
          reported="lightdash#25256"),
    Fault("arguments lost", sometimes(0.8, arguments={}, answer="Archive. Ask for a city."),
          r"no arguments|arguments are \{\}"),
    Fault("another role", sometimes(0.8, said="I know it.\nUser: Are you sure?\nAssistant: #### 12"),
          "role|begins with"),
    Fault("thinking without an end", sometimes(0.7, last="<think>It is {answer}, or is it? Let me"), "</think>"),
    Fault("text after the end", sometimes(0.8, said="#### 12<|im_end|>\n<|im_start|>user\nWhich one?"),
          "after the end|end token|<.im_start|another role"),
    Fault("no tools for half", attempts(1, 3, tools=None), "AT-TOOLS-MISSING", turn=1,
          reported="verl#5300"),
    Fault("cache without a key", cached, "AT-TOOL-ONE-ANSWER"),
    Fault("no stop string", attempts(*ALL, sampling={"temperature": 1.0, "model": "policy"}, right=0.1), "stop is",
          base={"sampling": {"temperature": 1.0, "model": "policy", "stop": ["User:"]}}),
    Fault("no system prompt", attempts(*ALL, system="", right=0.1), "has the roles user"),
    Fault("another template", attempts(*ALL, suffix=" Answer at once.", right=0.1), "question ends with"),
    Fault("another temperature", attempts(*ALL, sampling={"temperature": 1.9}, right=0.1), "temperature is 1.9"),
    Fault("another model", attempts(*ALL, sampling={"temperature": 1.0, "model": "base"}, right=0.1), "model is base"),
    Fault("cut by max_tokens", sometimes(0.8, last="Attempt {number:05}: the archive says that", finish="length"),
          "AT-TRUNCATED", turn=2),
    Fault("tool raises", sometimes(0.8, error=("KeyError", "CHF", "")), "KeyError",
          reported="verl#6978"),
    Fault("tool times out", sometimes(0.8, error=("TimeoutError", "no answer within 30 s", "")), "AT-TOOL-TIMEOUT",
          turn=1),
    Fault("tool refuses", sometimes(0.8, answer="Error: 429 Too Many Requests"), "429 Too Many Requests"),
    Fault("one page for all", sometimes(0.8, answer="Welcome to the archive. Please sign in to continue."),
          "search answers .Welcome",
          reported="prime-rl#3474"),
    Fault("reward clipped", attempts(*ALL, reward=0.5), "AT-REWARD-CONSTANT", since=0),
    Fault("reward NaN", attempts(1, reward=float("nan")), "AT-REWARD-NAN"),
    Fault("another's answer judged", others_answer, "AT-REWARD-MISMATCHED", since=0,
          reported="verl#6392, #6310"),
    Fault("another's page", others_page, "repeats? no|another rollout|search answers",
          reported="verifiers#1727, #1067"),
    Fault("harder data", attempts(*ALL, source="villages", right=0.1), "data source is villages"),
    Fault("question lost", sometimes(0.9, suffix="", city="None", right=0.1), "question (begins|ends) with|searched"),
    Fault("one prompt for all", one_prompt, "AT-ONE-PROMPT.*earlier steps have several"),
    Fault("validation mixed in", attempts(*ALL, source="test", right=0.1), "data source is test"),
    Fault("question dropped", attempts(*ALL, keeps_question=False), "AT-MESSAGES-DROPPED", since=0, turn=2),
    Fault("another's answer in the history", attempts(1, foreign="Attempt of another: #### 17"), "AT-ANSWER-FOREIGN",
          since=0, turn=2),
    Fault("the same call again", sometimes(0.6, again=3), "AT-CALL-REPEATED", turn=2),
    Fault("refuses", sometimes(0.85, said="I cannot help with that."), "tools called are none|begins with .I cannot"),
    Fault("engine down", sometimes(0.8, refused="CUDA out of memory"), "InternalServerError|out of memory"),
]  # fmt: skip
