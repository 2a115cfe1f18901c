"""Say which data a run has: a check without its data finds nothing. A page of a finding lists the data under "Data
needed"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set

from autotrace.insight.finding import Code
from autotrace.insight.step_records import Record, Step


def _any(has: Callable[[Record], object]) -> Callable[[Step], bool]:
    return lambda step: any(map(has, step.records))


NEEDS: dict[str, Callable[[Step], bool]] = {
    "LLM calls": _any(lambda one: one.profile.turns),
    "messages": _any(lambda one: one.profile.prompt),
    "token ids": _any(lambda one: any(turn.last is not None for turn in one.profile.turns)),
    "the response and the mask": _any(lambda one: one.profile.returned is not None),
    "limits of tokens": lambda step: bool(step.settings.response_length or step.settings.max_model_len),
    "a limit of turns": lambda step: bool(step.settings.max_assistant_turns or step.settings.max_user_turns),
    "tool calls": _any(lambda one: one.profile.tools),
    "rewards": _any(lambda one: one.score is not None),
    "calls of the reward function": _any(lambda one: "reward_s" in one.times),
    "parts of the reward": _any(lambda one: one.members("reward_extra_info")),
    "groups (uid)": _any(lambda one: one.uid is not None),
    "training steps": lambda step: step.number is not None and step.number >= 0,
    "advantages": _any(lambda one: one.advantage is not None),
    "the batches that were trained on": _any(lambda one: one.trained_in_step is not None),
    "trainer log-probabilities": _any(lambda one: one.members("token_facts")),
    "trainer metrics": lambda step: bool(step.metrics),
    "sampling parameters": _any(lambda one: one.traits("sampling")),
    "weight versions": _any(lambda one: one.versions),
    "the engine's cache and queue": _any(lambda one: any(turn.cached is not None for turn in one.profile.turns)),
}
"""Map the name of some data -> whether a step has the data."""


def needs(code: Code) -> list[str]:
    """Return the data that the check of a finding reads, as the page of the finding says; empty: any trajectory."""
    return [name for name in NEEDS if name.lower() in code.needs]


def present(step: Step) -> set[str]:
    """Return the data that a step has."""
    return {need for need, has in NEEDS.items() if has(step)}


def checked(codes: Mapping[str, Code], there: Collection[str]) -> tuple[int, dict[str, int]]:
    """Count the checks that could run, and map missing data -> how many checks needed the data, the most first."""
    first = [next((need for need in needs(code) if need not in there), None) for code in codes.values()]
    return first.count(None), dict(Counter(need for need in first if need is not None).most_common())


_SORTS = {
    "calls": ("LLM calls", "messages", "tool calls", "sampling parameters"),
    "tokens and limits": ("token ids", "the response and the mask", "limits of tokens", "a limit of turns"),
    "rewards and steps": ("rewards", "calls of the reward function", "parts of the reward", "training steps"),
    "the trainer": ("advantages", "the batches that were trained on", "trainer log-probabilities",
                            "trainer metrics"),
    "the engine": ("weight versions", "the engine's cache and queue"),
}  # fmt: skip
"""Map a few words -> the names of data that they stand for, if several are missing."""


def sentence(codes: Mapping[str, Code], there: Set[str]) -> str:
    """Return ``41 checks; 26 checks could not run: no token ids (12), incomplete data of the trainer (14)``. The
    sentence is short, however much is missing."""
    ran, missing = checked(codes, there)
    said, count = f"{ran} check{'' if ran == 1 else 's'}", sum(missing.values())
    if not missing:
        return said
    sorts = {
        need: f"{'incomplete' if there & {*needs} else 'no'} data of {sort}"
        for sort, needs in _SORTS.items() if len(missing.keys() & {*needs}) > 1 for need in needs
    }  # fmt: skip
    reasons = Counter[str]()
    for need, lacking in missing.items():
        reasons[sorts.get(need, f"no {need.removeprefix('the ').removeprefix('a ')}")] += lacking
    why = ", ".join(f"{reason} ({lacking})" for reason, lacking in reasons.most_common())
    return f"{said}; {count} check{'' if count == 1 else 's'} could not run: {why}"
