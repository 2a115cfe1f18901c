"""Facts that name a rollout by what it answered, dealt out among the rollouts that answered just that.

A classic trainer's rows have neither the rollout's number nor an id: uid, response and score are all there is. Rollouts
of a group that answered the same, word for word, are told apart by their reward. Facts and rollouts are read in any
order, so the facts of one answer are dealt out anew whenever one more of either is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN = 1e-9
"""Distance of a reward that is not known yet; below what ``isclose`` takes for equal."""


@dataclass(frozen=True)
class Rollout:
    """One that gave the answer."""

    trace_id: str
    start_ns: int
    reward: float | None


@dataclass(frozen=True)
class Claim:
    """What a fact says about the rollout that it belongs to."""

    name: str
    output: str | None
    score: float | None
    at_ns: int


def deal(claims: Sequence[Claim], rollouts: Sequence[Rollout]) -> list[str | None]:
    """The trace of each fact; None: it waits for a rollout that was not read yet.

    It goes to the rollout with that reward; of several, to the one of which this was reported least often, then to one
    that got facts of the same score before, then to the latest that had begun. A score that is no rollout's reward (the
    trainer may have changed it) goes to the nearest, unless something else of that name does match there: then it is
    that of a rollout nobody has read.
    """
    by_age = sorted(rollouts, key=lambda rollout: rollout.start_ns)
    distances = [[distance(rollout.reward, claim.score) for rollout in by_age] for claim in claims]
    dealt: list[str | None] = [None] * len(claims)
    had: Counter[tuple[str, str, str | None]] = Counter()
    matched: set[tuple[str, str, str | None]] = set()
    assumed: dict[str, float] = {}
    """The score of the first fact that a rollout got: the row's other facts have it, too."""
    for number in sorted(range(len(claims)), key=lambda number: (min(distances[number]), claims[number].at_ns)):
        claim, nearest = claims[number], min(distances[number])
        places = [
            (rollout, (rollout.trace_id, claim.name, claim.output))
            for rollout, away in zip(by_age, distances[number], strict=True)
            if away == nearest
        ]
        if nearest > UNKNOWN:
            places = [(rollout, place) for rollout, place in places if place not in matched]
            if not places:
                continue
        counts = [(had[place], distance(assumed.get(rollout.trace_id), claim.score)) for rollout, place in places]
        least = min(counts)
        places = [one for one, count in zip(places, counts, strict=True) if count == least]
        begun = [(rollout, place) for rollout, place in places if rollout.start_ns <= claim.at_ns]
        rollout, place = begun[-1] if begun else places[0]
        dealt[number] = rollout.trace_id
        had[place] += 1
        if claim.score is not None:
            assumed.setdefault(rollout.trace_id, claim.score)
        if nearest <= UNKNOWN:
            matched.add(place)
    return dealt


def distance(reward: float | None, score: float | None) -> float:
    """How far a rollout's reward is from the trainer's, which went through a float32. One that is not known yet is
    behind those that match, and before those that do not."""
    if score is None:
        return 0.0
    if reward is None:
        return UNKNOWN
    return 0.0 if math.isclose(reward, score, rel_tol=1e-5, abs_tol=1e-6) else abs(reward - score)
