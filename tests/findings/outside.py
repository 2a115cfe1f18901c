"""What somebody tried who did not know the detectors: faults that were missed, clean runs that were not left alone."""

from __future__ import annotations

import random

from tests.findings.replies import either, single, talk, thinking, tool
from tests.findings.scenarios import Reply, Rollout, Scenario, answer, double

FAINT = 0.03
LATER = {
    "a fence": '```json\n{"name": "double", "arguments": {"number": 3}}\n```',
    "Llama's JSON": '{"name": "double", "parameters": {"number": 3}}',
    "brackets": "[double(number=3)]",
    "ReAct's": "Action: double\nAction Input: 3\nObservation:",
    "a list's": '<TOOLCALL>[{"name": "double", "arguments": {"number": 3}}]</TOOLCALL>',
    "an escaped one": '&lt;tool_call&gt;{"name": "double", "arguments": {"number": 3}}&lt;/tool_call&gt;',
    "DeepSeek's": "<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>double",
}
"""Calls in other formats, behind words and in a turn after one whose call was read."""
PARAGRAPH = "Let us look at it from the other side: twice a number is the number and itself, which we know by now. "
SENTENCES = ("Wait. ", "Hmm, no. ", "Check it. ")


def later(words: str) -> Reply:
    """A call that is read, then one that is not."""
    return either(lambda r, t: {"text": f"Rollout {r.number} goes on.\n{words}"} if t else double(r, t))


def over_and_over(rollout: Rollout, turn: int) -> Reply:
    """A long paragraph, for ever."""
    return {"text": f"Rollout {rollout.number} " + PARAGRAPH * 40}


def in_other_orders(rollout: Rollout, turn: int) -> Reply:
    """The same three sentences, for ever."""
    chosen = random.Random(rollout.number).choices(SENTENCES, k=600)
    return {"text": f"Rollout {rollout.number} " + "".join(chosen)}


def garbled_first(rollout: Rollout, turn: int) -> Reply:
    """Bytes that are no text, in the first of three turns."""
    return talk(rollout, turn) if turn else {"ids": [200 - rollout.number % 7, 150, 130] * 20}


def flat(rollout: Rollout, turn: int) -> Reply:
    """Of eight groups four are all right, three all wrong: few as they are, that is chance."""
    if rollout.question == 7:
        return answer(rollout)
    said = 2 * rollout.question if rollout.question < 4 else -1
    return {"text": f"Rollout {rollout.number} says #### {said}"}


def outside() -> list[Scenario]:
    """Those with a fault."""
    made = [
        Scenario(f"{name} in a later turn", "AT-CALL-NOT-PARSED", reply=later(words), turn=2, share=FAINT)
        for name, words in LATER.items()
    ]
    made += [
        Scenario(f"error text {number}", "AT-TOOL-ERROR-TEXT", reply=either(tool(number)), turn=1, share=FAINT)
        for number in (9019, 9032)
    ]
    made += [
        Scenario(f"one answer {number}", "AT-TOOL-ONE-ANSWER", reply=either(tool(number)), share=0.4)
        for number in (9014, 9015, 9016, 9017, 9018, 9025, 9033, 9034)
    ]
    cut = frozenset({"AT-TRUNCATED-RESPONSE", "AT-TRUNCATED-CONTEXT", "AT-NO-SIGNAL-TRUNCATED", "AT-NO-SIGNAL"})
    one = "single_turn_agent"
    return [
        *made,
        Scenario("arguments that a schema refuses", "AT-TOOL-ARGUMENTS", reply=either(tool(9024)), turn=1, share=FAINT),
        Scenario("a deadline", "AT-TOOL-TIMEOUT", reply=either(tool(9007)), turn=1, share=FAINT),
        Scenario("the oldest exchange left out", "AT-RETOKENIZED", reply=talk, agent="slides", turn=3, token="fork",
                 share=FAINT),
        Scenario("the time of day", "AT-RETOKENIZED", reply=talk, agent="dates", turn=2, token="fork", share=FAINT,
                 question="It is 10:41. What is twice the number {number}? [{name}]"),
        Scenario("one answer mended", "AT-RESPONSE-CHANGED", reply=talk, agent="mends", turn=3, share=FAINT),
        Scenario("a paragraph over and over", "AT-REPETITION", reply=either(over_and_over, single), agent=one, turn=1,
                 share=FAINT, also=cut),
        Scenario("sentences in other orders", "AT-REPETITION", reply=either(in_other_orders, single), agent=one, turn=1,
                 share=FAINT, also=cut),
        Scenario("garble in the first turn", "AT-GARBLED", reply=either(garbled_first, talk), agent="talks", turn=1,
                 share=FAINT),
    ]  # fmt: skip


def clean_outside() -> list[Scenario]:
    """Those without one."""
    return [
        Scenario("each turn a sample of its own", reply=thinking, agent="samples", modes=("v1",)),
        Scenario("few groups, flat by chance", reply=flat, agent="single_turn_agent", groups=8),
        Scenario("a page about a service", reply=tool(9026)),
        Scenario("a number like a status", reply=tool(9031)),
        Scenario("commits about errors", reply=tool(9035)),
    ]
