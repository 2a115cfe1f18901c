"""Faults that people reported, in veRL's own worker and loops: they begin at a step, and the words of ``diagnose`` or
``why`` have to name them. Each has a twin, which is the same program without the fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.findings.replies import either, single, talk, tool
from tests.findings.scenarios import Reply, Rollout, Scenario, answer, call

ONE = "single_turn_agent"
PARALLEL = "actor_rollout_ref.rollout.multi_turn.max_parallel_calls"
DROPPED = frozenset({"AT-REWARD-DROPPED", "AT-NO-SIGNAL", "AT-REWARD-CONSTANT"})


def three_calls(rollout: Rollout, turn: int) -> Reply:
    """One answer asks for three calls."""
    if turn:
        return answer(rollout)
    words = "".join(call("double", number=rollout.question + more) for more in range(3))
    return {"text": f"Rollout {rollout.number} asks three times. {words}"}


def worse(rollout: Rollout, turn: int) -> Reply:
    """Wrong wherever the fault is."""
    said = talk(rollout, turn)["text"]
    return {"text": said.partition("####")[0] + f"#### -{1 + rollout.number}"}


def public() -> list[Scenario]:
    """Those with a fault, from step 2 of four on."""
    made: list[Scenario] = []

    def add(name: str, code: str, says: str, *, also: Sequence[str] = (), since: int = 2, **more: object) -> None:
        given = {"agent": "talks", "reply": either(worse, talk), "steps": 4, **more}
        made.append(Scenario(name, code, says=says, since=since, also=DROPPED | {code, *also}, **given))  # type: ignore[arg-type]

    # NeMo-Gym#2552, verl#6641, miles#2802
    add("no session", "AT-REWARD-NO-TURN", "AT-REWARD-NO-TURN", agent="gives_zero", share=0.6, by_group=True)
    # prime-rl#3474, ToRL#27
    add("a sandbox that is out", "AT-TOOL-ONE-ANSWER", "Sandbox provisioning did not", agent="tool_agent", share=0.8,
        reply=either(tool(9040), lambda r, t: tool(r.question)(r, t)), also=["AT-TOOL-ERROR-TEXT"])  # fmt: skip
    # vero#46, adk-python#6589
    add("the first call only", "AT-CALL-NOT-EXECUTED", "AT-CALL-NOT-EXECUTED.*1 of 3", agent="tool_agent",
        reply=three_calls, since=0, overrides=(f"{PARALLEL}=1",))  # fmt: skip
    # trl#3853, #3856
    add("two BOS tokens", "AT-REWARD-DROPPED", r"begins with token \d+ twice", agent="begins_twice")
    add("a system prompt that nobody trained with", "AT-REWARD-DROPPED", "the system prompt is .Answer at once",
        agent="instructs")  # fmt: skip
    add("another data source", "AT-REWARD-DROPPED", "data source is harder", source="harder")
    add("another temperature", "AT-SAMPLING-DIFFERS", "temperature", agent="heats")
    add("cut answers", "AT-TRUNCATED", "AT-TRUNCATED", agent=ONE, share=0.8,
        reply=either(lambda r, t: {"text": f"Rollout {r.number} was about to", "eos": False, "stop": "length"}, single),
        also=["AT-NO-SIGNAL-TRUNCATED"])  # fmt: skip
    return made


def clean_public() -> list[Scenario]:
    """The twins. All calls of an answer are made where a fault leaves some out."""
    return [
        replace(
            one, name=f"{one.name}, without", code="", says="", also=frozenset(),
            overrides=[override.replace(f"{PARALLEL}=1", f"{PARALLEL}=3") for override in one.overrides],
        )
        for one in public()
    ]  # fmt: skip
