"""Numbers about steps of training, in the state by step and name."""

from __future__ import annotations

import math

import msgspec

from autotrace.ship.store.state import State
from autotrace.spool.records import StepFacts
from autotrace.trajectory.jsonable import text

MAX_NUMBERS = 2_000
"""Of one step and name."""
_KEY = "step:"
_decode = msgspec.json.Decoder(dict[str, float]).decode


def store(state: State, facts: StepFacts) -> None:
    """Add what was recorded to what is known of the step. Numbers that are not finite are left out."""
    key = f"{_KEY}{facts.step}:{text(facts.name)[:100]}"
    before = state.meta(key)
    known = {} if before is None else _decode(before)
    known |= {text(name)[:250]: value for name, value in facts.value.items() if math.isfinite(value)}
    state.put_meta(key, msgspec.json.encode(dict(list(known.items())[:MAX_NUMBERS])).decode())


def read(state: State, step: int | None = None) -> dict[int, dict[str, dict[str, float]]]:
    """Step -> name -> numbers; of one step where it is given."""
    prefix = _KEY if step is None else f"{_KEY}{step}:"
    made: dict[int, dict[str, dict[str, float]]] = {}
    for key, value in state.metas(prefix).items():
        number, _, name = (f"{step}:{key}" if step is not None else key).partition(":")
        made.setdefault(int(number), {})[name] = _decode(value)
    return made
