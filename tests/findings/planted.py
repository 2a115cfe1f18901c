"""The scenarios with a fault. Those of public issues are named beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.findings.replies import (
    again,
    cached,
    cut_later,
    either,
    endless,
    first,
    last,
    looping,
    many_turns,
    resumed,
    same_words,
    single,
    spaced,
    talk,
    thinking,
    tool,
    wrong,
    wrong_and_cut,
)
from tests.findings.scenarios import Scenario, answer, call, double

FAINT = 0.03
PADDING = " because twice a number is that number added to itself, which I have done with care and checked again."
SHORT = ("actor_rollout_ref.rollout.response_length=300",)
_TRUNCATION = frozenset({"AT-REPETITION", "AT-NO-SIGNAL-TRUNCATED", "AT-NO-SIGNAL"})


def planted() -> list[Scenario]:
    """Those with a fault."""
    made: list[Scenario] = []

    def add(name: str, code: str, *, shares: Sequence[float] = (FAINT, 1.0), **more: Any) -> None:
        for share in shares:
            label = "" if len(shares) == 1 else " faint" if share <= 0.1 else " some" if share < 1 else " all"
            made.append(Scenario(name + label, code, share=share, **more))

    # tokens: verl#6719, trl#5224, NeMo-Gym#1787, rllm#272
    add("answers stripped", "AT-RETOKENIZED", reply=either(spaced, talk), agent="renders", turn=2, token="fork")
    add("thinking dropped", "AT-THINKING-STRIPPED", reply=either(thinking, talk), agent="renders", turn=2, token="fork")
    add("tool text shortened", "AT-RETOKENIZED", reply=talk, agent="shortens", turn=3, token="fork")
    add("answers rewritten", "AT-RETOKENIZED", reply=talk, agent="rewrites", turn=2, token="fork")
    add("mask over tools", "AT-MASK-TOOL-TOKENS", reply=talk, agent="masks_all", turn=1)
    add("mask of zeros", "AT-MASK-EMPTY", reply=talk, agent="masks_none")
    add("mask shifted", "AT-MASK-INVALID", reply=talk, agent="masks_shifted", turn=1)
    add("no end token", "AT-NO-EOS", reply=either(last(eos=False)), turn=2)
    add(
        "no end token, one turn",
        "AT-NO-EOS",
        reply=either(lambda r, t: {**answer(r), "eos": False}, single),
        agent="single_turn_agent",
        turn=1,
        shares=(FAINT, 0.5),
    )
    add("prompt cut", "AT-PROMPT-CUT", question="{long}", turn=1, by_group=True, shares=(0.12, 1.0))
    # learning signal: trl#3452, verl#5228
    add("all wrong", "AT-NO-SIGNAL", reply=wrong, shares=(1.0,))
    add(
        "one reward",
        "AT-REWARD-CONSTANT",
        reply=either(last(text="@constant")),
        shares=(1.0,),
        groups=16,
        also=frozenset({"AT-NO-SIGNAL"}),
    )
    add(
        "groups cut",
        "AT-NO-SIGNAL-TRUNCATED",
        reply=either(wrong_and_cut),
        overrides=SHORT,
        by_group=True,
        shares=(0.4,),
        also=frozenset({"AT-TRUNCATED-RESPONSE"}),
    )
    add(
        "groups with failing tools",
        "AT-NO-SIGNAL-ERRORS",
        by_group=True,
        shares=(0.4,),
        reply=either(
            lambda r, t: {"text": f"Rollout {r.number}. " + call("double", number=9001)} if t == 0 else wrong(r, 1)
        ),
        also=frozenset({"AT-TOOL-RAISES"}),
    )
    add(
        "groups alike",
        "AT-DUPLICATE-ROLLOUTS",
        reply=either(same_words, single),
        agent="single_turn_agent",
        by_group=True,
        shares=(0.12, 1.0),
        also=frozenset({"AT-NO-SIGNAL"}),
    )
    add(
        "sessions that fail",
        "AT-GROUP-INCOMPLETE",
        reply=either(first("@raise in the loop"), talk),
        agent="raises",
        modes=("v1",),
        shares=(FAINT, 0.2),
        also=frozenset({"AT-ROLLOUT-FAILED", "AT-GROUP-OF-ONE", "AT-REWARD-MISSING", "AT-NO-SIGNAL"}),
    )
    add(
        "agent raises",
        "AT-ROLLOUT-FAILED",
        reply=either(first("@raise in the loop"), talk),
        agent="raises",
        modes=("v1",),
        also=frozenset({"AT-GROUP-INCOMPLETE", "AT-GROUP-OF-ONE", "AT-REWARD-MISSING"}),
        turn=1,
    )
    add("reward NaN", "AT-REWARD-NAN", reply=either(last(text="@nan")), also=frozenset({"AT-REWARD-CONSTANT"}))
    add(
        "reward raises",
        "AT-REWARD-RAISES",
        reply=either(last(text="@raise")),
        modes=("v1",),
        also=frozenset({"AT-GROUP-INCOMPLETE", "AT-GROUP-OF-ONE", "AT-ROLLOUT-FAILED", "AT-REWARD-MISSING"}),
    )
    add(
        "reward times out",
        "AT-REWARD-TIMEOUT",
        reply=either(last(text="@timeout")),
        modes=("v1",),
        also=frozenset({"AT-GROUP-INCOMPLETE", "AT-GROUP-OF-ONE", "AT-ROLLOUT-FAILED", "AT-REWARD-MISSING"}),
    )
    add("another's answer returned", "AT-RESPONSE-CHANGED", reply=talk, agent="swaps", shares=(FAINT, 0.5), turn=1)
    add(
        "another's ground truth",
        "AT-REWARD-MISMATCHED",
        reply=single,
        agent="single_turn_agent",
        misjudged="another",
        shares=(FAINT, 0.5),
    )
    # Liuziyu77/Visual-RFT#176: empty tags are paid
    add(
        "paid for the form",
        "AT-FORMAT-GAMED",
        reply=either(lambda r, t: {"text": "@form"}, lambda r, t: {"text": answer(r)["text"] + PADDING}),
        agent="single_turn_agent",
        shares=(0.1, 0.3),
        also=frozenset({"AT-NO-SIGNAL"}),
    )
    # endings: verl#7823
    add(
        "cut at the context",
        "AT-TRUNCATED-CONTEXT",
        reply=either(endless, single),
        agent="single_turn_agent",
        overrides=("actor_rollout_ref.rollout.max_model_len=700",),
        turn=1,
        token="end",
        also=_TRUNCATION,
    )
    add(
        "cut at the context, later",
        "AT-TRUNCATED-CONTEXT",
        reply=either(cut_later),
        turn=2,
        token="end",
        overrides=("actor_rollout_ref.rollout.max_model_len=1100",),
        also=_TRUNCATION,
    )
    add(
        "cut at the response",
        "AT-TRUNCATED-RESPONSE",
        reply=either(endless, single),
        agent="single_turn_agent",
        overrides=SHORT,
        turn=1,
        token="end",
        also=_TRUNCATION,
    )
    add(
        "cut over the turns",
        "AT-TRUNCATED-RESPONSE",
        reply=either(cut_later),
        overrides=SHORT,
        turn=2,
        also=_TRUNCATION,
    )
    add(
        "tool's answer too long",
        "AT-TRUNCATED-TOOL",
        reply=either(tool(9004)),
        overrides=SHORT,
        turn=1,
        also=_TRUNCATION,
    )
    add(
        "out of turns",
        "AT-TURN-LIMIT",
        reply=either(many_turns),
        turn=3,
        overrides=("actor_rollout_ref.rollout.multi_turn.max_assistant_turns=3",),
        also=frozenset({"AT-NO-SIGNAL"}),
    )
    add(
        "aborted",
        "AT-ABORTED",
        reply=either(lambda r, t: {"ids": [], "stop": "aborted"}, single),
        agent="single_turn_agent",
        turn=1,
        shares=(FAINT,),
        breaks=True,
        modes=("v0",),
    )
    add("aborted in the middle", "AT-ABORTED", reply=either(last(stop="aborted", eos=False)), turn=2)
    add(
        "empty answer, one turn",
        "AT-EMPTY-ANSWER",
        reply=either(lambda r, t: {"ids": []}, single),
        turn=1,
        token="end",
        agent="single_turn_agent",
        shares=(FAINT,),
        breaks=True,
        modes=("v0",),
    )
    add(
        "empty later answer",
        "AT-EMPTY-ANSWER",
        reply=either(lambda r, t: {"ids": []} if t else double(r, t)),
        turn=2,
        token="end",
        shares=(FAINT, 0.5),
    )
    add(
        "empty first answer",
        "AT-PROMPT-TRAINED",
        reply=either(lambda r, t: {"ids": []}),
        turn=1,
        shares=(FAINT,),
        breaks=True,
        modes=("v0",),
        also=frozenset({"AT-EMPTY-ANSWER"}),
    )
    add(
        "empty first answer",
        "AT-EMPTY-ANSWER",
        reply=either(lambda r, t: {"ids": []}),
        turn=1,
        shares=(FAINT,),
        modes=("v1",),
        also=frozenset({"AT-ROLLOUT-FAILED", "AT-GROUP-INCOMPLETE", "AT-REWARD-MISSING"}),
    )
    # the engine against the trainer: trl#7269, slime#1800
    add("temperature changed", "AT-SAMPLING-DIFFERS", reply=talk, agent="cools", turn=2)
    add("top_p in training", "AT-SAMPLING-BIASED", overrides=("actor_rollout_ref.rollout.top_p=0.8",), shares=(1.0,))
    add(
        "resumed with new weights",
        "AT-WEIGHTS-MIXED",
        reply=either(resumed, single),
        agent="single_turn_agent",
        client="resumes",
    )
    add("old weights", "AT-WEIGHTS-STALE", weights=lambda step: step - 4, shares=(1.0,))
    add("weights that stay", "AT-WEIGHTS-STUCK", weights=lambda step: 4711, steps=3, shares=(1.0,))
    # tools: verl#6978
    add("tool raises", "AT-TOOL-RAISES", reply=either(tool(9001)), turn=1)
    add("tool times out", "AT-TOOL-TIMEOUT", reply=either(tool(9002)), turn=1)
    add("error as a result", "AT-TOOL-ERROR-TEXT", reply=either(tool(9003)), turn=1)
    add("unknown tool", "AT-TOOL-UNKNOWN", reply=either(first(call("treble", number=1))), turn=1)
    add("missing argument", "AT-TOOL-ARGUMENTS", reply=either(first(call("double"))), turn=1)
    add(
        "broken JSON",
        "AT-CALL-NOT-PARSED",
        turn=1,
        reply=either(first('<tool_call>{"name": "double", "arguments": {"number": 2, </tool_call>')),
        also=frozenset({"AT-NO-SIGNAL"}),
    )
    add(
        "no end mark",
        "AT-CALL-NOT-PARSED",
        reply=either(first('<tool_call>{"name": "double", "arguments": {}}')),
        turn=1,
        also=frozenset({"AT-NO-SIGNAL"}),
    )
    # calls in another format than the parser's: NousResearch/hermes-agent#107125 (bare JSON), #15453 (DeepSeek's)
    for name, words in (
        ("Llama", '{"name": "double", "parameters": {"number": 2}}'),
        ("Mistral", '[TOOL_CALLS] [{"name": "double", "arguments": {"number": 2}}]'),
        (
            "DeepSeek",
            "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function double {}",
        ),
    ):
        add(
            f"{name}'s format",
            "AT-CALL-NOT-PARSED",
            turn=1,
            reply=either(lambda r, t, words=words: {"text": words}),
            shares=(FAINT,),
            also=frozenset({"AT-NO-SIGNAL"}),
        )
    add("the same call again", "AT-CALL-REPEATED", reply=either(again), turn=2)
    # time: verl#3114, verifiers#1680
    add(
        "slow tool",
        "AT-STRAGGLER",
        reply=either(tool(9005)),
        shares=(FAINT,),
        also=frozenset({"AT-TOOL-SLOW"}),
    )
    add("slow engine", "AT-STRAGGLER", reply=either(last(slow=2)), shares=(FAINT,))
    add("cache lost", "AT-CACHE-LOST", reply=cached(True), turn=2, shares=(0.1, 0.9))
    # text: verl#3149, Search-R1#162
    add(
        "repetition",
        "AT-REPETITION",
        reply=either(looping, single),
        agent="single_turn_agent",
        overrides=SHORT,
        turn=1,
        also=frozenset({"AT-TRUNCATED-RESPONSE", "AT-NO-SIGNAL-TRUNCATED", "AT-NO-SIGNAL"}),
    )
    add(
        "garble",
        "AT-GARBLED",
        reply=either(lambda r, t: {"ids": [200 - r.number % 7, 150 + r.number % 5, 130] * 20}, single),
        turn=1,
        agent="single_turn_agent",
        also=frozenset({"AT-NO-EOS", "AT-REPETITION", "AT-NO-SIGNAL"}),
    )
    return made
