"""Whether a trajectory is recorded: decided once at its root from its attributes, equal for all rollouts of a group.

Fractions are ``hash(seed, data_source, sample)`` under a threshold, so a resumed run, another worker and the other
rollouts of a group come to the same answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

Decision = Callable[[Mapping[str, Any]], bool]


def fraction(seed: Any, *identity: Any) -> float:
    """A number in [0, 1) fixed by its arguments."""
    text = "\x1f".join(str(part) for part in (seed, *identity))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little") / 2**64


def sample_of(attributes: Mapping[str, Any]) -> Any:
    """What names the sample: ``sample_index`` unless it is missing or the constant 0 of a dataset without an index,
    then the prompt's digest, then the group's ``uid``."""
    index = attributes.get("sample_index")
    if index not in (None, 0, "0"):
        return index
    for name in ("prompt_digest", "uid"):
        if attributes.get(name) is not None:
            return attributes[name]
    return index


def decision(settings: Mapping[str, Any]) -> Decision | None:
    """The rule that ``settings`` (``Settings.sampling``) describe; None when everything is recorded."""
    rate = settings.get("rate")
    validate_rate = settings.get("validate_rate")
    every = settings.get("every_n_steps")
    samples = settings.get("samples")
    seed = settings.get("seed", 0)
    if rate is None and validate_rate is None and not every and not samples:
        return None
    wanted = {str(sample) for sample in samples or ()}

    def decide(attributes: Mapping[str, Any]) -> bool:
        if wanted and str(attributes.get("sample_index")) not in wanted and str(attributes.get("uid")) not in wanted:
            return False
        validate = str(attributes.get("validate")).lower() == "true"
        step = attributes.get("step")
        if every and not validate and isinstance(step, int) and step >= 0 and step % every:
            return False
        share = validate_rate if validate and validate_rate is not None else rate
        return share is None or fraction(seed, attributes.get("data_source"), sample_of(attributes)) < share

    return decide
