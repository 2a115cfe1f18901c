"""Numbers about steps of training, in the state by step and name."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from autotrace.ship.store.state import State
from autotrace.spool.records import StepFacts
from autotrace.trajectory.jsonable import text

MAX_NUMBERS = 2_000
"""Of one step and name."""
_KEY = "step:"
_decode = msgspec.json.Decoder(dict[str, float]).decode


def store(state: State, facts: StepFacts) -> None:
    """Add what was recorded to what is known of the step."""
    put(state, facts.step, facts.name, facts.value)


def put(state: State, step: int, called: str, given: Mapping[str, float]) -> None:
    """Add numbers to what is known of the step. Those that are not finite are left out."""
    key = f"{_KEY}{step}:{text(called)[:100]}"
    before = state.meta(key)
    known = {} if before is None else _decode(before)
    known |= {text(name)[:250]: value for name, value in given.items() if math.isfinite(value)}
    state.put_meta(key, msgspec.json.encode(dict(list(known.items())[:MAX_NUMBERS])).decode())


def numbers(state: State) -> list[int]:
    """The steps of which something was recorded."""
    keys = state.db.execute("SELECT key FROM meta WHERE key >= ? AND key < ?", (_KEY, _KEY[:-1] + ";")).fetchall()
    return sorted({int(key[len(_KEY) :].partition(":")[0]) for (key,) in keys})


def read(state: State, step: int | None = None) -> dict[int, dict[str, dict[str, float]]]:
    """Step -> name -> numbers; of one step where it is given."""
    prefix = _KEY if step is None else f"{_KEY}{step}:"
    made: dict[int, dict[str, dict[str, float]]] = {}
    for key, value in state.metas(prefix).items():
        number, _, name = (f"{step}:{key}" if step is not None else key).partition(":")
        made.setdefault(int(number), {})[name] = _decode(value)
    return made
