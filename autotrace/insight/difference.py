"""Find the first difference of two runs in causal order, down to the token.

    for found in (*settings_differ(settings, others), *differences(pairs, load)):
        print(found.stage, found.words, found.here, found.there)

Rollouts of a prompt are exchangeable: a rollout pairs with the rollout that it agrees with for
longest. A pair counts at its first difference: prompt, sampling, weights, answer and tool calls turn by turn, then the
end, the reward, the advantage and the training.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import msgspec

from autotrace.insight.pairs import Group, Kept, Pairs
from autotrace.trajectory.divergence import UNKNOWN, calls_parted, parted
from autotrace.trajectory.durations import figures
from autotrace.trajectory.model import Trajectory

STAGES = ("configuration", "data", "prompt", "sampling", "weights", "token", "history", "tool", "rollouts", "end",
          "reward", "advantage", "training")  # fmt: skip
"""List the stages in causal order."""
LOADED = 32
"""Load the rollouts of so many prompts of a step that differ."""
NOISE, TOKENS = 0.02, 16
"""Call weights different if the log-probabilities of so many equal tokens differ by more than ``NOISE`` on average."""
PAIRED = 32
"""Compare so many rollouts of a prompt on each side: all pairs are compared."""
LONGEST, DEEPEST = 200, 20
"""Limit the characters of a value, and the levels of a configuration with names of their own."""
LASTING = 4
"""Call a difference of a metric lasting from so many steps."""


Metrics = Mapping[int, Mapping[str, float]]
"""Map step -> name -> value."""
Load = Callable[[int, str], Trajectory | None]
"""Load a trajectory of a side (0 or 1) by trace id; None: only the line is left."""

# -- settings and metrics ----------------------------------------------------------------------------------------------

_SETTING = re.compile(r"(?:\+\+?|--)?([A-Za-z][\w./-]*)=(.*)", re.DOTALL)
_OF_OUTPUT = re.compile(r"(?:project|experiment|run)_name$|(?:output|save|log|logging|rollout_data|local)_?dir$")
OF_TIME = re.compile(r"(?:^|[/_])(?:timing|perf|runtime|time|timestamp|throughput|mfu|seconds|memory)|per_second")


def settings_of(command: Sequence[str], reports: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Flatten the settings of a run: ``NAME=VALUE`` and ``--NAME VALUE`` of its command, then its reports."""
    found = {str(match[1]): str(match[2]) for word in command if (match := _SETTING.fullmatch(word))}
    after = pairwise(command)
    found |= {name[2:]: value for name, value in after if re.fullmatch(r"--[^=]+", name) and value[:1] != "-"}
    for name, report in reports:
        found |= dict(_flat(report, "" if name == "config" else f"{name}."))
    return {name: value for name, value in found.items() if not _OF_OUTPUT.search(name)}


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if name and not isinstance(value, dict):
        yield name[:-1], str(value)[:LONGEST]
    for key, part in value.items() if isinstance(value, dict) else ():
        yield from _flat(part if name.count(".") < DEEPEST else str(part), f"{name}{str(key)[:LONGEST]}.")


def settings_differ(one: Mapping[str, str], other: Mapping[str, str]) -> list[Difference]:
    """Return the settings that differ. Names and places of output do not count; paths with equal last names are
    equal."""
    both = ((name, one.get(name, "not set"), other.get(name, "not set")) for name in {**one, **other})
    return [Difference("configuration", *values) for values in both if len({*map(_last, values[1:])}) > 1]


def _last(value: str) -> str:
    return os.path.basename(value.rstrip(os.sep)) if value.startswith(os.sep) else value


class Parted(msgspec.Struct):
    """Hold a metric that differs."""

    name: str
    step: int
    """Store the first step with a difference."""
    since: int | None
    """Store the step since which the other side is above, or below, in every step; None: in the last steps only."""
    last: float
    last_other: float


