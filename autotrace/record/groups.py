"""Find the group of a trajectory's rollouts in the calls around, and tell whether a call is the base method through
``super()``."""

from __future__ import annotations

from itertools import count
from typing import Any

from autotrace.record.context import OpenCall, RetainingCall, current
from autotrace.record.object_fields import mro_of, name_of

OF_THE_STEP: tuple[str, ...] = ("step", "validate", "project_name", "experiment_name")
OF_THE_PROMPT: tuple[str, ...] = ("uid", "sample_index", "data_source")
MAX_HOPS = 1_000


def begin(call: RetainingCall, attributes: dict[str, Any] | None, group: bool) -> None:
    """Prepare ``call`` for the trajectories that will open inside; with ``group``, the trajectories are rollouts of the
    same prompt."""
    if attributes is not None:
        call.passed_on = {name: attributes[name] for name in OF_THE_STEP + OF_THE_PROMPT if name in attributes}
    if group:
        call.rollouts = count()


def completed(attributes: dict[str, Any] | None, around: OpenCall | None) -> dict[str, Any] | None:
    """Complete the ``attributes`` of a trajectory that opens inside ``around`` from the nearest call of role
    ``trainer``; attributes of the trajectory itself win. A trajectory below another trajectory is not a rollout of the
    other trajectory's group."""
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


def is_part(above: OpenCall, probe: Any, function: Any, args: tuple[Any, ...]) -> bool:
    """Tells whether the call belongs to the call being recorded: the base method of an override, or another rollout of
    the same object (``validation_rollout`` that calls ``training_rollout``)."""
    if above.probe is probe:
        return is_super_call(above, function, args)
    return above.probe is not None and above.probe.is_root and above.owner == id(args[0] if args else None)


def is_super_call(above: OpenCall, function: Any, args: tuple[Any, ...]) -> bool:
    """Tells whether this is the base method that the override being recorded calls through ``super()``: another
    function for the same object, of the same name, and not of a class before the override's class."""
    probe, signature = above.probe, above.signature
    if probe is None or not args:
        return False
    owner = args[0]
    if above.owner != id(owner) or signature is None or signature.identity == id(function):
        return False
    if probe.has_several_names and signature.name.rpartition(".")[2] != function.__name__:
        return False
    order = [name_of(cls) for cls in mro_of(owner if isinstance(owner, type) else type(owner))]
    here, override = function.__qualname__.rpartition(".")[0], signature.name.rpartition(".")[0]
    return here not in order or override not in order or order.index(here) > order.index(override)


def recording(owner: Any, name: str, key: str) -> bool:
    """Tells whether the current call is method ``name`` of ``owner``, under another target than ``key``."""
    call = current.get()
    if call is None or call.probe is None or call.signature is None or call.probe.key == key:
        return False
    return call.owner == id(owner) and call.signature.name.rpartition(".")[2] == name
