"""What the scripted engine of the corpus says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.findings.scenarios import Reply, Rollout, answer, call, double


def either(planted: Callable[[Rollout, int], Reply], usual: Callable[[Rollout, int], Reply] = double) -> Any:
    """``planted`` for those that have the fault, ``usual`` for the others."""
    return lambda rollout, turn: (planted if rollout.planted else usual)(rollout, turn)


def first(text: str, then: Callable[[Rollout, int], Reply] = double) -> Any:
    """``text`` in the first turn."""
    return lambda rollout, turn: {"text": f"Rollout {rollout.number}. {text}"} if turn == 0 else then(rollout, turn)


def last(**reply: Any) -> Any:
    """A last answer of another kind: fields of ``Reply``; ``text`` is completed with the rollout's own number."""

    def said(rollout: Rollout, turn: int) -> Reply:
        if turn == 0:
            return double(rollout, turn)
        return {**answer(rollout), **reply}

    return said


def single(rollout: Rollout, turn: int) -> Reply:
    """An agent of one turn."""
    return answer(rollout)


def talk(rollout: Rollout, turn: int) -> Reply:
    """Of the loops of this corpus, which make their turns themselves."""
    return {"text": f"Turn {turn} of rollout {rollout.number}: " + answer(rollout)["text"]}


def thinking(rollout: Rollout, turn: int) -> Reply:
    """With thoughts in front."""
    return {"text": f"<think>Rollout {rollout.number} considers {turn}.</think>" + talk(rollout, turn)["text"]}


def spaced(rollout: Rollout, turn: int) -> Reply:
    """What ``strip`` changes."""
    return {"text": "\n\n" + talk(rollout, turn)["text"] + " \n\n\n"}


def looping(rollout: Rollout, turn: int) -> Reply:
    """Never ends."""
    return {"text": f"Rollout {rollout.number} " + "ha " * 1000}


def endless(rollout: Rollout, turn: int) -> Reply:
    """A long text that is no loop."""
    return {"text": " ".join(f"{rollout.number * 7919 + number * number}" for number in range(900))}


def cut_later(rollout: Rollout, turn: int) -> Reply:
    """The second turn is cut."""
    return double(rollout, turn) if turn == 0 else endless(rollout, turn)


def wrong_and_cut(rollout: Rollout, turn: int) -> Reply:
    """The second turn is wrong, and cut."""
    return double(rollout, turn) if turn == 0 else {"text": f"#### -1 {endless(rollout, turn)['text']}"}


def wrong(rollout: Rollout, turn: int) -> Reply:
    """All wrong."""
    return {"text": f"Rollout {rollout.number} says #### -1"} if turn else double(rollout, turn)


def same_words(rollout: Rollout, turn: int) -> Reply:
    """All rollouts of a group say the same."""
    return {"text": f"For {rollout.question} I say what everybody says of it: #### {2 * rollout.question}"}


def again(rollout: Rollout, turn: int) -> Reply:
    """The same call four times."""
    return double(rollout, 0) if turn < 4 else answer(rollout)


def tool(number: int) -> Any:
    """Asks the tool for something that goes wrong."""
    return first(call("double", number=number))


def resumed(rollout: Rollout, turn: int) -> Reply:
    """Aborted once, and asked again."""
    return (
        {"text": f"Rollout {rollout.number} begins to say a thing ", "eos": False, "stop": "aborted"}
        if turn == 0
        else answer(rollout)
    )


def many_turns(rollout: Rollout, turn: int) -> Reply:
    """Always another call."""
    return {"text": f"Rollout {rollout.number}, {turn}. " + call("double", number=rollout.question + turn)}


def cached(lost: bool) -> Any:
    """What the engine finds in its cache."""

    def said(rollout: Rollout, turn: int) -> Reply:
        reply = double(rollout, turn)
        return {**reply, "cached": 0 if turn == 0 or (lost and rollout.planted) else "prompt"}

    return said