def metrics_part(one: Metrics, other: Metrics) -> list[Parted]:
    """Return the metrics that differ in common steps, lasting differences first. Times do not count."""
    found = []
    by_name: dict[str, list[tuple[int, float, float]]] = {}
    for step in sorted({*one} & {*other}):
        for name, value in one[step].items():
            if name in other[step]:
                by_name.setdefault(name, []).append((step, value, other[step][name]))
    for name, both in by_name.items():
        if OF_TIME.search(name):
            continue
        signs = [0 if math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-8) else 1 if b > a else -1 for _, a, b in both]
        if any(signs):
            lasts = next((n for n, sign in enumerate(signs[::-1]) if sign != signs[-1]), len(signs))
            since = both[-lasts][0] if signs[-1] and lasts >= min(LASTING, len(both)) else None
            step = next(at for (at, _, _), sign in zip(both, signs, strict=True) if sign)
            found.append(Parted(name, step, since, *both[-1][1:]))
    return sorted(found, key=lambda each: (each.since is None, each.since or 0, each.step))


# -- the first difference ----------------------------------------------------------------------------------------------


class Difference(msgspec.Struct):
    """Hold the first difference at a stage."""

    stage: str
    words: str
    here: str
    """Store the value of the first side; of a text, the rest from the difference on."""
    there: str
    step: int | None = None
    traces: list[str] = []
    turn: int | None = None
    token: int | None = None
    """Store the index within the prompt or the answer; None: no tokens were recorded."""
    pairs: int = 0
    """Count the pairs with their first difference at this stage, among ``of`` pairs of the step."""
    of: int = 0


Place = tuple[float, float, int]
"""Order differences of two rollouts: by turn (infinity: after the last turn), by rank within the turn, by token."""
_TEXT = {"prompt": (0, "prompt"), "answer": (3, "token"), "end": (0.5, "end"), "result": (4, "end")}
_FACTS = {"status": "end", "reward": "reward", "advantage": "advantage", "trained_in_step": "training",
          "dropped": "training"}  # fmt: skip


def parting(one: Trajectory, other: Trajectory) -> tuple[Place, Difference] | None:
    """Return the first difference of two rollouts, with its place; None: none is recorded."""
    return min(_places(one, other), default=None, key=lambda found: found[0])


def _places(one: Trajectory, other: Trajectory) -> Iterator[tuple[Place, Difference]]:
    def at(turn: float, rank: float, stage: str, words: str, sides: Sequence[Any], token: int | None = None) -> Any:
        here, there = (str(side)[:LONGEST] for side in sides)
        number = int(turn) if 0 < turn < math.inf else None
        return (turn, rank, token or 0), Difference(stage, words, here, there, turn=number, token=token)

    both = (one, other)
    if (where := parted(*both)) is not None and where.part != UNKNOWN:
        rank, stage = _TEXT[where.part]
        stage = "history" if where.part == "prompt" and where.turn > 1 else stage
        yield at(where.turn, rank, stage, f"the {where.part}", (where.here, where.there), where.token)
    if (call := calls_parted(*both)) is not None:
        number, told = call
        yield at(told.turn, 4, "tool", f"the {told.part} of tool call {number}", (told.here, told.there))
    for turn, spans in enumerate(zip(one.llm_spans, other.llm_spans, strict=False), 1):
        given = [dict(_flat(span.inputs.get("sampling_params"), "")) for span in spans]
        if apart := [name for name in given[0] | given[1] if given[0].get(name) != given[1].get(name)]:
            yield at(
                turn, 1, "sampling", ", ".join(apart), [", ".join(str(own.get(n)) for n in apart) for own in given]
            )
        known = [figures(side, span).get("weight_version") for side, span in zip(both, spans, strict=True)]
        if known[0] != known[1]:
            yield at(turn, 2, "weights", "version of the weights", known)
    for rank, (name, stage) in enumerate(_FACTS.items()):
        values = [side.status if name == "status" else side.facts.get(name) for side in both]
        if values[0] != values[1]:
            yield at(math.inf, rank, stage, name, values)


