"""An agent with a search tool, as people write it, with one change planted from a step on. Nothing runs: a rollout is
made as the shipper would have assembled it, so that many programs are played in a second.

``Change.planted`` alters what a rollout does; ``clue`` stands in the words of the cause that has to come first, and is
empty where nothing that is recorded tells. A clean run has no change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import Record, Step
from autotrace.trajectory.model import OK, Span, Trajectory
from autotrace.trajectory.tool_calls import entitle

STEPS, PROMPTS, N, CHANGED = 6, 6, 4, 3
CITIES = ("Aachen", "Bonn", "Celle", "Dessau", "Essen", "Fulda", "Gera", "Hagen", "Ilmenau", "Jena", "Kassel", "Lingen")
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("search", "calc")]


@dataclass
class Play:
    """What one rollout does. A planted change sets some of it."""

    step: int
    city: str
    number: int
    luck: random.Random
    system: str = "You answer with #### NUMBER. Tools: search, calc."
    prefix: str = ""
    suffix: str = " Think step by step and end with ####."
    tools: list[Any] | None = field(default_factory=lambda: TOOLS)
    sampling: dict[str, Any] = field(default_factory=lambda: {"temperature": 1.0, "model": "policy"})
    arguments: dict[str, Any] | None = None
    answer: str | None = None
    """Of the tool; None: the city's page."""
    error: tuple[str, str, str] | None = None
    """That the tool raised, and the agent swallowed."""
    said: str | None = None
    """Instead of the call."""
    thought: str | None = None
    asks: bool = True
    """The model is called at all."""
    goes_on: bool = True
    """After the tool's answer."""
    right: float = 0.75
    """How often the last answer is right, if the tool answered as usual."""
    form: str = "#### {}"
    """Of the last answer."""
    finish: str = "stop"
    source: str = "cities"
    host: str = "node-1"
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def question(self) -> str:
        return f"{self.prefix}How many inhabitants are in {self.city}? (#{self.number}){self.suffix}"


Planted = Callable[[Play], None]


@dataclass(frozen=True)
class Change:
    """A change from step ``CHANGED`` on."""

    name: str
    planted: Planted
    clue: str


def played(change: Change | None, seed: int = 0, steps: int = STEPS, changed: int = CHANGED) -> list[Step]:
    """The steps of a run; without a change a clean one."""
    luck = random.Random(seed)
    made = []
    for number in range(steps):
        records = []
        for prompt in range(PROMPTS):
            city = CITIES[(prompt + number) % len(CITIES)]
            for attempt in range(N):
                play = Play(number, city, number * 1000 + prompt * N + attempt, luck)
                if change is not None and number >= changed:
                    change.planted(play)
                records.append(_record(play, prompt))
        made.append(Step(number, records, TrainerSettings()))
    return made


def _record(play: Play, prompt: int) -> Record:
    trajectory, reward = _rollout(play)
    trajectory.facts["reward"] = reward
    profile = examine(trajectory, TrainerSettings())
    root = trajectory.root
    return Record(
        trajectory.trace_id, f"{play.step}/p{prompt}", play.step, OK, profile, uid=f"p{prompt}",
        data_source=play.source, reward=reward, facts={"reward": reward}, start_ns=root.start_ns, end_ns=root.end_ns,
    )  # fmt: skip


def _rollout(play: Play) -> tuple[Trajectory, float]:
    spans = list(_spans(play))
    entitle(spans)
    trace = f"{play.number:032x}"
    worked = play.asks and play.goes_on and play.said is None and play.answer is None and play.error is None
    reward = float(worked and play.luck.random() < play.right)
    return Trajectory(trace, "run", spans, {"step": play.step, **play.attributes}), reward


def _spans(play: Play) -> Iterator[Span]:
    at = iter(range(0, 10**12, 10**8))

    def span(role: str, parent: str | None, **given: Any) -> Span:
        start = next(at)
        known = {"status": OK, "end_ns": start + 10**7, "name": f"agent.{role}", "host": play.host, "pid": 7, **given}
        return Span(f"{play.number:08x}{start:012x}"[:16], parent, role=role, key=role, start_ns=start, **known)

    root = span("trajectory", None)
    root.end_ns = 10**9
    yield root
    if not play.asks:
        return
    messages: list[dict[str, Any]] = [{"role": "system", "content": play.system}] if play.system else []
    messages.append({"role": "user", "content": play.question})
    inputs = {**play.sampling, **({"tools": play.tools} if play.tools is not None else {})}

    def turn(reply: dict[str, Any], finish: str) -> Span:
        made = span("llm", root.span_id, inputs=inputs, attributes={"finish_reason": finish})
        made.messages = [*messages, reply]
        made.response_tokens, made.prompt_tokens = len(str(reply)) // 4, len(str(messages)) // 4
        kept = dict(reply)
        messages.append(kept)
        return made

    if play.said is not None or play.tools is None:
        yield turn({"role": "assistant", "content": play.said or "I guess: #### 12"}, play.finish)
        return
    arguments = {"query": f"inhabitants of {play.city}"} if play.arguments is None else play.arguments
    called = {"id": f"c{play.number}", "type": "function", "function": {"name": "search", "arguments": str(arguments)}}
    reply = {"role": "assistant", "content": None, "tool_calls": [called]}
    yield turn(reply | ({"reasoning_content": play.thought} if play.thought else {}), "tool_calls")
    page = f"Archive of {play.city}. It lies on a river. {play.city} has {1000 + len(play.city) * 7} inhabitants."
    answer = page if play.answer is None else play.answer
    yield span(
        "tool", root.span_id, inputs={"name": "search", "arguments": arguments}, attributes={"tool_name": "search"},
        output=None if play.error else answer, error=play.error, status="ERROR" if play.error else OK,
    )  # fmt: skip
    messages.append({"role": "tool", "content": answer if not play.error else "", "tool_call_id": called["id"]})
    if play.goes_on:
        length = play.luck.randrange(1, 5)
        yield turn(
            {"role": "assistant", "content": "So " * length + play.form.format(play.luck.randrange(1000, 9999))},
            play.finish,
        )


