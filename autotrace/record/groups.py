"""What the trainer's calls around a trajectory say of it: step, experiment, and which group of rollouts it is in."""

from __future__ import annotations

from itertools import count
from typing import Any

from autotrace.record.context import OpenCall, RetainingCall

OF_THE_STEP: tuple[str, ...] = ("step", "validate", "project_name", "experiment_name")
OF_THE_PROMPT: tuple[str, ...] = ("uid", "sample_index", "data_source")
MAX_HOPS = 1_000


def begin(call: RetainingCall, attributes: dict[str, Any] | None, group: bool) -> None:
    """Trajectories will open inside of ``call``, with ``group`` the rollouts of one prompt."""
    if attributes is not None:
        call.passed_on = {name: attributes[name] for name in OF_THE_STEP + OF_THE_PROMPT if name in attributes}
    if group:
        call.rollouts = count()


def completed(attributes: dict[str, Any] | None, around: OpenCall | None) -> dict[str, Any] | None:
    """``attributes`` of a trajectory that opens inside of ``around``, with what it does not say itself and the nearest
    call of role ``trainer`` does. What is below another trajectory is no rollout of its group."""
    found: dict[str, Any] = {}
    names = OF_THE_STEP + OF_THE_PROMPT
    for _ in range(MAX_HOPS):
        if around is None:
            break
        probe = around.probe
        if probe is not None and probe.role == "trajectory":
            names = OF_THE_STEP
        elif type(around) is RetainingCall:
            said = around.passed_on or {}
            found = {name: said[name] for name in names if name in said} | found
            if around.rollouts is not None and names is not OF_THE_STEP:
                found = {"uid": f"{around.id & (1 << 64) - 1:016x}", "rollout_n": next(around.rollouts)} | found
                names = OF_THE_STEP
        around = around.above
    return {**found, **(attributes or {})} if found else attributes