def differences(pairs: Pairs, load: Load) -> list[Difference]:
    """Return the first difference of each stage after the configuration, in causal order."""
    return sorted([*_of_prompts(pairs), *_of_pairs(pairs, load)], key=lambda each: STAGES.index(each.stage))


def _of_prompts(pairs: Pairs) -> Iterator[Difference]:
    """Compare the prompts of the steps, and the numbers of rollouts of the prompts."""
    steps: list[dict[int | None, dict[object, Kept]]] = [{}, {}]
    for found, side in zip(steps, pairs.sides, strict=True):
        for (source, prompt, _), rollouts in side.items():
            for one in rollouts:
                found.setdefault(one.step, {}).setdefault((source, prompt), one)
    for step in sorted(steps[0].keys() & steps[1].keys(), key=lambda step: step or 0):
        sides = steps[0][step], steps[1][step]
        only = [[own[key] for key in own if key not in rest] for own, rest in (sides, sides[::-1])]
        if all(only):
            words = f"{len(only[0])} of {len(sides[0])} prompts are only in this run's step, such as"
            here, there = (" ".join(filter(None, own[0].prompts[1:])) for own in only)
            yield Difference("data", words, here, there, step, [own[0].trace_id for own in only])
            break
    if uneven := [group for group in pairs.groups if len(group[0]) != len(group[1])]:
        words = f"{len(uneven)} of {len(pairs.groups)} prompts have another number of rollouts, such as"
        mine, yours = uneven[0]
        traces = [mine[0].trace_id, yours[0].trace_id]
        yield Difference("rollouts", words, str(len(mine)), str(len(yours)), mine[0].step, traces)


def _of_pairs(pairs: Pairs, load: Load) -> Iterator[Difference]:
    """Compare the rollouts of the first step with a difference, pair by pair."""
    unequal = [group for group in pairs.groups if len({tuple(sorted(one.mark for one in side)) for side in group}) > 1]
    for step in sorted({group[0][0].step for group in unequal}, key=lambda step: (step is None, step or 0)):
        first: dict[str, Difference] = {}
        noise: list[float] = []
        for group in [group for group in unequal if group[0][0].step == step][:LOADED]:
            for place, found, a, b in _matched(group, load):
                kept = first.setdefault(found.stage, found)
                kept.step, kept.pairs, kept.traces = step, kept.pairs + 1, kept.traces or [a.trace_id, b.trace_id]
                noise += _noise(a, b, place) if found.stage == "token" else ()
        for found in first.values():
            found.of = sum(min(map(len, group)) for group in pairs.groups if group[0][0].step == step)
            if found.stage == "token" and len(noise) >= TOKENS:
                mean = fmean(noise)
                found.words += f"; log-probabilities of {len(noise):,} equal tokens before it differ by {mean:.2g}"
                found.stage = "weights" if mean > NOISE and "weights" not in first else "token"
            yield found
        if first:
            return


def _noise(one: Trajectory, other: Trajectory, place: Place) -> Iterator[float]:
    """Yield the differences of the log-probabilities of the answers' tokens before a place."""
    for number, spans in enumerate(zip(one.llm_spans, other.llm_spans, strict=False), 1):
        end = place[2] if number == place[0] else None if number < place[0] else 0
        yield from (abs(a - b) for a, b in zip(*((span.logprobs or [])[:end] for span in spans), strict=False))


def _matched(group: Group, load: Load) -> Iterator[tuple[Place, Difference, Trajectory, Trajectory]]:
    """Yield pairs that differ: the rollouts that agree for longest pair first."""
    own, others = ([one for kept in side[:PAIRED] if (one := load(number, kept.trace_id)) is not None]
                   for number, side in enumerate(group))  # fmt: skip
    left = [(parting(a, b), i, j) for i, a in enumerate(own) for j, b in enumerate(others)]
    left.sort(key=lambda each: (each[0] is None, each[0] and each[0][0], -abs(each[1] - each[2])))
    while left:
        found, i, j = left[-1]
        if found is not None:
            yield *found, own[i], others[j]
        left = [each for each in left if each[1] != i and each[2] != j]