def sometimes(share: float, **values: Any) -> Planted:
    """Set ``values`` in this share of the rollouts."""

    def planted(play: Play) -> None:
        if play.luck.random() < share:
            for name, value in values.items():
                setattr(play, name, value)

    return planted


def says(text: str, share: float = 0.85) -> Planted:
    """The tool's answer is ``text``, with numbers and ids of this call."""

    def planted(play: Play) -> None:
        if play.luck.random() < share:
            play.answer = text.format(number=play.luck.randrange(10**6), city=play.city)

    return planted


def cut(play: Play) -> None:
    """A page that breaks off before the figure."""
    play.answer = f"Archive of {play.city}. It li"


def cached(play: Play) -> None:
    """Each step has one page for all questions."""
    city = CITIES[play.step % len(CITIES)]
    if play.city != city:
        play.answer = f"Archive of {city}. It lies on a river."


def separated(play: Play) -> None:
    """The model learns a form of numbers that the reward function does not read."""
    if play.luck.random() < 0.7:
        play.form, play.right = "#### {:,}", 0.0


def other_prompt(**values: Any) -> Planted:
    """All rollouts are asked otherwise, and the model does worse."""
    return sometimes(1.0, right=0.1, **values)


def bad_host(play: Play) -> None:
    """A second host joins, where no rollout succeeds."""
    if play.luck.random() < 0.6:
        play.host, play.right = "node-2", 0.0


DROPS = [
    Change("outage", says("Sandbox provisioning did not complete within 300s (request id {number})."), "provisioning"),
    Change("nothing", says(""), "search answers nothing"),
    Change("error page", says("<html><title>Attention required</title>Ray ID: {number}</html>"), "Attention required"),
    Change("in another language", says("\u670d\u52a1\u6682\u65f6\u4e0d\u53ef\u7528 ({number})"), "\u670d\u52a1"),
    Change("it quotes the question", says("Nothing in the index about inhabitants of {city}."), "Nothing in the index"),
    Change("no results", says('{{"results": [], "took": {number}}}'), "results"),
    Change("cut", cut, "It li"),
    Change("a cache without a key", cached, "repeats no word of the call"),
    Change("thousands", separated, 'the last answer ends with "'),
    Change("garbled", other_prompt(prefix="GrÃ¼Ã\x9fe! "), "question begins with"),
    Change("a stop string", other_prompt(sampling={"temperature": 1.0, "model": "policy", "stop": ["##"]}), "stop is"),
    Change("swallowed", sometimes(0.8, error=("KeyError", "'CHF'", "")), "KeyError"),
    Change("no tools", other_prompt(tools=None), "the request offers no tools"),
    Change("another system prompt", other_prompt(system="Answer briefly."), "the system prompt is"),
    Change("no system prompt", other_prompt(system=""), "roles user"),
    Change("the format is not asked for", other_prompt(suffix=""), "the question ends with"),
    Change("hot", other_prompt(sampling={"temperature": 2.5, "model": "policy"}), "temperature is 2.5"),
    Change("another model", other_prompt(sampling={"temperature": 1.0, "model": "base"}), "model is base"),
    Change("a call in the text", sometimes(0.7, said='<tool_call>\n{"name": "search"}'), "stays in the text"),
    Change("refuses", sometimes(0.8, said="I cannot help with that."), "the tools called are none"),
    Change("no session", sometimes(0.75, asks=False), "makes no LLM call"),
    Change("out of time", sometimes(0.75, goes_on=False), "ends"),
    Change("no arguments", sometimes(0.9, arguments={}, answer="Archive."), "search is given no arguments"),
    Change("harder data", sometimes(0.8, source="villages", right=0.1), "the data source is villages"),
    Change("a bad host", bad_host, "node-2"),
]
UNEXPLAINED = [
    Change("a stricter judge", sometimes(1.0, right=0.1), ""),
    Change("a judge that fails now and then", sometimes(0.8, right=0.0), ""),
    Change("a worse policy", sometimes(0.9, right=0.05), ""),
]
