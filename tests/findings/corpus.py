"""The scenarios without a fault, which resemble those with one, and the corpus of both."""

from __future__ import annotations

from tests.findings.outside import clean_outside, outside
from tests.findings.planted import SHORT, planted
from tests.findings.public import clean_public, public
from tests.findings.replies import (
    cached,
    endless,
    first,
    many_turns,
    resumed,
    same_words,
    single,
    talk,
    wrong,
)
from tests.findings.scenarios import Scenario, answer, call, double
from tests.findings.strange import clean_strange, strange
from tests.findings.trained import clean_trained, trained

UNUSUAL = {
    "Chinese": "\u4e24\u500d\u5c31\u662f\u4e58\u4ee5\u4e8c\uff0c\u6211\u4eec\u5148\u770b\u8fd9\u4e2a\u6570\u5b57\u3002",
    "Arabic and Hindi": "\u0627\u0644\u0636\u0639\u0641 \u0647\u0648 \u0645\u0631\u062a\u0627\u0646. "
                        "\u0926\u094b \u0917\u0941\u0928\u093e \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "code that repeats": "".join(f"    assert double({n}) == {2 * n}\n" for n in range(60)),
    "JSON": '{"name": "Ada", "steps": [' + ", ".join(f'{{"step": {n}, "value": {n * n}}}' for n in range(40)) + "]}",
    "numbers": ", ".join(str(n * n % 97) for n in range(300)),
    "a table in Markdown": "| a | b |\n|---|---|\n" + "| 1 | 0 |\n" * 70,
    "XML and the word error": "<answer><error>none</error></answer> Error: none. Traceback (most recent call): no.",
    "a refrain": "And the river runs on to the sea.\n" * 8,
}  # fmt: skip
"""Answers of kinds that resemble loops, garble and calls."""


def clean() -> list[Scenario]:
    """Those without one, which resemble them."""
    return [
        Scenario("one turn", reply=single, agent="single_turn_agent", steps=3),
        Scenario("tools", steps=3),
        Scenario("many calls", reply=lambda r, t: many_turns(r, t) if t < r.number % 4 else answer(r)),
        Scenario(
            "validation",
            reply=same_words,
            agent="single_turn_agent",
            validate=True,
            overrides=("actor_rollout_ref.rollout.val_kwargs.temperature=0",),
        ),
        Scenario(
            "asynchronous, resumed",
            reply=lambda r, t: resumed(r, t) if r.number % 2 else single(r, t),
            agent="single_turn_agent",
            client="resumes",
            steps=2,
            overrides=("trainer.v1.trainer_mode=colocate_async",),
        ),
        Scenario(
            "an exact fit",
            reply=lambda r, t: {"fill": f"Rollout {r.number} "},
            agent="single_turn_agent",
            overrides=SHORT,
        ),
        Scenario(
            "a limit of the agent's own", reply=lambda r, t: endless(r, t) if t == 0 else talk(r, t), agent="asks_short"
        ),
        Scenario("a conversation begins anew", reply=talk, agent="resets"),
        Scenario("two agents in one trajectory", reply=talk, agent="pair"),
        Scenario(
            "an end token alone", reply=lambda r, t: double(r, t) if t == 0 else {"text": ""} if t > 1 else answer(r)
        ),
        Scenario(
            "tables",
            reply=lambda r, t: {"text": "\n".join(f"| {n} | {n * r.number} | 0 |" for n in range(60))},
            agent="single_turn_agent",
            overrides=("actor_rollout_ref.rollout.response_length=2048",),
        ),
        Scenario("talks about tool calls", reply=first("A call begins with a mark and ends with one. ", single)),
        Scenario("easy and hard prompts", reply=lambda r, t: double(r, t) if t == 0 or r.question % 2 else wrong(r, t)),
        Scenario("cache and first turns", reply=cached(False)),
        Scenario("parts of content", question="{parts}", reply=single, agent="single_turn_agent"),
        Scenario(
            "a tool that ends with an error now and then",
            groups=16,
            reply=lambda r, t: first(call("double", number=9001))(r, t) if r.number == 7 else double(r, t),
        ),
        Scenario("interpreter errors are the task", reply=first(call("python", number=3))),
        Scenario(
            "short answers alike",
            reply=lambda r, t: {"text": f"#### {2 * r.question + r.sibling // 2}"},
            agent="single_turn_agent",
        ),
        *(
            Scenario(
                name,
                reply=lambda r, t, words=words: {"text": f"{r.number}. {words} {answer(r)['text']}"},
                agent="single_turn_agent",
                overrides=("actor_rollout_ref.rollout.response_length=2048",),
            )
            for name, words in UNUSUAL.items()
        ),
        Scenario("a word and no more", reply=lambda r, t: {"text": str(r.number % 3)}, agent="single_turn_agent"),
        Scenario(
            "long and short",
            reply=lambda r, t: {"text": answer(r)["text"] * (1 + 7 * (r.number % 9 == 0))},
            agent="single_turn_agent",
        ),
        Scenario("thinking kept", reply=lambda r, t: {"text": "<think>so</think>" + double(r, t)["text"]}),
    ]


def every() -> list[Scenario]:
    """All of both modes."""
    return [
        *clean(),
        *clean_trained(),
        *clean_strange(),
        *planted(),
        *trained(),
        *strange(),
        *outside(),
        *clean_outside(),
        *public(),
        *clean_public(),
    ]


def corpus(mode: str) -> list[Scenario]:
    """All of a mode, in order."""
    return [scenario for scenario in every() if mode in scenario.modes]


def first_step(place: int) -> int:
    """The first step of the scenario at ``place`` of the corpus; its others follow."""
    return 20 * place + 5
