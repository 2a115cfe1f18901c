"""List the data that the check of each finding reads, and which data a run has: a check without its data finds
nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set

from autotrace.insight.finding import Code
from autotrace.insight.step_records import Record, Step


def _any(has: Callable[[Record], object]) -> Callable[[Step], bool]:
    return lambda step: any(map(has, step.records))


NEEDS: dict[str, tuple[Callable[[Step], bool], str]] = {
    "LLM calls": (_any(lambda one: one.profile.turns), """
        AT-TRUNCATED AT-TRUNCATED-TOOL AT-TURN-LIMIT AT-ABORTED AT-EMPTY-ANSWER AT-REWARD-NO-TURN
        AT-SAMPLING-BIASED AT-ROLE-PLAYED AT-PROMPT-HEADER AT-CALL-NOT-EXECUTED"""),
    "messages": (_any(lambda one: one.profile.prompt), """
        AT-MESSAGES-DROPPED AT-GROUP-MIXED AT-ONE-PROMPT AT-RESULT-SWAPPED AT-TOOLS-MISSING
        AT-ANSWER-FOREIGN"""),
    "token ids": (_any(lambda one: any(turn.last is not None for turn in one.profile.turns)), """
        AT-RETOKENIZED AT-NO-EOS AT-PROMPT-CUT AT-MASK-TOOL-TOKENS AT-MASK-EMPTY AT-MASK-INVALID AT-RESPONSE-CHANGED
        AT-REPETITION AT-PROMPT-TRAINED AT-DUPLICATE-ROLLOUTS AT-TOKENS-DROPPED AT-TOKENS-TWICE"""),
    "the response and the mask": (_any(lambda one: one.profile.returned is not None), """
        AT-MASK-TOOL-TOKENS AT-MASK-EMPTY AT-MASK-INVALID AT-RESPONSE-CHANGED AT-PROMPT-TRAINED AT-SESSION-DIED"""),
    "limits of tokens": (lambda step: bool(step.settings.response_length or step.settings.max_model_len), """
        AT-TRUNCATED-CONTEXT AT-TRUNCATED-RESPONSE AT-TRUNCATED-TOOL AT-PROMPT-CUT"""),
    "a limit of turns": (
        lambda step: bool(step.settings.max_assistant_turns or step.settings.max_user_turns), "AT-TURN-LIMIT"),
    "tool calls": (_any(lambda one: one.profile.tools), """
        AT-TOOL-RAISES AT-TOOL-TIMEOUT AT-TOOL-ERROR-TEXT AT-TOOL-UNKNOWN AT-TOOL-ARGUMENTS AT-CALL-REPEATED
        AT-TOOL-SLOW AT-TOOL-ONE-ANSWER AT-ENDS-ON-TOOL AT-TRUNCATED-TOOL"""),
    "rewards": (_any(lambda one: one.score is not None), """
        AT-REWARD-NAN AT-REWARD-CONSTANT AT-REWARD-MISSING AT-REWARD-DROPPED AT-REWARD-JUMPED AT-REWARD-NO-TURN
        AT-FALSE-ZERO
        AT-NO-SIGNAL AT-NO-SIGNAL-TRUNCATED AT-NO-SIGNAL-ERRORS AT-ADVANTAGE-WRONG AT-ADVANTAGE-NOISE AT-FORMAT-GAMED
        AT-BRANCH-REWARD AT-SESSION-DIED"""),
    "calls of the reward function": (_any(lambda one: "reward_s" in one.times), """
        AT-REWARD-RAISES AT-REWARD-TIMEOUT AT-REWARD-MISMATCHED"""),
    "parts of the reward": (_any(lambda one: one.members("reward_extra_info")), "AT-FORMAT-GAMED"),
    "groups (uid)": (_any(lambda one: one.uid is not None), """
        AT-GROUP-INCOMPLETE AT-GROUP-OF-ONE AT-GROUP-MIXED AT-ONE-PROMPT"""),
    "training steps": (lambda step: step.number is not None and step.number >= 0, """
        AT-REWARD-DROPPED AT-REWARD-JUMPED AT-STRAGGLER AT-STEP-IDLE AT-WEIGHTS-STALE AT-WEIGHTS-STUCK"""),
    "advantages": (_any(lambda one: one.advantage is not None), """
        AT-ADVANTAGE-NAN AT-ADVANTAGE-WRONG AT-ADVANTAGE-NOISE AT-BRANCH-REWARD"""),
    "the batches that were trained on": (_any(lambda one: one.trained_in_step is not None), """
        AT-NOT-TRAINED AT-TRAINED-TWICE AT-TOKENS-DROPPED AT-TOKENS-TWICE"""),
    "trainer log-probabilities": (_any(lambda one: one.members("token_facts")), """
        AT-MISMATCH AT-MISMATCH-TRAJECTORY AT-MISMATCH-GROWS AT-LOGPROB-INVALID AT-METRICS-PADDED"""),
    "trainer metrics": (lambda step: bool(step.metrics), """
        AT-CLIP-RATIO AT-METRICS-PADDED AT-ENTROPY-COLLAPSED AT-KL-DRIFT AT-CLIP-SATURATED AT-GRADIENT-SPIKES
        AT-LENGTH-GREW"""),
    "sampling parameters": (_any(lambda one: one.traits("sampling")), """
        AT-SAMPLING-DIFFERS AT-SAMPLING-BIASED"""),
    "weight versions": (_any(lambda one: one.versions), "AT-WEIGHTS-MIXED AT-WEIGHTS-STALE AT-WEIGHTS-STUCK"),
    "the engine's cache and queue": (_any(lambda one: any(turn.cached is not None for turn in one.profile.turns)), """
        AT-CACHE-LOST AT-PREEMPTED"""),
}  # fmt: skip
"""Map the name of some data -> whether a step has the data, and the codes whose checks need the data."""
_OF: dict[str, list[str]] = {}
for _need, (_, _codes) in NEEDS.items():
    for _code in _codes.split():
        _OF.setdefault(_code, []).append(_need)


def needs(code: str) -> list[str]:
    """Return the data that the check of a finding reads; empty: any trajectory."""
    return _OF.get(code, [])


def present(step: Step) -> set[str]:
    """Return the data that a step has."""
    return {need for need, (has, _) in NEEDS.items() if has(step)}


def checked(codes: Mapping[str, Code], there: Collection[str]) -> tuple[int, dict[str, int]]:
    """Count the checks that could run, and map missing data -> how many checks needed the data, the most first."""
    first = [next((need for need in needs(code) if need not in there), None) for code in codes]
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
