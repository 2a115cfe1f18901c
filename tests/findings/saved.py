"""Runs of the public set of faults that no trainer plays: rollouts as lists of messages, and a trainer's metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

CITIES = ("Jena", "Gera", "Bonn", "Kiel")
ATTEMPTS = 4
Messages = list[dict[str, Any]]


class Asked(NamedTuple):
    """A rollout: the place of its prompt, the number of the attempt, the step."""

    prompt: int
    attempt: int
    step: int

    @property
    def is_right(self) -> bool:
        return (self.prompt + self.attempt) % 2 == 0


def called(asked: Asked) -> Messages:
    """The question, an answer with a call, and the result."""
    city, said = CITIES[asked.prompt], f"Attempt {asked.attempt}: I look up {CITIES[asked.prompt]}."
    call = {"name": "search", "arguments": json.dumps({"query": f"inhabitants of {city}"})}
    return [
        {"role": "user", "content": f"How many people live in {city}? (year {1990 + asked.step})"},
        {"role": "assistant", "content": said, "tool_calls": [{"id": "c", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c", "content": f"{city} has {number_of(asked)} inhabitants."},
    ]


def number_of(asked: Asked) -> int:
    return 1000 + 137 * asked.prompt + asked.step


def answer(asked: Asked, more: str = "") -> dict[str, Any]:
    number = number_of(asked) + (not asked.is_right) * (7 + asked.attempt)
    return {"role": "assistant", "content": f"After attempt {asked.attempt} my answer is: {number}{more}"}


def clean(asked: Asked) -> dict[str, Any]:
    """A rollout without a fault."""
    return {"messages": [*called(asked), answer(asked)]}


def some(fault: Callable[[Asked], dict[str, Any]]) -> Callable[[Asked], dict[str, Any]]:
    """The fault in one attempt of each prompt."""
    return lambda asked: {**clean(asked), **(fault(asked) if asked.attempt == 1 else {})}


def one_prompt(asked: Asked) -> dict[str, Any]:
    """In the last step all groups have one prompt."""
    return clean(asked._replace(prompt=0) if asked.step == STEPS[-1] else asked)


ROLLOUTS: dict[str, Callable[[Asked], dict[str, Any]]] = {
    "AT-ENDS-ON-TOOL": some(lambda asked: {"messages": called(asked)}),
    "AT-GROUP-MIXED": lambda asked: {**clean(asked), "uid": f"{asked.step}-{asked.prompt // 2}"},
    "AT-ONE-PROMPT": one_prompt,
    "AT-REWARD-DROPPED": lambda asked: {**clean(asked), "reward": float((asked.attempt == 3) is (asked.step > 2))},
    "AT-REWARD-JUMPED": lambda asked: {**clean(asked), "reward": float((asked.attempt == 3) is (asked.step < 3))},
    "AT-REWARD-NO-TURN": some(lambda asked: {"messages": called(asked)[:1]}),
    "AT-ROLE-PLAYED": some(lambda asked: {"messages": [
        *called(asked), answer(asked, "\nUser: Are you sure?\nAssistant: Yes.")]}),
}  # fmt: skip
"""Finding -> a rollout of the run with the fault."""
STEPS = range(1, 5)
HEALTHY: dict[str, Callable[[int], float]] = {
    "actor/entropy": lambda step: 0.6 - 0.01 * step, "actor/kl_loss": lambda step: 0.01 + 0.001 * step,
    "actor/pg_clipfrac": lambda step: 0.05, "actor/grad_norm": lambda step: 0.3 + 0.01 * (step % 3),
    "response_length/mean": lambda step: 300 + step, "response_length/clip_ratio": lambda step: 0.02,
    "critic/score/mean": lambda step: 0.2 + 0.03 * step, "val-core/toy/acc/mean": lambda step: 0.2 + 0.03 * step,
    "frac_reward_zero_std": lambda step: 0.2,
}  # fmt: skip
"""Metric of a trainer -> value in a step of a healthy run without rollouts."""
CURVES: dict[str, tuple[str, Callable[[int], float]]] = {
    "AT-CLIP-SATURATED": ("actor/pg_clipfrac", lambda step: 0.04 * step),
    "AT-ENTROPY-COLLAPSED": ("actor/entropy", lambda step: 0.6 * 0.7**step),
    "AT-GRADIENT-SPIKES": ("actor/grad_norm", lambda step: 9.0 if step % 4 == 3 else 0.3),
    "AT-KL-DRIFT": ("actor/kl_loss", lambda step: 0.01 * 1.6**step),
    "AT-LENGTH-GREW": ("response_length/clip_ratio", lambda step: 0.02 * step),
    "AT-REWARD-FLAT": ("frac_reward_zero_std", lambda step: 0.2 + 0.05 * step),
    "AT-REWARD-GAMED": ("val-core/toy/acc/mean", lambda step: 0.2 + 0.001 * step),
}
"""Finding -> the metric with the fault, and the value in a step."""
LOGGED = range(1, 15)
CLEAN = "clip-saturated/clean", "ends-on-tool/clean"
"""Twins of the runs of metrics, and of rollouts."""


def folder_of(code: str) -> str:
    """The folder of a finding."""
    return code.removeprefix("AT-").lower()


FOLDERS = {folder: "" for folder in CLEAN} | {f"{folder_of(code)}/fault": code for code in (*CURVES, *ROLLOUTS)}
"""Folder -> the finding; twins have none."""


def save(top: Path) -> None:
    """Write the runs below ``top``."""
    for folder, code in FOLDERS.items():
        (top / folder).mkdir(parents=True, exist_ok=True)
        if code in CURVES or folder == CLEAN[0]:
            own = {**HEALTHY, **(dict([CURVES[code]]) if code else {})}
            lines = [["step", *own], *([str(at), *(f"{of(at):.5g}" for of in own.values())] for at in LOGGED)]
            (top / folder / "metrics.csv").write_text("".join(",".join(line) + "\n" for line in lines))
        else:
            each = (Asked(*one) for one in _every())
            rows = [{"step": asked.step, "uid": f"{asked.step}-{asked.prompt}", "sample_index": asked.prompt,
                     "rollout_n": asked.attempt, "reward": float(asked.is_right), **ROLLOUTS.get(code, clean)(asked)}
                    for asked in each]  # fmt: skip
            pq.write_table(pa.Table.from_pylist(rows), top / folder / "rollouts.parquet", compression="brotli",
                           compression_level=11, write_statistics=False, store_schema=False)  # fmt: skip


def _every() -> Iterator[tuple[int, int, int]]:
    for step in STEPS:
        yield from ((prompt, attempt, step) for prompt in range(len(CITIES)) for attempt in range(ATTEMPTS))
