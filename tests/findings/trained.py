"""Scenarios that are trained on, by veRL's own functions: what the engine and the trainer compute of the same tokens,
what becomes of rewards and rows, and what the trainer does to its users unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.findings import replies
from tests.findings.policy import Policy
from tests.findings.replies import either, first, last, resumed
from tests.findings.scenarios import Reply, Rollout, Scenario, Training, answer, double

FAINT = 0.03
BF16 = Policy(noise=0.01)
"""What two computations of one dense model differ by."""
WORDS = ("apple", "river", "stone", "cloud", "paper", "green", "light", "seven", "tiger", "ocean", "maple", "frost")


def told(length: int) -> Any:
    """A story of so many words in one turn, each rollout's its own."""

    def said(rollout: Rollout, turn: int) -> Reply:
        words = (WORDS[(rollout.number * 7 + n * n + n // 5) % len(WORDS)] for n in range(length))
        return {"text": f"Rollout {rollout.number} tells: {' '.join(words)}. {answer(rollout)['text']}"}

    return said


def varied(said: Any) -> Any:
    """Answers whose lengths differ, as those of models do."""

    def longer(rollout: Rollout, turn: int) -> Reply:
        reply = said(rollout, turn)
        more = WORDS[: (rollout.number * 5 + turn) % len(WORDS)]
        return {**reply, "text": " ".join([reply["text"], *more])}

    return longer


single, talk = varied(replies.single), varied(replies.talk)


def tools(rollout: Rollout, turn: int) -> Reply:
    """A call, and an answer."""
    return double(rollout, turn) if turn == 0 else single(rollout, turn)


def even(rollout: Rollout, turn: int) -> Reply:
    """Answers of one length, but for a few."""
    return {"text": f"Rollout {rollout.number:04d} {answer(rollout)['text']:.<32}"[: 44 - rollout.number // 33]}


def sure(rollout: Rollout) -> Reply:
    """Right in every rollout."""
    return {"text": f"Rollout {rollout.number} is sure #### {2 * rollout.question}"}


def both(trainer: Policy, usual: Policy = BF16) -> Callable[[Rollout], Policy]:
    """``trainer`` for those that have the fault."""
    return lambda rollout: trainer if rollout.planted else usual


def without(planted: Sequence[bool]) -> list[list[int]]:
    """One update, without those that have the fault."""
    return [[row for row, is_planted in enumerate(planted) if not is_planted]]


def twice(planted: Sequence[bool]) -> list[list[int]]:
    """All of them, and those that have the fault once more."""
    return [list(range(len(planted))), [row for row, is_planted in enumerate(planted) if is_planted]]


def trained() -> list[Scenario]:
    """Those with a fault."""
    made: list[Scenario] = []

    def add(name: str, code: str, training: Training, *, shares: Sequence[float] = (1.0,), **more: Any) -> None:
        for share in shares:
            label = "" if len(shares) == 1 else " faint" if share <= 0.1 else " some" if share < 1 else " all"
            given = {"reply": single, "agent": "single_turn_agent", **more}
            made.append(Scenario(name + label, code, share=share, training=training, **given))

    clip = frozenset({"AT-TRUNCATED-CONTEXT", "AT-NO-SIGNAL-TRUNCATED", "AT-NO-SIGNAL"})
    everywhere: dict[str, Any] = {"also": frozenset({"AT-MISMATCH-GROWS"})}
    # trl#6789: the engine in another precision, older weights, another temperature
    add("engine in fp8", "AT-MISMATCH", Training(lambda r: Policy(noise=0.5)), turn=1, **everywhere)
    add("engine in fp8, tools", "AT-MISMATCH", Training(lambda r: Policy(noise=0.5)), reply=tools, agent="tool_agent",
        **everywhere)  # fmt: skip
    add("weights that do not arrive", "AT-MISMATCH", Training(engine=lambda r, t: Policy(noise=1.0, seed=7)),
        **everywhere)  # fmt: skip
    add("half of the replicas are old", "AT-MISMATCH",
        Training(engine=lambda r, t: Policy(noise=1.5 * r.planted, seed=7)), shares=(0.5,), **everywhere)  # fmt: skip
    add("the trainer's temperature", "AT-MISMATCH", Training(lambda r: Policy(temperature=0.6)), **everywhere)
    add("the trainer's temperature, higher", "AT-MISMATCH", Training(lambda r: Policy(temperature=1.6)), **everywhere)
    add("raw log-probabilities", "AT-MISMATCH", Training(raw=True), **everywhere,
        overrides=("actor_rollout_ref.rollout.temperature=0.6",))  # fmt: skip
    add("top_p, trained", "AT-SAMPLING-BIASED", Training(engine=lambda r, t: Policy(top_p=0.6)), turn=1,
        overrides=("actor_rollout_ref.rollout.top_p=0.6",),
        also=frozenset({"AT-MISMATCH", "AT-MISMATCH-GROWS"}))  # fmt: skip
    add("another model for some", "AT-MISMATCH-TRAJECTORY", Training(both(Policy(noise=3.0))), shares=(FAINT, 0.12),
        turn=1)  # fmt: skip
    add("log-probabilities of the token before", "AT-MISMATCH-TRAJECTORY", Training(both(BF16), shifts=True),
        shares=(FAINT, 0.12), reply=varied(told(12)), turn=1)  # fmt: skip
    add("one rollout's temperature", "AT-SAMPLING-DIFFERS", Training(both(BF16)), shares=(FAINT, 0.12), reply=talk,
        agent="cools", turn=2, also=frozenset({"AT-MISMATCH-TRAJECTORY", "AT-MISMATCH"}))  # fmt: skip
    add("grows with length", "AT-MISMATCH-GROWS", Training(both(Policy(grows=0.07, after=180))), shares=(0.5, 1.0),
        reply=varied(told(60)), also=frozenset({"AT-MISMATCH", "AT-MISMATCH-TRAJECTORY"}), turn=1)  # fmt: skip
    add("a cache of old weights", "AT-MISMATCH-GROWS", Training(lambda r: Policy(noise=0.5, after=220)), reply=talk,
        agent="talks", also=frozenset({"AT-MISMATCH"}), turn=3)  # fmt: skip
    add("a log-probability that is none", "AT-LOGPROB-INVALID", Training(both(BF16), invalid=True),
        shares=(FAINT, 1.0), also=frozenset({"AT-MISMATCH-TRAJECTORY"}))  # fmt: skip
    # rows and rewards
    add("a reward turned over", "AT-ADVANTAGE-WRONG", Training(both(BF16), score=lambda score: 1 - score),
        shares=(FAINT, 0.12), also=frozenset({"AT-REWARD-MISMATCHED"}))  # fmt: skip
    add("the trainer's own score", "AT-REWARD-MISMATCHED", Training(both(BF16), score=lambda score: score + 0.25),
        shares=(FAINT, 0.5), modes=("v0",), also=frozenset({"AT-ADVANTAGE-WRONG"}))  # fmt: skip
    add("rows left out", "AT-NOT-TRAINED", Training(both(BF16), updates=without), shares=(FAINT, 0.3))
    add("rows trained twice", "AT-TRAINED-TWICE", Training(both(BF16), updates=twice), shares=(FAINT, 0.3))
    # the trainer's own
    add("a NaN reward, trained", "AT-ADVANTAGE-NAN", Training(both(BF16)), reply=either(last(text="@nan"), tools),
        agent="tool_agent", shares=(FAINT,), also=frozenset({"AT-REWARD-NAN"}))  # fmt: skip
    add("a single rollout is left", "AT-GROUP-OF-ONE", Training(both(BF16)), modes=("v1",), by_group=True,
        shares=(0.12,), agent="raises",
        reply=lambda r, t: (first("@raise in the loop") if r.planted and r.sibling else talk)(r, t),
        also=frozenset({"AT-ROLLOUT-FAILED", "AT-GROUP-INCOMPLETE", "AT-REWARD-MISSING"}))  # fmt: skip
    add("equal rewards", "AT-ADVANTAGE-NOISE", Training(both(BF16)),
        reply=either(varied(lambda r, t: {"text": f"Rollout {r.number} @constant"}), single),
        by_group=True, shares=(0.12, 1.0), n=8, also=frozenset({"AT-NO-SIGNAL", "AT-REWARD-CONSTANT"}))  # fmt: skip
    add("cut, and clip_ratio 0", "AT-CLIP-RATIO", Training(both(BF16)), reply=either(told(400), single),
        modes=("v0",), shares=(0.3, 1.0), also=clip,
        overrides=("actor_rollout_ref.rollout.max_model_len=500",))  # fmt: skip
    add("clip_ratio of answers that are alike", "AT-CLIP-RATIO", Training(both(BF16)), modes=("v1",), reply=even)
    add("rows that fill the batch", "AT-METRICS-PADDED", Training(both(BF16), padding=4), modes=("v1",))
    add("one row that fills the batch", "AT-METRICS-PADDED", Training(both(BF16), padding=1), modes=("v1",))
    return made


def clean_trained() -> list[Scenario]:
    """Those without one, which resemble them."""
    return [
        Scenario("bf16", reply=single, agent="single_turn_agent", training=Training(both(BF16)), steps=3),
        Scenario("bf16 and tools", reply=tools, training=Training(both(BF16))),
        Scenario(
            "bf16 and long answers",
            reply=varied(told(60)),
            agent="single_turn_agent",
            training=Training(both(BF16)),
        ),
        Scenario("bf16 and three turns", reply=talk, agent="talks", training=Training(both(BF16))),
        Scenario(
            "experts chosen otherwise now and then",
            reply=varied(told(40)),
            agent="single_turn_agent",
            training=Training(lambda r: Policy(noise=0.015, odd=0.01)),
        ),
        Scenario(
            "bypass mode",
            reply=single,
            agent="single_turn_agent",
            training=Training(lambda r: Policy(noise=1.0)),
            overrides=("algorithm.rollout_correction.bypass_mode=True",),
        ),
        Scenario(
            "asynchronous, older weights",
            reply=lambda r, t: resumed(r, t) if r.number % 2 else single(r, t),
            agent="single_turn_agent",
            client="resumes",
            training=Training(lambda r: Policy(noise=0.6)),
            weights=lambda step: step - 2,
            overrides=("trainer.v1.trainer_mode=colocate_async",),
        ),
        Scenario(
            "a row that fills a large batch", reply=single, agent="single_turn_agent", groups=32, modes=("v1",),
            training=Training(both(BF16), padding=1),
        ),
        Scenario(
            "all right in some groups, trained",
            reply=lambda r, t: varied(lambda r, t: sure(r))(r, t) if r.question % 3 == 0 else single(r, t),
            agent="single_turn_agent",
            training=Training(both(BF16)),
        ),
        Scenario(
            "sampled at another temperature, and trained so",
            reply=single,
            agent="single_turn_agent",
            training=Training(both(BF16)),
            overrides=("actor_rollout_ref.rollout.temperature=0.6",),
        ),
    ]  # fmt: skip
