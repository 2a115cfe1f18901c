"""The scenarios without a fault, which resemble those with one, and the corpus of both."""

from __future__ import annotations

from tests.findings.planted import SHORT, planted
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
        Scenario("thinking kept", reply=lambda r, t: {"text": "<think>so</think>" + double(r, t)["text"]}),
    ]


def corpus(mode: str) -> list[Scenario]:
    """All of a mode, in order."""
    return [scenario for scenario in [*clean(), *planted()] if mode in scenario.modes]


def first_step(place: int) -> int:
    """The first step of the scenario at ``place`` of the corpus; its others follow."""
    return 10 * place + 5
