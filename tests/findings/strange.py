"""Faults and clean runs of other shapes: other chat templates, other formats of calls, late in a run, in validation, of
groups of other sizes; and the findings that the other scenarios have none of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.findings.replies import either, first, last, same_words, single, spaced, talk, thinking, tool, wrong
from tests.findings.scenarios import Reply, Rollout, Scenario, answer, call, double
from tests.findings.templates import TEMPLATES

FAINT = 0.03
LOST = frozenset({"AT-GROUP-INCOMPLETE", "AT-GROUP-OF-ONE", "AT-REWARD-MISSING"})
FORMATS = {
    "Qwen coder's": "<function=double>\n<parameter=number>\n2\n</parameter>\n</function>",
    "Llama 4's": "[double(number=2)]",
    "Llama's Python": "<|python_tag|>double.call(number=2)",
    "ReAct's": "Thought: I need twice the number.\nAction: double\nAction Input: 2",
    "Gemma's": "```tool_code\nprint(double(number=2))\n```",
    "gpt-oss's": '<|channel|>commentary to=functions.double <|constrain|>json<|message|>{"number": 2}',
    "Kimi's": '<|tool_call_begin|>functions.double:0<|tool_call_argument_begin|>{"number": 2}',
    "MiniMax's": '<minimax:tool_call>\n<invoke name="double">',
}
"""Calls that Hermes' parser does not read (panbanda/higgs#177, NousResearch/hermes-agent#83023)."""

HANGS = Scenario("a tool that hangs", "AT-HUNG", reply=either(tool(9006)), share=FAINT, turn=1)
KILLED = Scenario("killed in a tool", "AT-INTERRUPTED", turn=1, also=LOST)
"""Of the same process: see ``hangs``."""


def poll(rollout: Rollout, turn: int) -> Reply:
    """Three calls whose answers differ, then the answer."""
    return {"text": call("double", number=9030)} if 0 < turn < 4 else double(rollout, turn)


def strange() -> list[Scenario]:
    """Those with a fault."""
    made: list[Scenario] = []

    def add(name: str, code: str, *, shares: Sequence[float] = (FAINT,), **more: Any) -> None:
        for share in shares:
            label = "" if len(shares) == 1 else " faint" if share <= 0.1 else " some" if share < 1 else " all"
            made.append(Scenario(name + label, code, share=share, **more))

    for name in TEMPLATES:
        on: dict[str, Any] = {"template": name}
        add(f"{name}: answers stripped", "AT-RETOKENIZED", reply=either(spaced, talk), agent="renders", turn=2,
            token="fork", **on)  # fmt: skip
        add(f"{name}: thinking dropped", "AT-THINKING-STRIPPED", reply=either(thinking, talk), agent="renders", turn=2,
            token="fork", **on)  # fmt: skip
        add(f"{name}: mask over tools", "AT-MASK-TOOL-TOKENS", reply=talk, agent="masks_all", turn=1, **on)
        add(f"{name}: no end token", "AT-NO-EOS", reply=either(lambda r, t: {**answer(r), "eos": False}, single),
            agent="single_turn_agent", turn=1, **on)  # fmt: skip
    for name, words in FORMATS.items():
        add(f"{name} format", "AT-CALL-NOT-PARSED", reply=either(lambda r, t, words=words: {"text": words}), turn=1,
            also=frozenset({"AT-NO-SIGNAL"}))  # fmt: skip
    for number in (9010, 9011, 9012, 9013):
        add(f"error text {chr(number - 9010 + 97)}", "AT-TOOL-ERROR-TEXT", reply=either(tool(number)), turn=1)
    # late in the run, and in validation
    late: dict[str, Any] = {"steps": 8, "only_step": 6, "groups": 4}
    add("late: answers stripped", "AT-RETOKENIZED", reply=either(spaced, talk), agent="renders", turn=2, shares=(0.1,),
        token="fork", **late)  # fmt: skip
    add("late: tool raises", "AT-TOOL-RAISES", reply=either(tool(9001)), turn=1, shares=(0.1,), **late)
    add("late: all wrong", "AT-NO-SIGNAL", shares=(1.0,), **late,
        reply=either(wrong, double))  # fmt: skip
    add("validation: cut", "AT-TRUNCATED-CONTEXT", validate=True, groups=36, turn=1, token="end",
        agent="single_turn_agent",
        reply=either(lambda r, t: {"text": f"Rollout {r.number} " + " ".join(map(str, range(r.number, 900)))}, single),
        overrides=("actor_rollout_ref.rollout.max_model_len=700",))  # fmt: skip
    add("validation: tool raises", "AT-TOOL-RAISES", validate=True, groups=36, turn=1, reply=either(tool(9001)))
    add("groups of sixteen: alike", "AT-DUPLICATE-ROLLOUTS", n=16, groups=3, by_group=True, shares=(0.3,), turn=1,
        agent="single_turn_agent", also=frozenset({"AT-NO-SIGNAL"}),
        reply=either(same_words, single))  # fmt: skip
    # the findings of which there is no other scenario
    add(
        "gives up", "AT-TIMEOUT", reply=either(first("@late"), talk), agent="gives_up", modes=("v1",), turn=1, also=LOST
    )
    add("cut at a limit that nobody names", "AT-TRUNCATED", turn=1, agent="single_turn_agent", shares=(FAINT, 0.5),
        reply=either(lambda r, t: {"text": f"Rollout {r.number} was about to", "eos": False, "stop": "length"}, single),
        also=frozenset({"AT-NO-SIGNAL"}))  # fmt: skip
    add("preempted", "AT-PREEMPTED", turn=1, agent="single_turn_agent", shares=(0.1, 0.5),
        reply=either(lambda r, t: {**answer(r), "preempted": 2}, single))  # fmt: skip
    add("no reward for some", "AT-REWARD-MISSING", reply=single, agent="single_turn_agent", misjudged="not at all",
        modes=("v0",), shares=(FAINT, 0.3), breaks=True, also=frozenset({"AT-NO-SIGNAL"}))  # fmt: skip
    add("a step that waits for many", "AT-STEP-IDLE", reply=either(last(slow=21)), modes=("v0",), shares=(0.25,))
    add("one slow call", "AT-TOOL-SLOW", reply=either(tool(9005)))
    return made


def clean_strange() -> list[Scenario]:
    """Those without one."""
    shapes = [
        Scenario(f"{name}: three turns", reply=talk, agent="talks", template=name) for name in TEMPLATES
    ] + [
        Scenario(f"{name}: rendered anew", reply=talk, agent="renders", template=name) for name in TEMPLATES
    ]  # fmt: skip
    words = {
        "a link in brackets": "See [the table](https://example.org/a=1) and [1].",
        "prose about actions": "The action: think. Then the action input is the number itself.",
        "code in fences": "```python\ndouble(number=2)\n```",
        "a JSON object that is the answer": '{"name": "Ada", "result": 4}',
    }
    shapes += [
        Scenario(name, reply=lambda r, t, said=said: {"text": f"Rollout {r.number}. {said} {answer(r)['text']}"}
                 if t else double(r, t)) for name, said in words.items()
    ]  # fmt: skip
    shapes += [
        Scenario("a tool that finds nothing", reply=tool(9020)),
        Scenario("a tool that says nothing", reply=tool(9021)),
        Scenario("a page about errors", reply=tool(9022)),
        Scenario("a tool that is asked until it is done", reply=poll),
        Scenario("groups of one", reply=single, agent="single_turn_agent", n=1, groups=24),
        Scenario("groups of sixteen", reply=single, agent="single_turn_agent", n=16, groups=4),
        Scenario("ten steps", reply=single, agent="single_turn_agent", steps=10, groups=3),
        Scenario("validation with tools", validate=True, groups=24),
    ]
    return shapes
